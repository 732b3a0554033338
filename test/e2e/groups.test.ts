// Handoffs from outside: registered, handed over, taken at once or by waiting, and every refusal.
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import {
  ADVANCE,
  type ApiProject,
  apiProject,
  DELIVERIES,
  DISABLE,
  LIST,
  once,
  REGISTER,
  TAKE,
} from "../support/api-project.ts";
import { serve } from "../support/cli.ts";
import { exchange, refusal } from "../support/exchange.ts";
import { testNamespace } from "../support/namespaces.ts";
import { until } from "../support/until.ts";

/** The file's one service. */
const service = once(async () => {
  const test = await testNamespace();
  const { url } = await serve({
    DATABASE_URL: test.url,
    TAISCE_NAMESPACE: test.namespace.name,
    TAISCE_NOTIFY_DESTINATIONS: "group:jobs,93.184.216.34,group:a,group:other",
  });
  await until("the listener", async () => {
    return JSON.parse((await exchange(url, "GET", "/ready")).text).listener === "up";
  });
  return { test, url };
});

const advance = ({ client }: ApiProject, formed: number) => client.post(ADVANCE, { formed_through: formed });

async function register({ client }: ApiProject, url: string) {
  const answer = await client.post(REGISTER, { url });
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body as { id: string; url: string; created_at: string; secret: string };
}

/** A take that must be answered. */
async function take({ reader }: ApiProject, body: object) {
  const answer = await reader.post(TAKE, body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body as { handoffs: Record<string, unknown>[]; next: string };
}

describe("a group that is an endpoint", () => {
  it("is registered, listed as it was named, told about, and disabled", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    for (const name of ["group:jobs", "group:a"]) {
      const { id, url: named, secret, ...rest } = await register(project, name);
      expect([named, secret.length]).toEqual([name, 64]);
      expect((await project.client.post(REGISTER, { url: name })).status).toBe(409);
      const { endpoints } = (await project.reader.post(LIST)).body;
      expect(endpoints.at(-1)).toEqual({ id, url: name, ...rest });
    }
    await advance(project, 4);
    const { handoffs } = await take(project, { group: "a", wait: "10s" });
    expect(handoffs).toEqual([
      {
        id: expect.any(String),
        identity_id: project.scope,
        target: "group:a",
        scope: project.scope,
        idempotency: "4",
        run_id: expect.stringMatching(/^taisce-notify\/.{36}$/),
        created_at: expect.stringMatching(/Z$/),
        status: "accepted",
        variables_hash: expect.stringMatching(/^[0-9a-f]{64}$/),
        variables: {
          version: "taisce-notification/v1",
          scope: project.scope,
          formed_through: 4,
          stored_through: 4,
          parked_turns: 0,
          occurred_at: expect.stringMatching(/:\d\dZ$/),
        },
      },
    ]);
    const { deliveries } = (await project.reader.post(DELIVERIES)).body;
    expect(deliveries).toHaveLength(2);
    const told = { state: "delivered", attempts: 0, formed_through: 4, formed_turns: 5 };
    for (const one of deliveries) expect(one).toMatchObject(told);
    expect(deliveries.map((one: { url: string }) => one.url).sort()).toEqual(["group:a", "group:jobs"]);

    const [, { id }] = (await project.reader.post(LIST)).body.endpoints;
    expect((await project.client.post(DISABLE, { id })).status).toBe(200);
    const { next } = await take(project, { group: "jobs" });
    await advance(project, 5);
    await take(project, { group: "jobs", after: next, wait: "10s" });
    expect((await take(project, { group: "a" })).handoffs).toHaveLength(1);
    expect(await register(project, "group:a")).toMatchObject({ id, url: "group:a" });
  });

  it("is refused unless the operator lists it, in one answer for all", async () => {
    const { test, url } = await service();
    const { token, reader } = await apiProject(test, url);
    const answers = new Set<string>();
    for (const name of [
      "group:unlisted",
      "group:*",
      "group:",
      "group:Jobs",
      "GROUP:jobs",
      "group: jobs",
      "group:jobs ",
      "group:jobs\n",
      "group://jobs",
      "group:%61",
      `group:${"a".repeat(64)}`,
      "https://group:jobs",
    ]) {
      const body = JSON.stringify({ url: name });
      const answer = await exchange(url, "POST", REGISTER, { token, body });
      refusal(answer, [400, "invalid_destination"], name);
      answers.add(answer.text);
    }
    expect(answers.size).toBe(1);
    expect((await reader.post(LIST)).body).toEqual({ endpoints: [] });
  });
});

