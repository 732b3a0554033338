// Handoffs across processes: what readers cost, and what becomes of them where processes stop, die or are deaf.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import { Formation } from "../../src/formation/formation.ts";
import { api } from "../support/api.ts";
import { ADVANCE, type ApiProject, apiProject, FRESHNESS, REGISTER, TAKE } from "../support/api-project.ts";
import { type Environment, serve } from "../support/cli.ts";
import { exchange } from "../support/exchange.ts";
import { type TestNamespace, testNamespace } from "../support/namespaces.ts";
import { rawConnection } from "../support/raw-http.ts";
import { testAuthority, testReceiver } from "../support/receivers.ts";
import { session } from "../support/roles.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";

const start = (test: TestNamespace, role: string, more: Environment = {}) =>
  serve({
    DATABASE_URL: test.url,
    TAISCE_NAMESPACE: test.namespace.name,
    TAISCE_ROLE: role,
    TAISCE_NOTIFY_DESTINATIONS: "group:*",
    ...more,
  });

const listening = (url: string) =>
  until("the listener", async () => {
    return JSON.parse((await exchange(url, "GET", "/ready")).text).listener === "up";
  });

const deliver = ({ client }: ApiProject, idempotency: string, variables = {}) =>
  client.post("/v1/deliveries/deliver", {
    target: "group:jobs",
    idempotency,
    identity_id: "someone",
    run_id: "run",
    variables,
  });

type Taken = { handoffs: { idempotency: string; variables?: unknown }[]; next: string };

async function take({ reader }: ApiProject, body: object = {}): Promise<Taken> {
  const answer = await reader.post(TAKE, { group: "jobs", ...body });
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body;
}

/** The same project, by way of another process. */
const as = (project: ApiProject, url: string): ApiProject => ({
  ...project,
  client: api(url, project.token),
  reader: api(url, project.readToken),
});

/** What a wake takes at most; the look that comes once a second would take half a second. */
const SOON_MS = 250;

/** How long ten readers wait for what is delivered: the median of some rounds. */
async function medianWait(from: ApiProject, to: ApiProject, rounds = 7): Promise<number> {
  const took: number[] = [];
  for (let n = 0; n < rounds; n++) {
    const { next } = await lastOf(to);
    const readers = Array.from({ length: 10 }, () => take(to, { after: next, wait: "60s" }));
    await sleep(100);
    const started = performance.now();
    await deliver(from, randomUUID());
    for (const { handoffs } of await Promise.all(readers)) expect(handoffs).toHaveLength(1);
    took.push(performance.now() - started);
  }
  return took.toSorted((a, b) => a - b)[Math.floor(rounds / 2)] ?? 0;
}

/** The last page of what was handed over. */
async function lastOf(project: ApiProject): Promise<Taken> {
  let page = await take(project);
  for (let { next } = page; page.handoffs.length > 0; { next } = page)
    page = await take(project, { after: next });
  return page;
}

/** `count` readers that wait for a minute, once they do. */
async function waitingReaders(project: ApiProject, count: number): Promise<Promise<Taken>[]> {
  const { next } = await take(project);
  const readers = Array.from({ length: count }, () => take(project, { after: next, wait: "60s" }));
  await sleep(300);
  return readers;
}

