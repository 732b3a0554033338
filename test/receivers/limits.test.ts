// The one time limit against every way of not answering, what it frees, and what ends an attempt early.

import events from "node:events";
import { describe, expect, it, vi } from "vitest";
import type { Sender } from "../../src/egress/index.ts";
import { blackHole } from "./cases/support.ts";
import {
  answering,
  type Listener,
  listenTcp,
  pool,
  post,
  receive,
  sender,
  status,
  timed,
} from "./harness.ts";

const OK = status("204 No Content");
const LIMIT_MS = 300;
const TIMEOUT = { kind: "failed", category: "timeout", retryable: true };
const never = new Promise<never>(() => {});

/** Posts, and holds the answer to the limit: the category, the time, and that no socket outlives it. */
async function expectTimeout(by: Sender, url: string, listener?: Listener): Promise<void> {
  const [outcome, ms] = await timed(() => post(by, url));
  expect(outcome).toEqual(TIMEOUT);
  expect(ms).toBeGreaterThan(LIMIT_MS - 5);
  expect(ms).toBeLessThan(LIMIT_MS + 250);
  await listener?.allClosed();
  await by.close();
}

describe("the time limit", () => {
  it("holds against a resolver that never answers, and others are not held up", async () => {
    const receiver = await receive(answering(OK));
    const lookup = (name: string) =>
      name === "hung.test" ? never : Promise.resolve([{ address: "127.0.0.1", family: 4 }]);
    const by = await sender({ timeoutMs: LIMIT_MS, lookup });
    const hung = Array.from({ length: 20 }, () => post(by, "https://hung.test/"));
    expect(await post(by, `https://localhost:${receiver.port}/`)).toMatchObject({ kind: "accepted" });
    expect(new Set((await Promise.all(hung)).map((outcome) => JSON.stringify(outcome)))).toEqual(
      new Set([JSON.stringify(TIMEOUT)]),
    );
  });

  it("holds against a resolver that is asked again for the connection and then never answers", async () => {
    let asked = 0;
    const lookup = () => (asked++ === 0 ? Promise.resolve([{ address: "127.0.0.1", family: 4 }]) : never);
    await expectTimeout(
      await sender({ timeoutMs: LIMIT_MS, lookup, answerLifetimeMs: 0 }),
      "https://a.test/",
    );
    expect(asked).toBe(2);
  });

  it("holds against a peer that takes the connection and says no word of TLS", async () => {
    const listener = await listenTcp();
    await expectTimeout(
      await sender({ timeoutMs: LIMIT_MS }),
      `https://127.0.0.1:${listener.port}/`,
      listener,
    );
  });

  it("holds against an address from which no answer to the SYN comes", async () => {
    // Its backlog of one is full, so the kernel lets further SYNs drop.
    const port = await blackHole();
    await expectTimeout(await sender({ timeoutMs: LIMIT_MS }), `https://127.0.0.1:${port}/`);
  });

  it("holds against a head that never comes", async () => {
    const receiver = await receive(() => {});
    await expectTimeout(
      await sender({ timeoutMs: LIMIT_MS }),
      `https://localhost:${receiver.port}/`,
      receiver,
    );
  });

  it("holds against a head that comes byte by byte", async () => {
    const receiver = await receive((socket) => {
      const head = `HTTP/1.1 200 OK\r\nx: ${"x".repeat(10_000)}`;
      let sent = 0;
      const drip = setInterval(() => socket.write(head[sent++] ?? "x"), 5);
      socket.on("close", () => clearInterval(drip));
    });
    await expectTimeout(
      await sender({ timeoutMs: LIMIT_MS }),
      `https://localhost:${receiver.port}/`,
      receiver,
    );
  });

  it("holds against informational answers without end", async () => {
    const receiver = await receive((socket) => {
      const drip = setInterval(() => socket.write("HTTP/1.1 102 Processing\r\n\r\n"), 15);
      socket.on("close", () => clearInterval(drip));
    });
    await expectTimeout(
      await sender({ timeoutMs: LIMIT_MS }),
      `https://localhost:${receiver.port}/`,
      receiver,
    );
  });

  it("holds while waiting for a connection, and the one that waited is not sent later", async () => {
    const receiver = await receive(() => {});
    const by = await sender({ timeoutMs: LIMIT_MS, connectionsPerOrigin: 1 });
    const url = `https://localhost:${receiver.port}`;
    const outcomes = await Promise.all([post(by, `${url}/first`), post(by, `${url}/waits`)]);
    expect(outcomes).toEqual([TIMEOUT, TIMEOUT]);
    await receiver.allClosed();
    expect(receiver.requests).toHaveLength(1);
  });

  it("does not hold against the body, nor touch a connection given back", async () => {
    const receiver = await receive(answering(OK));
    const by = await sender({ timeoutMs: LIMIT_MS });
    const url = `https://localhost:${receiver.port}/`;
    await post(by, url);
    const idle = await listenTcp();
    // Another attempt's whole limit passes meanwhile.
    await post(by, `https://127.0.0.1:${idle.port}/`);
    await post(by, url);
    expect(receiver.connections).toBe(1);
  });
});

