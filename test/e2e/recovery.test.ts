// The whole service while its links to PostgreSQL break: what advances meanwhile is still told, once.
import { describe, expect, it } from "vitest";
import { Credentials } from "../../src/credentials/credentials.ts";
import { Formation } from "../../src/formation/formation.ts";
import { Projects } from "../../src/projects/projects.ts";
import { api } from "../support/api.ts";
import { serve } from "../support/cli.ts";
import { testNamespace } from "../support/namespaces.ts";
import { testAuthority, testReceiver } from "../support/receivers.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";

async function running(more: Record<string, string> = {}) {
  const test = await testNamespace();
  const proxy = await tcpProxy(test.url);
  await new Projects(test.db, test.namespace).create("p1");
  const { token } = await new Credentials(test.db, test.namespace).issue("test", "p1", "read-write");
  const formation = new Formation(test.db, test.namespace);
  const receiver = await testReceiver();
  const service = await serve({
    DATABASE_URL: proxy.url,
    TAISCE_NAMESPACE: test.namespace.name,
    TAISCE_NOTIFY_DESTINATIONS: "localhost",
    TAISCE_NOTIFY_PERMIT_PRIVATE: "true",
    TAISCE_NOTIFY_CA_FILE: (await testAuthority()).caFile,
    ...more,
  });
  const client = api(service.url, token);
  await client.post("/v1/notifications/endpoints/register", { url: receiver.url("/") });
  const listener = (state: string) =>
    until(`the listener ${state}`, async () => (await client.get("/ready")).body.listener === state, 20_000);
  await listener("up");
  const advance = (offset: number) => formation.advance("p1", { formedThrough: BigInt(offset) });
  const told = (offset: number) =>
    receiver.next(({ rawBody }) => JSON.parse(rawBody.toString()).formed_through === offset, 20_000);
  return { proxy, receiver, service, client, listener, advance, told };
}

describe("the service", () => {
  it("goes on after every connection was reset at once", async () => {
    const { proxy, receiver, service, client, listener, advance, told } = await running();
    for (let round = 1; round <= 4; round++) {
      await advance(round);
      await told(round);
      // Once it is recorded: a claim whose answer the cut swallowed would wait for its lease to end.
      await until("the outcome to be recorded", async () => {
        const { body } = await client.post("/v1/notifications/deliveries/list", { state: "delivered" });
        return body.deliveries?.length === round;
      });
      proxy.cut();
    }
    await listener("up");
    expect(receiver.received.length).toBe(4);
    expect(await service.kill("SIGTERM")).toBe(0);
    await proxy.close();
  });

  it("tells what advanced while the database could not be reached, once it can", async () => {
    const { proxy, receiver, service, client, advance, told } = await running();
    await proxy.refuse();
    await advance(7);
    await until("503", async () => (await client.get("/ready")).status === 503);
    expect((await client.get("/health")).status).toBe(200);
    await proxy.heal();
    await told(7);
    await until("ready", async () => (await client.get("/ready")).status === 200);
    expect(receiver.received.length).toBe(1);
    expect(await service.kill("SIGTERM")).toBe(0);
    await proxy.close();
  });

  it("stops cleanly while the database is gone", async () => {
    const { proxy, service, client } = await running();
    await proxy.refuse();
    await until("503", async () => (await client.get("/ready")).status === 503);
    expect(await service.kill("SIGTERM")).toBe(0);
    await proxy.close();
  });
});