describe("waiting readers", () => {
  it("cost one session, ten as one, and no connection of the pool", async () => {
    const test = await testNamespace();
    const proxy = await tcpProxy(test.url);
    onTestFinished(() => proxy.close());
    const { url } = await start(test, "api", { DATABASE_URL: proxy.url, TAISCE_POOL: "1" });
    const project = await apiProject(test, url);
    await take(project);
    const { accepted } = proxy;
    const readers = await waitingReaders(project, 10);
    for (let n = 0; n < 5; n++) expect((await project.reader.get(FRESHNESS)).status).toBe(200);
    expect(proxy.accepted).toBe(accepted);
    expect((await deliver(project, "a", { some: 9 })).body.outcome).toBe("accepted");
    for (const { handoffs } of await Promise.all(readers)) {
      expect(handoffs).toMatchObject([{ idempotency: "a", variables: { some: 9 } }]);
    }
    expect(await medianWait(project, project)).toBeLessThan(SOON_MS);
    expect(proxy.accepted).toBe(accepted);
  });

  it("are woken by whatever process handed over, and find within seconds what they were not told", async () => {
    const test = await testNamespace();
    const [one, two, deaf] = await Promise.all([
      start(test, "api"),
      start(test, "api"),
      start(test, "api", { TAISCE_NOTIFY_LISTEN: "off" }),
    ]);
    const project = await apiProject(test, one.url);
    expect(await medianWait(project, as(project, two.url))).toBeLessThan(SOON_MS);
    // From and to who has neither LISTEN nor NOTIFY.
    for (const [from, to] of [
      [two, deaf],
      [deaf, one],
    ] as const) {
      expect(await medianWait(as(project, from.url), as(project, to.url), 1)).toBeLessThan(3_000);
    }
  });

  it("hear on, and miss nothing, when their session is terminated", async () => {
    const test = await testNamespace();
    const proxy = await tcpProxy(test.url);
    onTestFinished(() => proxy.close());
    const { url } = await start(test, "api", { TAISCE_LISTEN_DATABASE_URL: proxy.url });
    const project = await apiProject(test, url);
    const readers = await waitingReaders(project, 3);
    await proxy.refuse();
    await deliver(project, "unheard");
    for (const reader of readers) expect((await reader).handoffs).toMatchObject([{ idempotency: "unheard" }]);
    await proxy.heal();
  });

  it("are answered at once when the service stops", async () => {
    const test = await testNamespace();
    const service = await start(test, "all");
    await listening(service.url);
    const project = await apiProject(test, service.url);
    const readers = await waitingReaders(project, 5);
    const started = performance.now();
    const stopped = service.kill("SIGTERM");
    for (const { handoffs, next } of await Promise.all(readers))
      expect([handoffs, typeof next]).toEqual([[], "string"]);
    expect(performance.now() - started).toBeLessThan(1_000);
    expect(await stopped).toBe(0);
  });

  it("that went away wait no longer", async () => {
    const test = await testNamespace();
    const { url } = await start(test, "api");
    const { readToken } = await apiProject(test, url);
    const body = JSON.stringify({ group: "jobs", wait: "60s" });
    const head = `POST ${TAKE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${readToken}`;
    const connections = await Promise.all(Array.from({ length: 5 }, () => rawConnection(url)));
    for (const one of connections) one.send(`${head}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    const waiting = (count: number) =>
      until(`${count} readers`, async () => {
        const { text } = await exchange(url, "GET", "/metrics");
        return text.includes(`\ntaisce_notify_readers_waiting ${count}\n`);
      });
    await waiting(5);
    for (const one of connections.slice(0, 3)) one.close();
    await waiting(2);
    for (const one of connections) one.close();
    await waiting(0);
  });
});

describe("formation", () => {
  it("waits for a worker where there are API processes alone", async () => {
    const test = await testNamespace();
    const { url } = await start(test, "api");
    const project = await apiProject(test, url);
    expect((await project.client.post(REGISTER, { url: "group:jobs" })).status).toBe(200);
    await project.client.post(ADVANCE, { formed_through: 3 });
    expect((await take(project, { wait: "500ms" })).handoffs).toEqual([]);
    const reader = take(project, { wait: "30s" });
    await start(test, "worker");
    expect((await reader).handoffs).toMatchObject([{ idempotency: "3" }]);
  });

  it("is handed over once and in order through killed workers, to a reader that keeps its cursor", async () => {
    const test = await testNamespace();
    const { url } = await start(test, "api");
    const project = await apiProject(test, url);
    await project.client.post(REGISTER, { url: "group:jobs" });
    const formation = new Formation(test.db, test.namespace);
    const LAST = 300;
    let formed = -1;
    const form = async () => {
      while (formed < LAST) {
        await formation.advance(project.scope, { formedThrough: BigInt(++formed) });
        await sleep(10);
      }
    };
    const crash = async () => {
      while (formed < LAST) {
        const worker = await start(test, "worker", { TAISCE_NOTIFY_RECONCILE: "300ms" });
        await sleep(500);
        await worker.kill("SIGKILL");
      }
      await start(test, "worker");
    };
    const read = async () => {
      const taken: number[] = [];
      let after: string | undefined;
      while (taken.at(-1) !== LAST) {
        const { handoffs, next } = await take(project, { limit: 7, wait: "20s", ...(after && { after }) });
        taken.push(...handoffs.map(({ idempotency }) => Number(idempotency)));
        after = next;
      }
      return taken;
    };
    const [taken] = await Promise.all([read(), form(), crash()]);
    expect(taken).toEqual([...new Set(taken)].sort((a, b) => a - b));
    const [row] = await test.db.query<{ ledger: bigint; delivered: bigint }>(
      `SELECT (SELECT count(*) FROM ${test.namespace.sql}.deliveries) AS ledger,
              (SELECT count(*) FROM ${test.namespace.sql}.notification_delivery WHERE delivered_at IS NOT NULL)
                AS delivered`,
    );
    expect(row).toEqual({ ledger: BigInt(taken.length), delivered: BigInt(taken.length) });
  });

  it("reaches HTTPS endpoints while somebody holds up a group, and the group afterwards", async () => {
    const test = await testNamespace();
    const receiver = await testReceiver();
    const { caFile } = await testAuthority();
    const { url } = await start(test, "all", {
      TAISCE_NOTIFY_DESTINATIONS: "group:jobs,localhost",
      TAISCE_NOTIFY_PERMIT_PRIVATE: "true",
      TAISCE_NOTIFY_CA_FILE: caFile,
    });
    await listening(url);
    const project = await apiProject(test, url);
    for (const one of ["group:jobs", receiver.url("/web")]) await project.client.post(REGISTER, { url: one });
    await project.client.post(ADVANCE, { formed_through: 0 });
    const { next } = await take(project, { wait: "10s" });
    await receiver.next();
    const holder = await session();
    await holder.query("BEGIN");
    await holder.query(`SELECT FROM ${test.namespace.sql}.handoff_group FOR UPDATE`);
    for (let n = 1; n <= 5; n++) {
      const started = performance.now();
      await project.client.post(ADVANCE, { formed_through: n });
      expect(JSON.parse((await receiver.next()).rawBody.toString())).toMatchObject({ formed_through: n });
      expect(performance.now() - started).toBeLessThan(1_000);
    }
    expect((await take(project, { after: next })).handoffs).toEqual([]);
    await holder.query("COMMIT");
    await until("the group", async () => (await take(project, { after: next })).handoffs.length === 5);
  });

  it("reaches its groups without signals too", async () => {
    const test = await testNamespace();
    const { url } = await start(test, "all", { TAISCE_NOTIFY_LISTEN: "off" });
    const project = await apiProject(test, url);
    await project.client.post(REGISTER, { url: "group:jobs" });
    await project.client.post(ADVANCE, { formed_through: 3 });
    expect((await take(project, { wait: "10s" })).handoffs).toMatchObject([{ idempotency: "3" }]);
  });
});
