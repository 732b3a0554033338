// The OpenAPI document against what the routes do: every route is in it, and takes and gives what it says.
import { describe, expect, it } from "vitest";
import { Groups } from "../../src/ledger/groups.ts";
import {
  ADVANCE,
  type ApiProject,
  ATTEST,
  apiProject,
  apiService,
  DELIVER,
  DELIVERIES,
  DISABLE,
  FRESHNESS,
  LIST,
  once,
  POSTS,
  PUBLIC,
  REGISTER,
  RELEASE,
  ROWS,
  SETTLE,
  TAKE,
} from "../support/api-project.ts";
import { exchange } from "../support/exchange.ts";
import { handoff } from "../support/groups.ts";
import { type Schema, schemaProblems } from "../support/json-schema.ts";

const service = once(() => apiService());

const inProject = ({ scope }: ApiProject) => ({ project: scope, scope });

interface Operation {
  operationId: string;
  security: unknown[];
  requestBody?: { required: boolean; content: Record<string, { schema: Schema }> };
  responses: Record<string, { description: string; content: Record<string, { schema: Schema }> }>;
}

describe("the OpenAPI document", () => {
  const read = async (url: string) => {
    const { text } = await exchange(url, "GET", "/openapi.json");
    return JSON.parse(text) as {
      openapi: string;
      paths: Record<string, Record<string, Operation>>;
      components: { schemas: Record<string, Schema> };
    };
  };
  const bodyOf = ({ requestBody }: Operation) => requestBody?.content["application/json"]?.schema ?? {};

  it("lists every route, each once and by a name of its own, and each answers", async () => {
    const { url } = await service();
    const { openapi, paths, components } = await read(url);
    expect(openapi).toMatch(/^3\.1\./);
    const routes = Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({
        path,
        method: method.toUpperCase(),
        operation,
      })),
    );
    expect(routes.map(({ path, method }) => `${method} ${path}`).sort()).toEqual(
      [
        ...POSTS.map((path) => `POST ${path}`),
        ...[FRESHNESS, "/health", "/ready", "/metrics", "/openapi.json"].map((path) => `GET ${path}`),
      ].sort(),
    );
    expect(new Set(routes.map(({ operation }) => operation.operationId)).size).toBe(routes.length);
    for (const { path, method, operation } of routes) {
      const open = operation.security.length === 0;
      expect((await exchange(url, method, path)).status, path).toBe(open ? 200 : 401);
      for (const response of Object.values(operation.responses)) expect(response.description).toBeTruthy();
    }
    for (const [reference, name] of JSON.stringify(paths).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
      expect(components.schemas, reference).toHaveProperty(name ?? "");
    }
  });

  it("describes bodies as strictly as the routes take them", async () => {
    const { test, url } = await service();
    const { token } = await apiProject(test, url);
    const { paths } = await read(url);
    const good: Record<string, object> = {
      [REGISTER]: { url: `${PUBLIC}/strict`, deliver: "latest" },
      [LIST]: {},
      [DISABLE]: { id: "nobody's" },
      [DELIVERIES]: { limit: 1, state: "pending" },
      [DELIVER]: {
        ...{ target: "https/deliver", scope: "nobody's", idempotency: "k", identity_id: "i", run_id: "r" },
        ...{ variables: { n: 1 }, redeliver: "never" },
      },
      [ROWS]: {
        target: "https/deliver",
        scope: "s",
        status: "sent",
        run_id: "r",
        identity_id: "i",
        limit: 1,
      },
      [ATTEST]: { id: "nobody's", status: "sent", at: "2026-09-11T09:44:20.000Z" },
      [SETTLE]: { id: "nobody's" },
      [RELEASE]: { id: "nobody's" },
      [TAKE]: { group: "jobs", limit: 1, wait: "1ms" },
      [ADVANCE]: { formed_through: 1, stored_through: 1, parked_turns: 0 },
    };
    for (const path of POSTS) {
      const operation = paths[path]?.post as Operation;
      const schema = bodyOf(operation);
      const send = async (body: object) =>
        (await exchange(url, "POST", path, { token, body: JSON.stringify(body) })).status;
      const given = good[path] ?? {};
      expect(schemaProblems(schema, given), path).toEqual([]);
      expect(await send(given), path).not.toBe(400);
      const bad = [
        { ...given, unknown: 1 },
        ...((schema.required ?? []) as string[]).map((name) => ({ ...given, [name]: undefined })),
        ...Object.keys(schema.properties ?? {}).map((name) => ({
          ...given,
          [name]: name === "variables" ? ["a", "list"] : { an: "object" },
        })),
      ];
      for (const body of bad) {
        const sent = JSON.parse(JSON.stringify(body));
        expect(schemaProblems(schema, sent), `${path} ${JSON.stringify(sent)}`).not.toEqual([]);
        expect(await send(sent), `${path} ${JSON.stringify(sent)}`).toBe(400);
      }
      expect(operation.requestBody?.required, path).toBe(schemaProblems(schema, {}).length > 0);
    }
  });

  it("describes the answers that the routes give", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    const { client } = project;
    const { paths, components } = await read(url);
    const check = (
      path: string,
      method: string,
      { status, body }: Awaited<ReturnType<typeof client.get>>,
    ) => {
      const responses = paths[path]?.[method]?.responses ?? {};
      const answer = responses[status] ?? responses.default;
      const schema = answer?.content["application/json"]?.schema ?? {};
      const name =
        String(schema.$ref ?? "")
          .split("/")
          .at(-1) ?? "";
      expect(schemaProblems(components.schemas[name] ?? schema, body), `${path} ${status}`).toEqual([]);
    };
    const { id } = (await client.post(REGISTER, { url: `${PUBLIC}/answers` })).body;
    await test.db.query(
      `INSERT INTO ${test.namespace.sql}.notification_delivery
         (delivery_id, scope, endpoint_id, formed_through, stored_through, delivered_at, last_status)
       SELECT gen_random_uuid(), $1, $2, 9223372036854775806 - n, 9223372036854775807, CASE n WHEN 0 THEN now() END,
              CASE n WHEN 0 THEN 204 END
       FROM generate_series(0, 1) n`,
      [project.scope, id],
    );
    check(FRESHNESS, "get", await client.get(FRESHNESS));
    check(ADVANCE, "post", await client.post(ADVANCE, '{"formed_through":9223372036854775807}'));
    check(REGISTER, "post", await client.post(REGISTER, { url: `${PUBLIC}/more` }));
    check(REGISTER, "post", await client.post(REGISTER, { url: `${PUBLIC}/more` }));
    check(DISABLE, "post", await client.post(DISABLE, { id }));
    check(LIST, "post", await client.post(LIST));
    check(DELIVERIES, "post", await client.post(DELIVERIES, { limit: 1 }));
    await test.db.query(
      `INSERT INTO ${test.namespace.sql}.deliveries
         (id, identity_id, target, scope, idempotency, run_id, created_at, status, project)
       SELECT status, 'i', 'https/deliver', $2, status, 'r', '2026-09-11T09:44:20.000Z',
              rtrim(status, '2'), $1
       FROM unnest(ARRAY['accepted', 'unconfirmed', 'unconfirmed2']) status`,
      [project.scope, id],
    );
    check(ATTEST, "post", await client.post(ATTEST, { id: "accepted", status: "sent" }));
    check(ROWS, "post", await client.post(ROWS, { limit: 2 }));
    const call = { target: "https/deliver", scope: id, identity_id: "i", run_id: "r" };
    check(DELIVER, "post", await client.post(DELIVER, { ...call, idempotency: "unconfirmed" }));
    check(DELIVER, "post", await client.post(DELIVER, { ...call, idempotency: "new" }));
    check(SETTLE, "post", await client.post(SETTLE, { id: "unconfirmed" }));
    check(RELEASE, "post", await client.post(RELEASE, { id: "unconfirmed2" }));
    check(DELIVERIES, "post", await client.post(DELIVERIES));
    await new Groups(test.namespace).handOff(
      test.db,
      handoff("k", { ...inProject(project), variables: { n: 1 } }),
    );
    await new Groups(test.namespace).handOff(test.db, handoff("l", inProject(project)));
    check(TAKE, "post", await client.post(TAKE, { group: "jobs" }));
    check(TAKE, "post", await client.post(TAKE, { group: "unlisted" }));
    check("/health", "get", await client.get("/health"));
    check("/ready", "get", await client.get("/ready"));
  });
});