describe("an attempt that is given up", () => {
  it("ends at once wherever it is, and frees its socket", async () => {
    const unanswered = await receive(() => {});
    const silent = await listenTcp();
    const stages: [string, Promise<unknown>, Listener?][] = [
      ["https://hung.test/", Promise.resolve()],
      [`https://127.0.0.1:${silent.port}/`, silent.connected(1), silent],
      [`https://localhost:${unanswered.port}/`, unanswered.requested(1), unanswered],
    ];
    const lookup = (name: string) =>
      name === "hung.test" ? never : Promise.resolve([{ address: "127.0.0.1", family: 4 }]);
    for (const [url, reached, listener] of stages) {
      const by = await sender({ lookup });
      const controller = new AbortController();
      const posted = post(by, url, controller.signal);
      await reached;
      controller.abort();
      expect(await posted).toEqual({ kind: "aborted" });
      await listener?.allClosed();
    }
  });

  it("while it waits for a connection takes no one else's", async () => {
    const held = Promise.withResolvers<void>();
    const receiver = await receive((socket) => held.promise.then(() => socket.write(OK)));
    const by = await sender({ connectionsPerOrigin: 1 });
    const url = `https://localhost:${receiver.port}/`;
    const controller = new AbortController();
    const first = post(by, url);
    const second = post(by, url, controller.signal);
    const third = post(by, url);
    await receiver.requested(1);
    controller.abort();
    expect(await second).toEqual({ kind: "aborted" });
    held.resolve();
    expect([await first, await third]).toEqual([
      { kind: "accepted", status: 204 },
      { kind: "accepted", status: 204 },
    ]);
    expect(receiver.requests).toHaveLength(2);
    expect(receiver.connections).toBe(1);
  });

  it("lets the next in line be sent, on a connection of its own", async () => {
    const receiver = await receive((socket, request) => {
      if (request.includes("/next")) socket.write(OK);
    });
    const by = await sender({ connectionsPerOrigin: 1 });
    const controller = new AbortController();
    const first = post(by, `https://localhost:${receiver.port}/first`, controller.signal);
    const next = post(by, `https://localhost:${receiver.port}/next`);
    await receiver.requested(1);
    controller.abort();
    expect(await first).toEqual({ kind: "aborted" });
    expect(await next).toEqual({ kind: "accepted", status: 204 });
    expect(receiver.connections).toBe(2);
  });

  it("before it began sends nothing", async () => {
    const receiver = await receive(answering(OK));
    expect(await post(await sender(), `https://localhost:${receiver.port}/`, AbortSignal.abort())).toEqual({
      kind: "aborted",
    });
    expect(receiver.connections).toBe(0);
  });

  it("after its status line stays what it was, and leaves no listener on the signal", async () => {
    const warnings: string[] = [];
    const onWarning = (warning: Error) => warnings.push(warning.name);
    process.on("warning", onWarning);
    const receiver = await receive(answering(OK));
    const by = await sender({ connectionsPerOrigin: 64 });
    const { signal } = new AbortController();
    const url = `https://localhost:${receiver.port}/`;
    await Promise.all(Array.from({ length: 64 }, () => post(by, url, signal)));
    await new Promise(setImmediate);
    process.off("warning", onWarning);
    expect(warnings).toEqual([]);
    expect(events.getEventListeners(signal, "abort")).toHaveLength(0);
  });
});

describe("a closed sender", () => {
  it("has ended its connections, aborts what is under way and what comes later", async () => {
    const idle = await receive(answering(OK));
    const busy = await receive(() => {});
    const connecting = await listenTcp();
    const by = await sender({ connectionsPerOrigin: 1 });
    await post(by, `https://localhost:${idle.port}/`);
    const underWay = [
      post(by, `https://localhost:${busy.port}/`),
      post(by, `https://localhost:${busy.port}/waits`),
      post(by, `https://127.0.0.1:${connecting.port}/`),
    ];
    await Promise.all([busy.requested(1), connecting.connected(1)]);
    const [, ms] = await timed(async () => {
      await by.close();
      await Promise.all([idle.allClosed(), busy.allClosed(), connecting.allClosed()]);
    });
    expect(ms).toBeLessThan(1_000);
    expect(await Promise.all(underWay)).toEqual(Array(3).fill({ kind: "aborted" }));
    expect(await post(by, `https://localhost:${idle.port}/`)).toEqual({ kind: "aborted" });
    expect(idle.connections).toBe(1);
    await by.close();
  });
});

describe("nothing", () => {
  it("is left of an attempt that ended: no timer, and nothing of an origin whose connections closed", async () => {
    const receiver = await receive((socket, request) => {
      socket.write(OK);
      if (request.includes("/last")) socket.end();
    });
    const { attempt: attemptAt, connections } = await pool();
    const attempt = (path: string) => attemptAt(`https://localhost:${receiver.port}`, path);
    const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;

    const before = timers();
    for (let i = 0; i < 20; i++) await attempt("/");
    expect(timers()).toBeLessThanOrEqual(before);
    expect(connections.counts).toEqual({ origins: 1, open: 1, idle: 1 });

    await attempt("/last");
    await receiver.allClosed();
    await vi.waitFor(() => expect(connections.counts).toEqual({ origins: 0, open: 0, idle: 0 }));
  });
});
