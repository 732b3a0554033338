// The contract's error table, from outside, for who is asking and for what: a real service and a real
// PostgreSQL. Bodies are in api-input.test.ts, faults in api-faults.test.ts, broken HTTP in test/unit/api.
import { describe, expect, it } from "vitest";
import { newToken } from "../../src/credentials/token.ts";
import {
  ADVANCE,
  apiProject,
  DELIVERIES,
  DISABLE,
  FRESHNESS,
  LIST,
  NOTIFICATIONS,
  once,
  POSTS,
  PUBLIC,
  REGISTER,
  UNKNOWN_ID,
} from "../support/api-project.ts";
import { serve } from "../support/cli.ts";
import { exchange, refusal } from "../support/exchange.ts";
import { testNamespace } from "../support/namespaces.ts";
import { rawConnection } from "../support/raw-http.ts";

/** The file's two services, with destinations and without, on one namespace. */
const services = once(async () => {
  const test = await testNamespace();
  const environment = { DATABASE_URL: test.url, TAISCE_NAMESPACE: test.namespace.name };
  const [service, off] = await Promise.all([
    serve({ ...environment, TAISCE_NOTIFY_DESTINATIONS: "93.184.216.34" }),
    serve({ ...environment, TAISCE_ROLE: "api" }),
  ]);
  return { test, url: service.url, offUrl: off.url };
});

describe("unauthenticated", () => {
  it("is one answer, whatever is wrong with the token, and one audit entry each", async () => {
    const { test, url } = await services();
    const project = await apiProject(test, url);
    const suspended = await apiProject(test, url);
    await suspended.suspend();
    await project.revokeReader();
    const entries = `${test.namespace.sql}.audit_entry`;
    const [before] = await test.db.query<{ entry_id: bigint | null }>(
      `SELECT max(entry_id) AS entry_id FROM ${entries}`,
    );
    const cases: [string, string | undefined][] = [
      ["missing", undefined],
      ["empty", ""],
      ["malformed", "Bearer tsk_short"],
      ["another scheme", `Basic ${project.token}`],
      ["no scheme", project.token],
      ["unknown", `Bearer ${newToken()}`],
      ["revoked", `Bearer ${project.readToken}`],
      ["suspended", `Bearer ${suspended.token}`],
    ];
    const answers = [];
    for (const [what, authorization] of cases) {
      const options = authorization === undefined ? {} : { authorization };
      const answer = await exchange(url, "GET", FRESHNESS, options);
      refusal(answer, [401, "unauthenticated"], what);
      expect(answer.headers.get("www-authenticate"), what).toBe("Bearer");
      const headers = [...answer.headers].filter(([name]) => name !== "date");
      answers.push(JSON.stringify([headers, answer.text]));
    }
    expect(new Set(answers).size).toBe(1);
    const rows = await test.db.query<{ operation: string; outcome: string; principal: string | null }>(
      `SELECT operation, outcome, principal FROM ${entries} WHERE entry_id > $1 ORDER BY entry_id`,
      [before?.entry_id ?? 0],
    );
    const principals = [null, null, null, null, null, null, project.readCredentialId, suspended.credentialId];
    expect(rows).toEqual(
      principals.map((principal) => ({ operation: "authenticate", outcome: "refused", principal })),
    );
    await suspended.resume();
    expect((await suspended.client.get(FRESHNESS)).status).toBe(200);
  });

  it("is the answer of every route that needs a credential, before its body is read", async () => {
    const { url } = await services();
    refusal(await exchange(url, "GET", FRESHNESS), [401, "unauthenticated"]);
    for (const path of POSTS) {
      const connection = await rawConnection(url);
      connection.send(`POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{`);
      expect((await connection.answer()).status, path).toBe(401);
      connection.close();
    }
  });
});

describe("notifications_unavailable", () => {
  it("comes after authentication and before anything else, on all four routes", async () => {
    const { test, offUrl } = await services();
    const project = await apiProject(test, offUrl);
    for (const path of NOTIFICATIONS) {
      refusal(await exchange(offUrl, "POST", path), [401, "unauthenticated"], path);
      for (const token of [project.token, project.readToken]) {
        const answer = await exchange(offUrl, "POST", path, { token, body: "{ garbage" });
        refusal(answer, [501, "notifications_unavailable"], path);
      }
    }
    expect((await project.audit()).map(({ operation, outcome }) => [operation, outcome])).toEqual(
      ["register", "register", "list", "list", "disable", "disable", "deliveries", "deliveries"].map(
        (name) => [`notification.${name}`, "refused"],
      ),
    );
    expect((await project.client.post(ADVANCE, { formed_through: 3 })).body).toMatchObject({ formed: 3 });
  });
});

