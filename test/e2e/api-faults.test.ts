// rate_limited, no_database_capacity and internal: callers that ask too much, a database that is cut off,
// held up or damaged under a running service, and what the service answers meanwhile and afterwards.
import pg from "pg";
import { describe, expect, it } from "vitest";
import { newToken } from "../../src/credentials/token.ts";
import {
  ADVANCE,
  type ApiProject,
  apiProject,
  DELIVERIES,
  DISABLE,
  FRESHNESS,
  LIST,
  once,
  PUBLIC,
  REGISTER,
  UNKNOWN_ID,
} from "../support/api-project.ts";
import { serve } from "../support/cli.ts";
import { type Exchange, exchange, refusal } from "../support/exchange.ts";
import { type TestNamespace, testNamespace } from "../support/namespaces.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";

/** The file's one service: one connection in its pool, by way of a proxy, and one request a second. */
const service = once(async () => {
  const test = await testNamespace();
  const proxy = await tcpProxy(test.url);
  const one = await serve({
    DATABASE_URL: proxy.url,
    TAISCE_NAMESPACE: test.namespace.name,
    TAISCE_ROLE: "api",
    TAISCE_NOTIFY_DESTINATIONS: "93.184.216.34",
    TAISCE_POOL: "1",
    TAISCE_RATE_LIMIT: "1",
  });
  return { test, proxy, ...one };
});

/** A body that each route would do something with. */
const CALLS: [string, string, object | undefined][] = [
  ["GET", FRESHNESS, undefined],
  ["POST", ADVANCE, { formed_through: 1 }],
  ["POST", REGISTER, { url: `${PUBLIC}/` }],
  ["POST", LIST, {}],
  ["POST", DISABLE, { id: UNKNOWN_ID }],
  ["POST", DELIVERIES, { limit: 1 }],
];

/** Each call by a project of its own, since a credential may make two at once. */
async function everyCall(url: string, projects: ApiProject[]): Promise<Exchange[]> {
  return Promise.all(
    CALLS.map(([method, path, body], n) => {
      const token = projects[n]?.token ?? "";
      return exchange(url, method, path, {
        token,
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
    }),
  );
}

function expectNoCapacity(answer: Exchange, what: string): void {
  refusal(answer, [503, "no_database_capacity"], what);
  expect(answer.headers.get("retry-after"), what).toBe("1");
}

const projectsFor = (test: TestNamespace, url: string) => Promise.all(CALLS.map(() => apiProject(test, url)));

/** A session in a transaction of its own; what it holds is let go at the latest when it is disposed of. */
async function otherSession(test: TestNamespace) {
  const client = new pg.Client({ connectionString: test.url });
  await client.connect();
  // Of two sessions in a deadlock the one that looks first gives way: let it be the other one.
  await client.query("SET deadlock_timeout = '20s'");
  await client.query("BEGIN");
  return {
    lock: (table: string, column: string, value: unknown) =>
      client.query(`SELECT FROM ${test.namespace.sql}.${table} WHERE ${column} = $1 FOR UPDATE`, [value]),
    commit: () => client.query("COMMIT"),
    [Symbol.asyncDispose]: () => client.end(),
  };
}

const someStatementWaits = (test: TestNamespace, part: string) =>
  until(`a statement with ${part} to wait for a lock`, async () => {
    const rows = await test.db.query(
      `SELECT FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0 AND query LIKE $1`,
      [`%${test.namespace.name}%${part}%`],
    );
    return rows.length > 0;
  });

describe("rate_limited", () => {
  it("holds one credential to its rate, and tells it when to come back", async () => {
    const { test, url } = await service();
    const [busy, other] = [await apiProject(test, url), await apiProject(test, url)];
    const ask = () => exchange(url, "GET", FRESHNESS, { token: busy.token });
    const answers = await Promise.all(Array.from({ length: 10 }, ask));
    const limited = answers.filter(({ status }) => status !== 200);
    expect(limited.length).toBeGreaterThanOrEqual(6);
    for (const answer of limited) {
      refusal(answer, [429, "rate_limited"]);
      expect(answer.headers.get("retry-after")).toBe("1");
    }
    expect((await other.client.get(FRESHNESS)).status).toBe(200);
    await until("the credential's next turn", async () => (await ask()).status === 200, 5_000);
  });

  it("holds refused tokens of one address to theirs, and lets live ones through", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => exchange(url, "GET", FRESHNESS, { token: newToken() })),
    );
    const limited = answers.filter(({ status }) => status === 429);
    expect(limited.length).toBeGreaterThanOrEqual(8);
    for (const answer of limited) {
      refusal(answer, [429, "rate_limited"]);
      expect(Number(answer.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    }
    const [audited] = await test.db.query<{ count: bigint }>(
      `SELECT count(*) FROM ${test.namespace.sql}.audit_entry WHERE operation = 'authenticate'`,
    );
    expect(Number(audited?.count)).toBe(answers.length - limited.length);
    expect((await project.client.get(FRESHNESS)).status).toBe(200);
  });
});

describe("no_database_capacity", () => {
  it("is answered at once while the database refuses, and the service is well again after it", async () => {
    const { test, url, proxy } = await service();
    const projects = await projectsFor(test, url);
    await proxy.refuse();
    for (const answer of await everyCall(url, projects)) expectNoCapacity(answer, answer.text);
    const ready = await exchange(url, "GET", "/ready");
    expect([ready.status, JSON.parse(ready.text)]).toEqual([
      503,
      { ready: false, database: "down", listener: "off" },
    ]);
    expect((await exchange(url, "GET", "/health")).status).toBe(200);
    await proxy.heal();
    await until("the database", async () => (await exchange(url, "GET", "/ready")).status === 200);
    const again = await everyCall(url, await projectsFor(test, url));
    expect(again.map(({ status }) => status)).toEqual([200, 200, 200, 200, 404, 200]);
  });

  it("is answered after a short wait while the database is a black hole", async () => {
    const { test, url, proxy } = await service();
    const projects = await projectsFor(test, url);
    await proxy.refuse();
    await proxy.heal();
    proxy.blackHole();
    const begun = performance.now();
    for (const answer of await everyCall(url, projects)) expectNoCapacity(answer, answer.text);
    expect(performance.now() - begun).toBeLessThan(5_000);
    proxy.cut();
    await until("the database", async () => (await exchange(url, "GET", "/ready")).status === 200);
  });

  it("is answered where one request holds the only connection and waits for a lock", async () => {
    const { test, url } = await service();
    const [holder, ...projects] = await Promise.all([
      apiProject(test, url),
      ...CALLS.map(() => apiProject(test, url)),
    ]);
    await using session = await otherSession(test);
    await session.lock("project", "scope", holder.scope);
    const waiting = exchange(url, "POST", REGISTER, {
      token: holder.token,
      body: JSON.stringify({ url: `${PUBLIC}/` }),
    });
    await someStatementWaits(test, "FOR NO KEY UPDATE");
    for (const answer of await everyCall(url, projects)) expectNoCapacity(answer, answer.text);
    await session.commit();
    expect((await waiting).status).toBe(200);
    expect(await holder.audit()).toMatchObject([{ operation: "notification.register", outcome: "allowed" }]);
  });
});

describe("a conflict", () => {
  it("that PostgreSQL resolved against a request is not the client's to see", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    const [id] = await project.registerMany(1, () => `${PUBLIC}/`);
    const delivery = `${test.namespace.sql}.notification_delivery`;
    await test.db.query(
      `INSERT INTO ${delivery} (delivery_id, scope, endpoint_id, formed_through, stored_through)
       VALUES (gen_random_uuid(), $1, $2, 1, 1)`,
      [project.scope, id],
    );
    // The other session takes the delivery first and the endpoint then; disabling goes the other way.
    await using session = await otherSession(test);
    await session.lock("notification_delivery", "endpoint_id", id);
    const disabling = exchange(url, "POST", DISABLE, { token: project.token, body: JSON.stringify({ id }) });
    await someStatementWaits(test, "superseded_at = now()");
    await session.lock("notification_endpoint", "endpoint_id", id);
    await session.commit();
    expect(await disabling).toMatchObject({ status: 200, text: '{"disabled":true}' });
    expect((await project.audit()).at(-1)).toMatchObject({ operation: "notification.disable", magnitude: 2 });
  });
});

