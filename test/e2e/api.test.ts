// The API's answers when all is well, from outside: endpoints and what their projects are told, offsets
// to the end of the bigint range, on a real service, a real PostgreSQL and a real HTTPS receiver.
import { describe, expect, it } from "vitest";
import { verify } from "../../src/signing/index.ts";
import {
  ADVANCE,
  type ApiProject,
  apiProject,
  DELIVERIES,
  DISABLE,
  FRESHNESS,
  LIST,
  once,
  REGISTER,
} from "../support/api-project.ts";
import { serve } from "../support/cli.ts";
import { exchange } from "../support/exchange.ts";
import { testNamespace } from "../support/namespaces.ts";
import { testAuthority, testReceiver } from "../support/receivers.ts";
import { until } from "../support/until.ts";

/** Paths that the receiver refuses for now; it takes every other. */
const refused = new Set<string>();

/** The file's one service and one receiver. */
const service = once(async () => {
  const test = await testNamespace();
  const receiver = await testReceiver({ answer: ({ path }) => (refused.has(path) ? 503 : 204) });
  const { caFile } = await testAuthority();
  const { url } = await serve({
    DATABASE_URL: test.url,
    TAISCE_NAMESPACE: test.namespace.name,
    TAISCE_NOTIFY_DESTINATIONS: "localhost",
    TAISCE_NOTIFY_PERMIT_PRIVATE: "true",
    TAISCE_NOTIFY_CA_FILE: caFile,
    TAISCE_NOTIFY_BACKOFF: "1s",
    TAISCE_NOTIFY_RECONCILE: "200ms",
  });
  await until("the listener", async () => {
    return JSON.parse((await exchange(url, "GET", "/ready")).text).listener === "up";
  });
  return { test, receiver, url, at: (path: string) => receiver.next((request) => request.path === path) };
});

type Listed = Record<string, unknown>;

async function register({ client }: ApiProject, url: string, more = {}) {
  const answer = await client.post(REGISTER, { url, ...more });
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body as { id: string; url: string; created_at: string; secret: string };
}

const advance = ({ client }: ApiProject, formed: number) => client.post(ADVANCE, { formed_through: formed });

/** The project's deliveries, oldest first, once there are `count` and they are as asked. */
const deliveries = ({ reader }: ApiProject, count: number, settled: (one: Listed) => boolean = () => true) =>
  until(`${count} deliveries`, async () => {
    const listed: Listed[] = (await reader.post(DELIVERIES)).body.deliveries;
    return listed.length === count && listed.every(settled) ? listed.toReversed() : undefined;
  });

const ended = ({ state }: Listed) => state !== "pending";
const tried = ({ last_status }: Listed) => last_status !== undefined;

