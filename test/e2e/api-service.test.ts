// What the service writes down of its calls, what it says of itself to anyone, and what the roles `api` and
// `worker` do and leave undone.
import { describe, expect, it } from "vitest";
import {
  ADVANCE,
  apiProject,
  DELIVERIES,
  DISABLE,
  FRESHNESS,
  LIST,
  NOTIFICATIONS,
  once,
  REGISTER,
} from "../support/api-project.ts";
import { type Environment, serve } from "../support/cli.ts";
import { exchange, refusal } from "../support/exchange.ts";
import { testNamespace } from "../support/namespaces.ts";
import { testAuthority, testReceiver } from "../support/receivers.ts";
import { until } from "../support/until.ts";

/** The file's service, in the role `api`, and what a worker on the same namespace needs. */
const service = once(async () => {
  const test = await testNamespace();
  const { caFile } = await testAuthority();
  const environment: Environment = {
    DATABASE_URL: test.url,
    TAISCE_NAMESPACE: test.namespace.name,
    TAISCE_NOTIFY_DESTINATIONS: "localhost",
    TAISCE_NOTIFY_PERMIT_PRIVATE: "true",
    TAISCE_NOTIFY_CA_FILE: caFile,
  };
  const { url } = await serve({ ...environment, TAISCE_ROLE: "api" });
  return { test, url, environment, receiver: await testReceiver() };
});

const DESTINATION = "https://localhost:1/path-of-the-client?query-of-the-client";

describe("the audit", () => {
  it("has one entry for each call: what, who, how it ended, how many rows, and which endpoint", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    const { client, reader } = project;
    const { id, secret } = (await client.post(REGISTER, { url: DESTINATION })).body;
    const table = `${test.namespace.sql}.notification_delivery`;
    await test.db.query(
      `INSERT INTO ${table} (delivery_id, scope, endpoint_id, formed_through, stored_through)
       SELECT gen_random_uuid(), $1, $2, n, n FROM generate_series(1, 3) n`,
      [project.scope, id],
    );
    await client.post(REGISTER, { url: DESTINATION });
    await client.post(REGISTER, { url: "https://elsewhere.test/" });
    await client.post(REGISTER, { nonsense: secret });
    await reader.post(REGISTER, { url: DESTINATION });
    await reader.post(LIST);
    await reader.post(DELIVERIES, { limit: 2 });
    await client.post(DELIVERIES, { endpoint_id: id, state: "delivered" });
    await client.post(DELIVERIES, { endpoint_id: project.credentialId });
    await client.post(DISABLE, { id });
    await client.post(DISABLE, { id });
    await client.post(DISABLE, { id: "nonsense" });
    // Not under /v1/notifications: only its refusal for a read-only credential is written down.
    await client.post(ADVANCE, { formed_through: 1 });
    await client.post(ADVANCE, { nonsense: 1 });
    await reader.post(ADVANCE, { formed_through: 1 });
    await reader.get(FRESHNESS);
    await project.revokeReader();
    await reader.get(FRESHNESS);

    const [writer, readonly] = [project.credentialId, project.readCredentialId];
    const expected: [string, string, string, number, string | null][] = [
      ["notification.register", "allowed", writer, 1, id],
      ["notification.register", "refused", writer, 0, null],
      ["notification.register", "refused", writer, 0, null],
      ["notification.register", "refused", writer, 0, null],
      ["notification.register", "refused", readonly, 0, null],
      ["notification.list", "allowed", readonly, 1, null],
      ["notification.deliveries", "allowed", readonly, 2, null],
      ["notification.deliveries", "allowed", writer, 0, id],
      ["notification.deliveries", "refused", writer, 0, null],
      ["notification.disable", "allowed", writer, 4, id],
      ["notification.disable", "allowed", writer, 1, id],
      ["notification.disable", "refused", writer, 0, null],
      ["formation.advance", "refused", readonly, 0, null],
      ["authenticate", "refused", readonly, 0, null],
    ];
    const entries = await project.audit();
    expect(
      entries.map((one) => [one.operation, one.outcome, one.principal, one.magnitude, one.endpoint_id]),
    ).toEqual(expected);

    const [whole] = await test.db.query<{ text: string }>(
      `SELECT string_agg(to_jsonb(a)::text, ' ') AS text FROM ${test.namespace.sql}.audit_entry a WHERE project = $1`,
      [project.scope],
    );
    expect(whole?.text).not.toMatch(
      /tsk_|[0-9a-f]{64}|https?:|path-of|query-of|\/v1|localhost|elsewhere|nonsense/,
    );
  });

  it("cannot be changed or emptied, by the service's own role either", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    await project.client.post(LIST);
    const table = `${test.namespace.sql}.audit_entry`;
    for (const statement of [
      `UPDATE ${table} SET outcome = 'refused'`,
      `DELETE FROM ${table}`,
      `TRUNCATE ${table}`,
    ]) {
      await expect(test.db.query(statement), statement).rejects.toThrow(/append-only/);
    }
    expect(await project.audit()).toMatchObject([{ operation: "notification.list", outcome: "allowed" }]);
  });
});

