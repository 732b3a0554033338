// The main job through its outside: a real service process, a real PostgreSQL, a real HTTPS receiver.
import { describe, expect, it } from "vitest";
import { Credentials } from "../../src/credentials/credentials.ts";
import { Formation } from "../../src/formation/formation.ts";
import { Projects } from "../../src/projects/projects.ts";
import { verify } from "../../src/signing/index.ts";
import { type ApiClient, api } from "../support/api.ts";
import { type Environment, serve } from "../support/cli.ts";
import { type TestNamespace, testNamespace } from "../support/namespaces.ts";
import { testAuthority, testReceiver } from "../support/receivers.ts";
import { until } from "../support/until.ts";

async function environmentOf(test: TestNamespace, more: Environment = {}): Promise<Environment> {
  const { caFile } = await testAuthority();
  return {
    DATABASE_URL: test.url,
    TAISCE_NAMESPACE: test.namespace.name,
    TAISCE_NOTIFY_DESTINATIONS: "localhost",
    TAISCE_NOTIFY_PERMIT_PRIVATE: "true",
    TAISCE_NOTIFY_CA_FILE: caFile,
    ...more,
  };
}

async function project(test: TestNamespace, scope = "p1") {
  await new Projects(test.db, test.namespace).create(scope);
  const { token } = await new Credentials(test.db, test.namespace).issue("test", scope, "read-write");
  return { token, formation: new Formation(test.db, test.namespace) };
}

const deliveries = async (client: ApiClient, filter = {}) =>
  (await client.post("/v1/notifications/deliveries/list", filter)).body.deliveries;

/** The deliveries once none is pending, oldest first. */
const settled = (client: ApiClient, count: number) =>
  until(`${count} ended deliveries`, async () => {
    const all = await deliveries(client);
    return all.length === count && all.every(({ state }: { state: string }) => state !== "pending")
      ? all.toReversed()
      : undefined;
  });

describe("a project that formed", () => {
  it("tells its endpoint, signed, once, and lists it as delivered", async () => {
    const test = await testNamespace();
    const { token, formation } = await project(test);
    const receiver = await testReceiver();
    const service = await serve(await environmentOf(test));
    const client = api(service.url, token);
    const registered = await client.post("/v1/notifications/endpoints/register", {
      url: receiver.url("/hook?a=1"),
    });
    expect(registered.status).toBe(200);
    expect(registered.body.secret).toMatch(/^[0-9a-f]{64}$/);
    await until("the listener", async () => (await client.get("/ready")).body.listener === "up");

    await formation.append("p1", 3);
    await formation.form("p1", 0n);
    const first = await receiver.next();
    await formation.park("p1", 1n);
    const second = await receiver.next();

    expect(first.path).toBe("/hook?a=1");
    expect(first.headers["content-type"]).toBe("application/json");
    expect(first.headers["user-agent"]).toMatch(/^taisce-notify\/\d/);
    expect(first.rawBody.toString()).toMatch(
      /^\{"version":"taisce-notification\/v1","scope":"p1","formed_through":0,"stored_through":2,"parked_turns":0,"occurred_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"\}$/,
    );
    expect(JSON.parse(second.rawBody.toString())).toMatchObject({ formed_through: 1, parked_turns: 1 });
    for (const { headers, rawBody } of [first, second]) {
      expect(
        verify({
          secret: registered.body.secret,
          header: String(headers["taisce-signature"]),
          body: rawBody,
        }),
      ).toMatchObject({ ok: true });
    }
    const [one, two] = await settled(client, 2);
    expect(one).toMatchObject({
      id: first.headers["taisce-delivery"],
      endpoint_id: registered.body.id,
      url: receiver.url("/hook?a=1"),
      formed_through: 0,
      stored_through: 2,
      formed_turns: 1,
      state: "delivered",
      attempts: 1,
      last_status: 204,
    });
    expect(two.id).toBe(second.headers["webhook-id"]);
    expect(receiver.received.length).toBe(2);
    expect(await service.kill("SIGTERM")).toBe(0);
  });

  it("is told of a committed advance that no signal brought", async () => {
    const test = await testNamespace();
    const { token, formation } = await project(test);
    const receiver = await testReceiver();
    const environment = await environmentOf(test, { TAISCE_NOTIFY_LISTEN: "off" });
    const service = await serve(environment);
    const client = api(service.url, token);
    await client.post("/v1/notifications/endpoints/register", { url: receiver.url("/") });
    await formation.advance("p1", { formedThrough: 7n, storedThrough: 9n });
    expect(JSON.parse((await receiver.next()).rawBody.toString())).toMatchObject({
      formed_through: 7,
      stored_through: 9,
    });
    await service.kill("SIGTERM");

    // While nobody runs, two more advances; the newest is what is owed at the next start.
    await formation.advance("p1", { formedThrough: 20n });
    await formation.advance("p1", { formedThrough: 30n });
    const again = await serve(environment);
    expect(JSON.parse((await receiver.next()).rawBody.toString())).toMatchObject({ formed_through: 30 });
    const all = await settled(api(again.url, token), 2);
    expect(all[1]).toMatchObject({ formed_through: 30, formed_turns: 23 });
    await again.kill("SIGTERM");
  });
});