describe("an endpoint", () => {
  it("is registered with a secret that is shown once, listed, and disabled", async () => {
    const { test, url, receiver } = await service();
    const project = await apiProject(test, url);
    const first = await register(project, receiver.url("/first"));
    const second = await register(project, receiver.url("/second"));
    expect(Object.keys(first)).toEqual(["id", "url", "created_at", "secret"]);
    expect(first.id).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    expect(first.created_at).toBe(new Date(first.created_at).toISOString());
    expect(first.secret).toMatch(/^[0-9a-f]{64}$/);
    expect(second.secret).not.toBe(first.secret);

    const shown = ({ secret: _, ...rest }: typeof first) => rest;
    expect((await project.reader.post(LIST)).body).toEqual({ endpoints: [shown(first), shown(second)] });
    for (let time = 0; time < 2; time++) {
      const { status, body } = await project.client.post(DISABLE, { id: first.id });
      expect([status, body]).toEqual([200, { disabled: true }]);
    }
    const { endpoints } = (await project.reader.post(LIST)).body;
    expect(endpoints).toEqual([{ ...shown(first), disabled_at: expect.any(String) }, shown(second)]);
    expect(Date.parse(endpoints[0].disabled_at)).toBeGreaterThanOrEqual(Date.parse(first.created_at));
  });

  it("is one, however its URL is spelt, and is sent to as it is listed", async () => {
    const { test, url, receiver, at } = await service();
    const project = await apiProject(test, url);
    const spelt = receiver.url("/x/../spelt?q=%41").replace("https://localhost", "HTTPS://LocalHost.");
    const { url: stored } = await register(project, `${spelt}#fragment`);
    expect(stored).toBe(receiver.url("/spelt?q=%41"));
    for (const spelling of [stored, spelt, `${stored}#other`]) {
      expect((await project.client.post(REGISTER, { url: spelling })).status, spelling).toBe(409);
    }
    await advance(project, 1);
    await at("/spelt?q=%41");
    expect(await deliveries(project, 1, ended)).toMatchObject([{ url: stored, state: "delivered" }]);
  });

  it("is told of what forms from its registration on, and of nothing before", async () => {
    const { test, url, receiver, at } = await service();
    const project = await apiProject(test, url);
    await advance(project, 10);
    await register(project, receiver.url("/later"));

    // The reconciler owes what no signal brought: once it told this one of its past, it passed by the other.
    const witness = await apiProject(test, url);
    await advance(witness, 3);
    const { id } = await register(witness, receiver.url("/reconciled"));
    await test.db.query(
      `UPDATE ${test.namespace.sql}.notification_endpoint SET registered_from = NULL WHERE endpoint_id = $1`,
      [id],
    );
    await at("/reconciled");
    expect(await deliveries(project, 0)).toEqual([]);

    await advance(project, 12);
    expect(JSON.parse((await at("/later")).rawBody.toString())).toMatchObject({
      scope: project.scope,
      formed_through: 12,
    });
    expect(await deliveries(project, 1, ended)).toMatchObject([{ formed_through: 12, formed_turns: 2 }]);
  });

  it("that is disabled is sent nothing more, and comes back as the same one with a new secret", async () => {
    const { test, url, receiver, at } = await service();
    const project = await apiProject(test, url);
    refused.add("/again");
    const old = await register(project, receiver.url("/again"));
    await register(project, receiver.url("/witness"));
    await advance(project, 5);
    await at("/again");
    await at("/witness");
    const failing = (await deliveries(project, 2, tried)).find(({ endpoint_id }) => endpoint_id === old.id);
    expect(failing).toMatchObject({ state: "pending", attempts: 1, last_error: "destination answered 503" });
    await project.client.post(DISABLE, { id: old.id });
    const superseded = { id: failing?.id, state: "superseded", attempts: 1, last_status: 503 };
    const left = (await deliveries(project, 2)).find(({ id }) => id === failing?.id);
    expect(left).toMatchObject(superseded);
    expect(left).not.toHaveProperty("next_attempt_at");

    refused.delete("/again");
    const renewed = await register(project, receiver.url("/again"));
    expect(renewed).toMatchObject({ id: old.id, url: old.url, created_at: old.created_at });
    expect(renewed.secret).not.toBe(old.secret);
    const listed = (await project.reader.post(LIST)).body.endpoints;
    expect(listed.map(({ id }: Listed) => id)).toContain(old.id);
    for (const endpoint of listed) expect(endpoint).not.toHaveProperty("disabled_at");

    // Past the time at which the superseded one would have been tried again.
    await until(
      "its next attempt's time",
      () => Date.now() > Date.parse(String(failing?.next_attempt_at)) + 50,
    );
    await advance(project, 6);
    const told = await at("/again");
    await at("/witness");
    const signed = { header: String(told.headers["taisce-signature"]), body: told.rawBody };
    expect(verify({ ...signed, secret: renewed.secret })).toMatchObject({ ok: true });
    expect(verify({ ...signed, secret: old.secret })).toMatchObject({ ok: false });
    const all = await deliveries(project, 4, ended);
    expect(all.find(({ id }) => id === failing?.id)).toMatchObject(superseded);
    expect(receiver.received.filter(({ path }) => path === "/again").length).toBe(2);
  });

  it("that wants the latest only has what waits superseded by what is newer", async () => {
    const { test, url, receiver } = await service();
    const project = await apiProject(test, url);
    for (const path of ["/latest", "/every"]) refused.add(path);
    const latest = await register(project, receiver.url("/latest"), { deliver: "latest" });
    const every = await register(project, receiver.url("/every"), { deliver: "every" });
    await advance(project, 1);
    await deliveries(project, 2, tried);
    await advance(project, 2);
    await deliveries(project, 4);
    refused.clear();
    const all = await deliveries(project, 4, ended);
    const statesOf = (id: string) =>
      all.filter(({ endpoint_id }) => endpoint_id === id).map((one) => [one.formed_through, one.state]);
    expect(statesOf(latest.id)).toEqual([
      [1, "superseded"],
      [2, "delivered"],
    ]);
    expect(statesOf(every.id)).toEqual([
      [1, "delivered"],
      [2, "delivered"],
    ]);
  });
});

describe("an offset", () => {
  it("is exact to the end of the bigint range, in every answer and in what is sent", async () => {
    const { test, url, receiver, at } = await service();
    const project = await apiProject(test, url);
    const { token, readToken, scope } = project;
    await register(project, receiver.url("/big"));
    expect((await exchange(url, "GET", FRESHNESS, { token: readToken })).text).toBe(
      `{"scope":"${scope}","stored":null,"formed":null,"parked":0}`,
    );
    for (const [formed, stored, turns] of [
      ["0", "9007199254740993", 1],
      ["9007199254740993", "9223372036854775806", 2_147_483_647],
      ["9223372036854775807", "9223372036854775807", 2_147_483_647],
    ] as const) {
      const body = `{"formed_through":${formed},"stored_through":${stored},"parked_turns":2}`;
      const fresh = `{"scope":"${scope}","stored":${stored},"formed":${formed},"parked":2}`;
      expect((await exchange(url, "POST", ADVANCE, { token, body })).text).toBe(fresh);
      expect((await exchange(url, "GET", FRESHNESS, { token: readToken })).text).toBe(fresh);
      const told = (await at("/big")).rawBody.toString();
      expect(told).toContain(`"formed_through":${formed},"stored_through":${stored},"parked_turns":2`);
      const { text } = await exchange(url, "POST", DELIVERIES, { token: readToken, body: '{"limit":1}' });
      expect(text).toContain(
        `"formed_through":${formed},"stored_through":${stored},"formed_turns":${turns},`,
      );
    }
    const beyond = await exchange(url, "POST", ADVANCE, {
      token,
      body: '{"formed_through":9223372036854775808}',
    });
    expect(beyond.status).toBe(400);
  });

  it("moves forward only, each by itself, and says where it is", async () => {
    const { test, url } = await service();
    const project = await apiProject(test, url);
    for (const [body, stored, formed, parked] of [
      [{ formed_through: 5 }, 5, 5, 0],
      [{ formed_through: 3 }, 5, 5, 0],
      [{ formed_through: 5, stored_through: 9 }, 9, 5, 0],
      [{ formed_through: 7, stored_through: 7, parked_turns: 1 }, 9, 7, 1],
      [{ formed_through: 0, parked_turns: 0 }, 9, 7, 1],
    ] as const) {
      const { status, body: fresh } = await project.client.post(ADVANCE, body);
      expect([status, fresh]).toEqual([200, { scope: project.scope, stored, formed, parked }]);
    }
  });
});
