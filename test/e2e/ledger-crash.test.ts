// A process that dies while it delivers: killed before the claim, after it, after the request left and after
// the answer came. Each time the ledger says what happened, and nothing is sent twice without being asked for.
import { createServer, type Server, type Socket } from "node:net";
import pg from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { api } from "../support/api.ts";
import { REGISTER, RELEASE, ROWS, SETTLE } from "../support/api-project.ts";
import { type ServeProcess, serve } from "../support/cli.ts";
import { gate, type LedgerBench, ledgerBench } from "../support/ledger.ts";
import { testNamespace } from "../support/namespaces.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";

/** A bench whose receiver answers when it is let. */
async function crashBench() {
  const held = gate();
  const bench = await ledgerBench({ answer: () => held.wait.then(() => 200 as const) });
  onTestFinished(() => held.open());
  return { ...bench, answer: held.open };
}

/** A session of the test's own, for locks that hold the service where it is. */
async function session({ test }: LedgerBench) {
  const client = new pg.Client({ connectionString: test.url });
  await client.connect();
  onTestFinished(() => client.end());
  const claims = `${test.namespace.sql}.delivery_claim`;
  return {
    lock: (how: string) => client.query(`BEGIN; ${how.replace("CLAIMS", claims)}`),
    unlock: () => client.query("ROLLBACK"),
    /** The backend that waits for a lock to run a statement of the ledger's; a transaction sees no others come. */
    waiting: () =>
      until("a statement to wait for the lock", async () => {
        const [found] = await test.db.query<{ pid: number }>(
          `SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1`,
          [`%${test.namespace.name}%delivery_claim%`],
        );
        return found?.pid;
      }),
    end: (pid: number) => client.query("SELECT pg_terminate_backend($1)", [pid]),
  };
}

const claims = ({ test }: LedgerBench) =>
  test.db.query<{ id: string }>(`SELECT id FROM ${test.namespace.sql}.delivery_claim`);

/** Lets the time pass that a claim keeps others off. */
const expire = ({ test }: LedgerBench) =>
  test.db.query(`UPDATE ${test.namespace.sql}.delivery_claim SET expires_at = now()`);

/** The caller of a process that is killed never hears of it. */
const abandoned = (call: Promise<unknown>) => void call.catch(() => {});

/** Another process, as an orchestrator starts one; calls go to it. */
async function another(bench: LedgerBench, environment = bench.environment) {
  const service: ServeProcess = await serve(environment);
  const client = api(service.url, bench.project.token);
  const rows = async (filter: object = {}) => (await client.post(ROWS, filter)).body.deliveries;
  const deliver = async (scope: string, more: object = {}) =>
    (await bench.deliver(scope, "k", more, service.url)).body;
  return { service, client, rows, deliver };
}

/** It is held in every later run, until the operator has looked. */
async function expectHeld(bench: LedgerBench, id: string, sends: number, path: string) {
  const { deliver, rows, client, service } = await another(bench);
  const [row] = await rows({ status: "unconfirmed" });
  expect(row).toMatchObject({ scope: id, idempotency: "k", status: "unconfirmed", run_id: "run-1" });
  for (const run of ["run-2", "run-3"]) {
    expect(await deliver(id, { run_id: run })).toEqual({ outcome: "held", delivery: row });
  }
  expect(bench.sends(path)).toBe(sends);
  return { row, deliver, client, service, rows };
}

