// The listener through what breaks listeners: killed backends, refused and half-open connections.
import pg from "pg";
import { afterEach, describe, expect, it } from "vitest";
import { Listener } from "../../src/signals/listener.ts";
import { databaseUrl, freshName } from "../support/namespaces.ts";
import { quietLog } from "../support/quiet.ts";
import { type TcpProxy, tcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";

const cleanUps: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

async function listening(url = databaseUrl()) {
  const channel = freshName();
  const applicationName = `listener ${channel}`;
  const heard: string[] = [];
  const events: string[] = [];
  const listener = new Listener({
    url,
    channels: [{ name: channel, onPayload: (payload) => heard.push(payload) }],
    applicationName,
    onUp: () => events.push("up"),
    onDown: () => events.push("down"),
    log: quietLog,
  });
  listener.start();
  cleanUps.push(() => listener.stop());
  const client = new pg.Client({ connectionString: databaseUrl() });
  await client.connect();
  cleanUps.push(() => client.end());
  await until("listening", () => listener.up);
  const notify = (payload: string) => client.query("SELECT pg_notify($1, $2)", [channel, payload]);
  const sessions = async () => {
    const { rows } = await client.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE application_name = $1",
      [applicationName],
    );
    return rows.map(({ pid }) => pid);
  };
  return { listener, channel, heard, events, client, notify, sessions };
}

async function viaProxy(): Promise<TcpProxy> {
  const proxy = await tcpProxy(databaseUrl());
  cleanUps.push(() => proxy.close());
  return proxy;
}

describe("the listener", () => {
  it("hears payloads in order, whatever is in them, on one session", async () => {
    const { heard, notify, sessions } = await listening();
    for (const payload of ["one", "not json {", "", '{"scope":1}']) await notify(payload);
    await until("four payloads", () => heard.length === 4);
    expect(heard).toEqual(["one", "not json {", "", '{"scope":1}']);
    expect((await sessions()).length).toBe(1);
  });

  it("opens a new session and asks for a catch-up when its backend is terminated", async () => {
    const { listener, heard, events, client, notify, sessions } = await listening();
    for (let round = 1; round <= 3; round++) {
      await client.query("SELECT pg_terminate_backend($1)", [(await sessions())[0]]);
      await until("the end to be noticed", () => events.filter((event) => event === "down").length === round);
      await until("listening again", () => listener.up);
      await notify(`after ${round}`);
      await until("the payload", () => heard.includes(`after ${round}`));
    }
    expect(events).toEqual(["up", "down", "up", "down", "up", "down", "up"]);
    expect((await sessions()).length).toBe(1);
  });

  it("tries for ever while connections are refused, longer than pg-listen would", async () => {
    const proxy = await viaProxy();
    const { listener, heard, notify } = await listening(proxy.url);
    await proxy.refuse();
    await until("deaf", () => !listener.up);
    // pg-listen's own recovery gives up after three seconds.
    await new Promise((resolve) => setTimeout(resolve, 4_000));
    expect(listener.up).toBe(false);
    await proxy.heal();
    await until("listening again", () => listener.up, 5_000);
    await notify("back");
    await until("the payload", () => heard.includes("back"));
  });

  it("notices a half-open link, where nothing errs or ends, within 16 seconds", async () => {
    const proxy = await viaProxy();
    const { listener, events, heard, notify } = await listening(proxy.url);
    const started = performance.now();
    proxy.blackHole();
    await until("deaf", () => events.includes("down"), 16_000);
    await proxy.heal();
    await until("listening again", () => listener.up, 16_000);
    expect(performance.now() - started).toBeLessThan(16_000);
    await notify("back");
    await until("the payload", () => heard.includes("back"));
  }, 40_000);

  it("stops at once, also while it is trying to connect, and leaves no session behind", async () => {
    const proxy = await viaProxy();
    const { listener, sessions } = await listening(proxy.url);
    proxy.blackHole();
    proxy.cut();
    proxy.blackHole();
    await until("deaf", () => !listener.up);
    const started = performance.now();
    await listener.stop();
    expect(performance.now() - started).toBeLessThan(1_000);
    proxy.cut();
    await until("no session", async () => (await sessions()).length === 0);
    const { accepted } = proxy;
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(proxy.accepted).toBe(accepted);
  });
});