describe("a receiver that fails", () => {
  it("is tried again with growing waits and parked after six attempts, visibly", async () => {
    const test = await testNamespace();
    const { token, formation } = await project(test);
    const receiver = await testReceiver({ answer: () => 503 });
    const service = await serve(await environmentOf(test, { TAISCE_NOTIFY_BACKOFF: "30ms" }));
    const client = api(service.url, token);
    await client.post("/v1/notifications/endpoints/register", { url: receiver.url("/") });
    await formation.advance("p1", { formedThrough: 0n });
    const [parked] = await settled(client, 1);
    expect(parked).toMatchObject({
      state: "parked",
      attempts: 6,
      last_status: 503,
      last_error: "destination answered 503",
    });
    expect(parked.next_attempt_at).toBeUndefined();
    const times = receiver.received.map(({ receivedAt }) => receivedAt);
    expect(times.length).toBe(6);
    const waits = times.slice(1).map((time, index) => time - (times[index] ?? 0));
    for (const [index, wait] of waits.entries()) expect(wait).toBeGreaterThanOrEqual(30 * 2 ** index - 1);
    const bodies = new Set(receiver.received.map(({ rawBody }) => rawBody.toString()));
    expect(bodies.size).toBe(1);
    await service.kill("SIGTERM");
  });

  it("is not tried again where its answer is final, and its body is the same row's", async () => {
    const test = await testNamespace();
    const { token, formation } = await project(test);
    const receiver = await testReceiver({
      answer: ({ path }) =>
        path === "/gone" ? 410 : { status: 302, headers: { location: "https://localhost/" } },
    });
    const service = await serve(await environmentOf(test));
    const client = api(service.url, token);
    await client.post("/v1/notifications/endpoints/register", { url: receiver.url("/gone") });
    await client.post("/v1/notifications/endpoints/register", { url: receiver.url("/moved") });
    await formation.advance("p1", { formedThrough: 0n });
    const ended = await settled(client, 2);
    const byUrl = Object.fromEntries(ended.map((one: { url: string }) => [new URL(one.url).pathname, one]));
    expect(byUrl["/gone"]).toMatchObject({
      state: "parked",
      attempts: 1,
      last_error: "destination refused with 410",
    });
    expect(byUrl["/moved"]).toMatchObject({
      state: "parked",
      attempts: 1,
      last_error: "redirect not followed",
    });
    expect(receiver.received.length).toBe(2);
    await service.kill("SIGTERM");
  });
});

describe("a process that ends", () => {
  it("by SIGKILL in mid-attempt leaves nothing behind that the next one does not deliver", async () => {
    const test = await testNamespace();
    const { token, formation } = await project(test);
    let answers = 0;
    const receiver = await testReceiver({ answer: () => (answers++ === 0 ? "hang" : 200) });
    // The lease is the attempt's time limit and ten seconds.
    const environment = await environmentOf(test, { TAISCE_NOTIFY_TIMEOUT: "200ms" });
    const service = await serve(environment);
    await api(service.url, token).post("/v1/notifications/endpoints/register", { url: receiver.url("/") });
    await formation.advance("p1", { formedThrough: 4n });
    await receiver.next();
    await service.kill("SIGKILL");

    const again = await serve(environment);
    const client = api(again.url, token);
    expect((await deliveries(client))[0]).toMatchObject({ state: "pending", attempts: 1 });
    const repeated = await receiver.next(undefined, 20_000);
    expect(JSON.parse(repeated.rawBody.toString())).toMatchObject({ formed_through: 4 });
    const [ended] = await settled(client, 1);
    expect(ended).toMatchObject({ state: "delivered", attempts: 2 });
    await again.kill("SIGTERM");
  });

  it("by SIGTERM gives a hanging attempt back at once, uncounted", async () => {
    const test = await testNamespace();
    const { token, formation } = await project(test);
    let answers = 0;
    const receiver = await testReceiver({ answer: () => (answers++ === 0 ? "hang" : 200) });
    const environment = await environmentOf(test, { TAISCE_NOTIFY_TIMEOUT: "20s" });
    const service = await serve(environment);
    await api(service.url, token).post("/v1/notifications/endpoints/register", { url: receiver.url("/") });
    await formation.advance("p1", { formedThrough: 4n });
    await receiver.next();
    expect(await service.kill("SIGTERM")).toBe(0);

    const again = await serve(environment);
    await receiver.next();
    const [ended] = await settled(api(again.url, token), 1);
    expect(ended).toMatchObject({ state: "delivered", attempts: 1 });
    await again.kill("SIGTERM");
  });
});

describe("a Ctrl-C", () => {
  it("that arrives twice, from the terminal and from npm, still stops cleanly", async () => {
    const test = await testNamespace();
    const service = await serve(await environmentOf(test));
    const first = service.kill("SIGINT");
    await service.kill("SIGINT");
    expect(await first).toBe(0);
    expect(service.log()).toContain('"msg":"stopped"');
  });
});

describe("two processes on one database", () => {
  it("send each delivery once", async () => {
    const test = await testNamespace();
    const { token, formation } = await project(test);
    const receiver = await testReceiver();
    const environment = await environmentOf(test);
    const services = await Promise.all([
      serve(environment),
      serve(environment),
      serve({ ...environment, TAISCE_ROLE: "api" }),
    ]);
    const client = api(services[2]?.url ?? "", token);
    for (const path of ["/a", "/b", "/c"]) {
      await client.post("/v1/notifications/endpoints/register", { url: receiver.url(path) });
    }
    for (const service of services.slice(0, 2)) {
      await until("the listener", async () => (await api(service.url).get("/ready")).body.listener === "up");
    }
    for (let offset = 0n; offset < 30n; offset++) await formation.advance("p1", { formedThrough: offset });
    await until("90 requests", () => receiver.received.length >= 90);
    await until("90 deliveries", async () => {
      const page = await client.post("/v1/notifications/deliveries/list", { limit: 200, state: "delivered" });
      return page.body.deliveries.length === 90;
    });
    const ids = receiver.received.map(({ headers }) => headers["taisce-delivery"]);
    expect(new Set(ids).size).toBe(90);
    for (const service of services) expect(await service.kill("SIGTERM")).toBe(0);
    expect(receiver.received.length).toBe(90);
  });
});