describe("health, readiness and metrics", () => {
  it("need no credential and show nothing of the inside", async () => {
    const { url } = await service();
    const health = await exchange(url, "GET", "/health");
    expect([health.status, health.text]).toEqual([200, '{"status":"ok"}']);
    const ready = await exchange(url, "GET", "/ready");
    expect([ready.status, JSON.parse(ready.text)]).toEqual([
      200,
      { ready: true, database: "up", listener: "off" },
    ]);
    const metrics = await exchange(url, "GET", "/metrics");
    expect(metrics.status).toBe(200);
    expect(metrics.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
    expect(metrics.text).toMatch(/^taisce_notify_http_requests_total\{status="200"\} [1-9]/m);
    expect(metrics.text).not.toMatch(/localhost|127\.0\.0\.1|tsk_|https:/);
  });
});

describe("the roles", () => {
  it("api takes calls and sends nothing; worker sends, and answers for its health only", async () => {
    const { test, url, environment, receiver } = await service();
    const project = await apiProject(test, url);
    const { client } = project;
    const { id } = (await client.post(REGISTER, { url: receiver.url("/role") })).body;

    // What was being owed while the endpoint was disabled, and would be of the past when it comes back.
    await client.post(DISABLE, { id });
    await client.post(ADVANCE, { formed_through: 1 });
    await test.db.query(
      `INSERT INTO ${test.namespace.sql}.notification_delivery
         (delivery_id, scope, endpoint_id, formed_through, stored_through)
       VALUES (gen_random_uuid(), $1, $2, 1, 1)`,
      [project.scope, id],
    );
    expect((await client.post(REGISTER, { url: receiver.url("/role") })).body.id).toBe(id);

    expect((await client.post(ADVANCE, { formed_through: 4 })).body).toMatchObject({ formed: 4 });
    expect((await client.post(DELIVERIES)).body.deliveries).toHaveLength(1);
    expect(receiver.received).toEqual([]);

    const worker = await serve({ ...environment, TAISCE_ROLE: "worker" });
    // The worker ends it unsent, and sends what is of the present.
    const told = await receiver.next();
    expect(JSON.parse(told.rawBody.toString())).toMatchObject({ scope: project.scope, formed_through: 4 });
    await until("the listener", async () => {
      return JSON.parse((await exchange(worker.url, "GET", "/ready")).text).listener === "up";
    });
    for (const path of ["/health", "/ready", "/metrics"]) {
      expect((await exchange(worker.url, "GET", path)).status, path).toBe(200);
      refusal(await exchange(worker.url, "POST", path), [405, "method_not_allowed"], path);
    }
    for (const [method, paths] of [
      ["GET", [FRESHNESS, "/openapi.json", "/"]],
      ["POST", [...NOTIFICATIONS, ADVANCE]],
    ] as const) {
      for (const path of paths) {
        const answer = await exchange(worker.url, method, path, { token: project.token });
        refusal(answer, [404, "not_found"], path);
      }
    }
    expect(await worker.kill("SIGTERM")).toBe(0);
    expect((await client.post(DELIVERIES)).body.deliveries).toMatchObject([
      { formed_through: 4, state: "delivered" },
      { formed_through: 1, state: "superseded", attempts: 0 },
    ]);
    expect(receiver.received).toHaveLength(1);
  });
});