describe("a process killed while it delivers", () => {
  it("before the claim has sent nothing, and the next call sends", async () => {
    const bench = await crashBench();
    bench.answer();
    const { id } = await bench.endpoint("/before");
    const { lock, unlock, waiting } = await session(bench);
    await lock("LOCK TABLE CLAIMS IN SHARE MODE");
    abandoned(bench.deliver(id, "k"));
    await waiting();
    await bench.service.kill("SIGKILL");
    await unlock();
    const { deliver, rows } = await another(bench);
    expect(await rows()).toEqual([]);
    expect(await deliver(id)).toMatchObject({ outcome: "accepted" });
    expect(bench.sends("/before")).toBe(1);
  });

  it("after the claim has perhaps sent: it is held, and released it is sent once", async () => {
    const bench = await crashBench();
    bench.answer();
    const hole = await blackHole();
    const { body } = await bench.project.client.post(REGISTER, {
      url: bench.receiver.url("/claimed").replace(/:\d+/, `:${hole.port}`),
    });
    abandoned(bench.deliver(body.id, "k"));
    await until("the claim", async () => (await claims(bench)).length === 1 && hole.reached());
    await bench.service.kill("SIGKILL");
    // A caller elsewhere waits for the claim, which outlives its process by a lease, and learns that it is held.
    const other = await another(bench, { ...bench.environment, TAISCE_NOTIFY_TIMEOUT: "6s" });
    const held = other.deliver(body.id, { run_id: "run-2" });
    expect(await held).toMatchObject({
      outcome: "held",
      delivery: { run_id: "run-1", status: "unconfirmed" },
    });
    const { row, client, deliver } = await expectHeld(bench, body.id, 0, "/claimed");
    const released = await client.post(RELEASE, { id: row.id });
    expect(released.body).toEqual({ released: true, delivery: row });
    expect((await client.post(RELEASE, { id: row.id })).status).toBe(404);
    await hole.close();
    expect(await deliver(body.id)).toMatchObject({ outcome: "failed", category: "connection refused" });
  });

  it("after the request left has sent: it is held, and settled it is never sent again", async () => {
    const bench = await crashBench();
    const { id } = await bench.endpoint("/left");
    abandoned(bench.deliver(id, "k"));
    await bench.receiver.next();
    await bench.service.kill("SIGKILL");
    await expire(bench);
    const { row, client, deliver, rows } = await expectHeld(bench, id, 1, "/left");
    const settled = await client.post(SETTLE, { id: row.id });
    expect(settled.body).toEqual({ delivery: { ...row, status: "settled" } });
    expect((await client.post(SETTLE, { id: row.id })).body).toEqual(settled.body);
    expect((await client.post(RELEASE, { id: row.id })).body.error.code).toBe("invalid_body");
    expect(await deliver(id)).toEqual({ outcome: "already_delivered", delivery: settled.body.delivery });
    expect(await rows({ status: "unconfirmed" })).toEqual([]);
    expect(bench.sends("/left")).toBe(1);
  });

  it("after the answer came, unrecorded, is held; released, the target gets it twice", async () => {
    const bench = await crashBench();
    const { id } = await bench.endpoint("/answered");
    abandoned(bench.deliver(id, "k"));
    await bench.receiver.next();
    const { lock, unlock, waiting, end } = await session(bench);
    await lock("SELECT FROM CLAIMS FOR UPDATE");
    bench.answer();
    const backend = await waiting();
    await bench.service.kill("SIGKILL");
    await end(backend);
    await unlock();
    await expire(bench);
    const { row, client, deliver } = await expectHeld(bench, id, 1, "/answered");
    await client.post(RELEASE, { id: row.id });
    const again = await deliver(id, { run_id: "run-4" });
    expect(again).toMatchObject({ outcome: "accepted", delivery: { run_id: "run-4" } });
    expect(again.delivery.id).not.toBe(row.id);
    expect(bench.sends("/answered")).toBe(2);
  });

  it("after the answer came, with its outcome on the way, has delivered", async () => {
    const bench = await crashBench();
    const { id } = await bench.endpoint("/recorded");
    abandoned(bench.deliver(id, "k"));
    await bench.receiver.next();
    const { lock, unlock, waiting } = await session(bench);
    await lock("SELECT FROM CLAIMS FOR UPDATE");
    bench.answer();
    await waiting();
    await bench.service.kill("SIGKILL");
    await unlock();
    await until("the outcome", async () => (await claims(bench)).length === 0);
    const { deliver } = await another(bench);
    expect(await deliver(id)).toMatchObject({
      outcome: "already_delivered",
      delivery: { status: "accepted" },
    });
    expect(bench.sends("/recorded")).toBe(1);
  });

  it("is followed by a send of what may be repeated, by whoever finds it and under the same id", async () => {
    const bench = await crashBench();
    const { id } = await bench.endpoint("/native", { idempotency: "native" });
    abandoned(bench.deliver(id, "k", { variables: { n: 1 } }));
    const first = await bench.receiver.next();
    const { rows } = await another(bench);
    await bench.service.kill("SIGKILL");
    bench.answer();
    await expire(bench);
    const second = await bench.receiver.next();
    expect(second.headers["webhook-id"]).toBe(first.headers["webhook-id"]);
    expect(second.rawBody).toEqual(first.rawBody);
    const [row] = await until("the row", async () => {
      const found = await rows({ scope: id });
      return found.length > 0 ? found : undefined;
    });
    expect(row).toMatchObject({ id: first.headers["webhook-id"], status: "accepted", run_id: "run-1" });
  });

  it("is held where nobody asks: whoever runs finds it", async () => {
    const bench = await crashBench();
    const { id } = await bench.endpoint("/alone");
    await another(bench, { ...bench.environment, TAISCE_ROLE: "worker" });
    abandoned(bench.deliver(id, "k"));
    await bench.receiver.next();
    await bench.service.kill("SIGKILL");
    await expire(bench);
    await until("the row", async () => {
      const table = `${bench.test.namespace.sql}.deliveries`;
      const [row] = await bench.test.db.query<{ status: string }>(`SELECT status FROM ${table}`);
      return row?.status === "unconfirmed";
    });
  });

  it("and stopped cleanly holds what it had to cut off", async () => {
    const bench = await crashBench();
    const { id } = await bench.endpoint("/stopped");
    const call = bench.deliver(id, "k");
    abandoned(call);
    await bench.receiver.next();
    expect(await bench.service.kill("SIGTERM")).toBe(0);
    await expire(bench);
    const { deliver } = await another(bench);
    expect(await deliver(id)).toMatchObject({ outcome: "held" });
    expect(bench.sends("/stopped")).toBe(1);
  });
});

describe("a database that goes away while a delivery is under way", () => {
  it("is told the outcome once it is back, and the caller too", async () => {
    const test = await testNamespace();
    const proxy = await tcpProxy(test.url);
    onTestFinished(() => proxy.close());
    const held = gate();
    const bench = await ledgerBench({
      answer: () => held.wait.then(() => 200 as const),
      environment: { DATABASE_URL: proxy.url, TAISCE_NAMESPACE: test.namespace.name },
      test,
    });
    const { id } = await bench.endpoint("/outage");
    const call = bench.deliver(id, "k");
    await bench.receiver.next();
    await proxy.refuse();
    held.open();
    await until("a refused statement", () => bench.service.log().includes("idle database connection"));
    await proxy.heal();
    expect((await call).body).toMatchObject({ outcome: "accepted", delivery: { status: "accepted" } });
    expect(bench.sends("/outage")).toBe(1);
  });
});

/** A port that takes connections and says nothing: no request leaves before its TLS handshake. */
async function blackHole() {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => sockets.add(socket));
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const close = () => {
    for (const socket of sockets) socket.destroy();
    return new Promise<void>((closed) => server.close(() => closed()));
  };
  onTestFinished(async () => {
    if (server.listening) await close();
  });
  const { port } = server.address() as { port: number };
  return { port, reached: () => sockets.size > 0, close };
}