describe("forbidden", () => {
  it("is a write with a read-only token, told before the body is read, and audited", async () => {
    const { test, url } = await services();
    const project = await apiProject(test, url);
    for (const path of [REGISTER, DISABLE, ADVANCE]) {
      const token = project.readToken;
      refusal(await exchange(url, "POST", path, { token, body: "{ garbage" }), [403, "forbidden"], path);
      const connection = await rawConnection(url);
      connection.send(
        `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n`,
      );
      expect((await connection.answer()).status, path).toBe(403);
      connection.close();
    }
    const row = (operation: string) => ({
      operation,
      outcome: "refused",
      magnitude: 0,
      principal: project.readCredentialId,
      project: project.scope,
      endpoint_id: null,
    });
    expect(await project.audit()).toEqual(
      ["notification.register", "notification.disable", "formation.advance"].flatMap((name) => [
        row(name),
        row(name),
      ]),
    );
    for (const path of [LIST, DELIVERIES]) expect((await project.reader.post(path)).status).toBe(200);
    expect((await project.reader.get(FRESHNESS)).body).toMatchObject({ formed: null });
  });
});

describe("not_found", () => {
  it("is one answer for an id that is unknown, malformed or another project's", async () => {
    const { test, url } = await services();
    const project = await apiProject(test, url);
    const other = await apiProject(test, url);
    const [foreign] = await other.registerMany(1, () => `${PUBLIC}/theirs`);
    for (const [path, field] of [
      [DISABLE, "id"],
      [DELIVERIES, "endpoint_id"],
    ] as const) {
      const answers = new Set<string>();
      for (const id of [
        UNKNOWN_ID,
        foreign,
        "",
        "x",
        `${foreign}x`,
        `{${foreign}}`,
        "' OR 1=1 --",
        "\u0000",
      ]) {
        const body = JSON.stringify({ [field]: id });
        const answer = await exchange(url, "POST", path, { token: project.token, body });
        refusal(answer, [404, "not_found"], `${path} ${id}`);
        answers.add(answer.text);
      }
      expect(answers.size).toBe(1);
    }
    expect((await other.client.post(LIST)).body.endpoints[0]).not.toHaveProperty("disabled_at");
    for (const { endpoint_id, outcome } of await project.audit()) {
      expect([endpoint_id, outcome]).toEqual([null, "refused"]);
    }
  });

  it("is an unknown route, its spelling counting", async () => {
    const { url } = await services();
    const answers = new Set<string>();
    for (const path of [
      "/",
      "/v1",
      "/v2/freshness",
      `${FRESHNESS}/`,
      "/V1/freshness",
      "/v1//freshness",
      "/v1%2ffreshness",
      "/v1/%zz",
      "/v1/notifications",
      "/__proto__",
      `/${"a".repeat(10_000)}`,
    ]) {
      for (const method of ["GET", "POST"]) {
        const answer = await exchange(url, method, path);
        refusal(answer, [404, "not_found"], path);
        answers.add(answer.text);
      }
    }
    expect(answers.size).toBe(1);
  });
});

describe("method_not_allowed", () => {
  it("says in Allow what the route takes", async () => {
    const { test, url } = await services();
    const project = await apiProject(test, url);
    const { token } = project;
    const gets = [FRESHNESS, "/health", "/ready", "/metrics", "/openapi.json"];
    for (const [paths, allow, wrong] of [
      [POSTS, "POST", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]],
      [gets, "GET, HEAD", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]],
    ] as const) {
      for (const path of paths) {
        for (const method of wrong) {
          const answer = await exchange(url, method, path, { token });
          refusal(answer, [405, "method_not_allowed"], `${method} ${path}`);
          expect(answer.headers.get("allow"), `${method} ${path}`).toBe(allow);
        }
      }
    }
    for (const path of POSTS) {
      const answer = await exchange(url, "HEAD", path, { token });
      expect([answer.status, answer.headers.get("allow"), answer.text], path).toEqual([405, "POST", ""]);
    }
    for (const path of gets) {
      const answer = await exchange(url, "HEAD", path, { token });
      expect([answer.status, answer.text], path).toEqual([200, ""]);
    }
    expect(await project.audit()).toEqual([]);
  });
});