describe("internal", () => {
  it("names an id that the log carries, and nothing else of what happened", async () => {
    const { test, url, log } = await service();
    const project = await apiProject(test, url);
    const table = `${test.namespace.sql}.notification_delivery`;
    await test.db.query(`ALTER TABLE ${table} RENAME TO taken_away`);
    const answer = await exchange(url, "POST", DELIVERIES, { token: project.token });
    await test.db.query(`ALTER TABLE ${test.namespace.sql}.taken_away RENAME TO notification_delivery`);
    const id = /[0-9a-f-]{36}/.exec(refusal(answer, [500, "internal"]))?.[0] ?? "no id";
    const line = await until("the log's line", () =>
      log()
        .split("\n")
        .find((line) => line.includes(id)),
    );
    expect(JSON.parse(line)).toMatchObject({ level: "error", id, err: { code: "42P01" } });
    expect(await project.audit()).toMatchObject([
      { operation: "notification.deliveries", outcome: "refused" },
    ]);
    expect((await project.client.post(DELIVERIES)).status).toBe(200);
  });

  it("is the answer to what cannot be audited, whose rows stay here", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    await project.registerMany(1, () => `${PUBLIC}/`);
    await test.db.query(`ALTER TABLE ${test.namespace.sql}.audit_entry RENAME TO taken_away`);
    const answers = await Promise.all([
      exchange(url, "POST", LIST, { token: project.token }),
      exchange(url, "POST", REGISTER, { token: project.token, body: JSON.stringify({ url: `${PUBLIC}/2` }) }),
    ]);
    await test.db.query(`ALTER TABLE ${test.namespace.sql}.taken_away RENAME TO audit_entry`);
    for (const answer of answers) refusal(answer, [500, "internal"]);
    const { endpoints } = await until("the credential's next turn", async () => {
      const listed = await project.client.post(LIST);
      return listed.status === 200 ? listed.body : undefined;
    });
    expect(endpoints.map((endpoint: { url: string }) => endpoint.url)).toEqual([`${PUBLIC}/`]);
  });

  it("has written nothing of a token, a secret or a client's URL into the log", async () => {
    const { log } = await service();
    expect(log()).not.toMatch(/tsk_[\w-]{10}|[0-9a-f]{64}|93\.184\.216\.34\//);
  });
});
