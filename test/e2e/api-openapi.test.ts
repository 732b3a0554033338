// The OpenAPI document against what the routes do: every route is in it, and takes and gives what it says.
import { describe, expect, it } from "vitest";
import {
  ADVANCE,
  apiProject,
  apiService,
  DELIVERIES,
  DISABLE,
  FRESHNESS,
  LIST,
  once,
  POSTS,
  PUBLIC,
  REGISTER,
} from "../support/api-project.ts";
import { exchange } from "../support/exchange.ts";
import { type Schema, schemaProblems } from "../support/json-schema.ts";

const service = once(() => apiService());

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
        ...Object.keys(schema.properties ?? {}).map((name) => ({ ...given, [name]: { an: "object" } })),
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
    check(DELIVERIES, "post", await client.post(DELIVERIES));
    check("/health", "get", await client.get("/health"));
    check("/ready", "get", await client.get("/ready"));
  });
});