describe("taking", () => {
  it("goes on from a cursor, a page at a time, and removes nothing", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    await register(project, "group:jobs");
    const start = (await take(project, { group: "jobs" })).next;
    for (let n = 0; n < 5; n++) await advance(project, n);
    await until("five", async () => (await take(project, { group: "jobs" })).handoffs.length === 5);
    for (const begin of [{}, { after: start }]) {
      const taken: unknown[] = [];
      let page = await take(project, { group: "jobs", limit: 2, ...begin });
      for (
        ;
        page.handoffs.length > 0;
        page = await take(project, { group: "jobs", limit: 2, after: page.next })
      ) {
        taken.push(...page.handoffs.map(({ idempotency }) => idempotency));
      }
      expect(taken).toEqual(["0", "1", "2", "3", "4"]);
    }
  });

  it("gives a project its own groups alone, and takes no cursor of another group", async () => {
    const { test, url } = await service();
    const [one, two] = [await apiProject(test, url), await apiProject(test, url)];
    await register(one, "group:jobs");
    await register(two, "group:jobs");
    await advance(one, 1);
    const { next } = await take(one, { group: "jobs", wait: 10 });
    await advance(two, 2);
    const theirs = await take(two, { group: "jobs", wait: 10 });
    expect(theirs.handoffs).toMatchObject([{ scope: two.scope, idempotency: "2" }]);
    // Another project's cursor names a handoff that is none of its own: it starts over.
    expect(await take(two, { group: "jobs", after: next })).toEqual(theirs);
    const answer = await two.reader.post(TAKE, { group: "other", after: next });
    expect([answer.status, answer.body.error.code]).toEqual([400, "invalid_body"]);
  });

  it("is refused as the contract says", async () => {
    const { test, url } = await service();
    const { token } = await apiProject(test, url);
    const post = (body: object | string) =>
      exchange(url, "POST", TAKE, { token, body: typeof body === "string" ? body : JSON.stringify(body) });
    refusal(await exchange(url, "POST", TAKE), [401, "unauthenticated"]);
    const group = "jobs";
    for (const body of [
      "",
      "[]",
      "{",
      { group, more: 1 },
      { group: 1 },
      { group: "Jobs" },
      { group: "group:jobs" },
      { group: "" },
      { group: `${group}\n` },
      { group, after: 1 },
      { group, after: "" },
      { group, after: "nonsense" },
      { group, after: Buffer.from("jobs 1").toString("base64url") },
      { group, after: Buffer.from(`jobs ${"9".repeat(19)} x`).toString("base64url") },
      { group, limit: 0 },
      { group, limit: 201 },
      { group, limit: 1.5 },
      { group, limit: "1" },
      { group, wait: -1 },
      { group, wait: 61 },
      { group, wait: 0.5 },
      { group, wait: "61s" },
      { group, wait: "2m" },
      { group, wait: "soon" },
      { group, wait: "" },
      { group, wait: true },
    ]) {
      refusal(await post(body), [400, "invalid_body"], JSON.stringify(body));
    }
    for (const name of ["unlisted", "b"]) {
      refusal(await post({ group: name }), [400, "invalid_destination"], name);
    }
    for (const wait of [0, "0s", "1ms"]) {
      expect(JSON.parse((await post({ group, wait })).text)).toMatchObject({ handoffs: [] });
    }
  });
});

describe("waiting", () => {
  it("is answered within milliseconds of what is handed over", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    await register(project, "group:jobs");
    let after = (await take(project, { group: "jobs" })).next;
    const took: number[] = [];
    for (let n = 0; n < 20; n++) {
      const waiting = take(project, { group: "jobs", after, wait: "30s" });
      await sleep(20);
      const started = performance.now();
      await advance(project, n);
      const { handoffs, next } = await waiting;
      took.push(performance.now() - started);
      expect(handoffs).toMatchObject([{ idempotency: String(n) }]);
      after = next;
    }
    // The look at groups comes once a second: most of them cannot have waited for it.
    expect(took.toSorted((a, b) => a - b)[10]).toBeLessThan(200);
  });

  it("ends with nothing, and a cursor, when the time is over", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    const started = performance.now();
    const { handoffs, next } = await take(project, { group: "jobs", wait: 1 });
    expect(performance.now() - started).toBeGreaterThan(990);
    expect(handoffs).toEqual([]);
    expect(await take(project, { group: "jobs", after: next, wait: "10ms" })).toEqual({ handoffs, next });
  });
});
