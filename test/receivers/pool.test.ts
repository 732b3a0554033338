// The reuse of connections, and what they cost beyond the attempts under way: none is opened for one who is
// about to give up, and those that still read a body count among the idle.

import { stat } from "node:fs";
import { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Outcome } from "../../src/egress/index.ts";
import { answering, listenTcp, post, type Receiver, receive, sender, status, timed } from "./harness.ts";

const OK = status("204 No Content");
const ACCEPTED = { kind: "accepted", status: 204 };
const ABORTED = { kind: "aborted" };
const TIMEOUT = { kind: "failed", category: "timeout", retryable: true };

afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

describe("connections", () => {
  it("are kept: two posts, one connection", async () => {
    const receiver = await receive(answering(OK));
    const by = await sender();
    for (let i = 0; i < 5; i++) await post(by, `https://localhost:${receiver.port}/${i}`);
    expect(receiver.requests).toHaveLength(5);
    expect(receiver.connections).toBe(1);
  });

  it("are kept when the answer has a body, in one piece, in chunks, or after an informational answer", async () => {
    const answers = [
      "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
      "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
      `HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n${OK}`,
      "HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno",
    ];
    let next = 0;
    const receiver = await receive((socket) => socket.write(answers[next++ % answers.length] ?? ""));
    const by = await sender();
    const outcomes = [];
    for (let i = 0; i < 8; i++) outcomes.push(await post(by, `https://localhost:${receiver.port}/`));
    expect(outcomes.map((outcome) => "status" in outcome && outcome.status)).toEqual([
      ...[200, 200, 204, 500],
      ...[200, 200, 204, 500],
    ]);
    expect(receiver.connections).toBe(1);
  });

  it("carry one request at a time, and are no more than the limit", async () => {
    let underWay = 0;
    let most = 0;
    const held: (() => void)[] = [];
    const receiver = await receive((socket) => {
      underWay += 1;
      most = Math.max(most, underWay);
      held.push(() => {
        underWay -= 1;
        socket.write(OK);
      });
      if (held.length >= 3) for (const answer of held.splice(0)) answer();
    });
    const by = await sender({ connectionsPerOrigin: 3 });
    const url = `https://localhost:${receiver.port}/`;
    const outcomes = await Promise.all(Array.from({ length: 30 }, () => post(by, url)));
    expect(outcomes.every(({ kind }) => kind === "accepted")).toBe(true);
    expect(receiver.requests).toHaveLength(30);
    expect(receiver.connections).toBe(3);
    expect(most).toBe(3);
  });

  it("are as many as there is room for also where one lay idle", async () => {
    const receiver = await receive((socket) => setTimeout(() => socket.write(OK), 100));
    const by = await sender({ connectionsPerOrigin: 4 });
    const url = `https://localhost:${receiver.port}/`;
    await post(by, url);
    const outcomes = await Promise.all(Array.from({ length: 8 }, () => post(by, url)));
    expect(outcomes).toEqual(Array(8).fill(ACCEPTED));
    expect(receiver.connections).toBe(4);
  });

  it("are an origin's own: another port or name gets another", async () => {
    const receiver = await receive(answering(OK), { dns: ["a.test", "b.test"] });
    const by = await sender();
    for (const name of ["a.test", "b.test", "a.test", "b.test"])
      await post(by, `https://${name}:${receiver.port}/`);
    expect(receiver.connections).toBe(2);
  });

  it("are not used again once the receiver says it closes, or announces too short a time", async () => {
    for (const header of ["connection: close", "keep-alive: timeout=1"]) {
      const receiver = await receive(answering(status("200 OK", header)));
      const by = await sender();
      for (let i = 0; i < 3; i++) {
        expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual({
          kind: "accepted",
          status: 200,
        });
      }
      expect(receiver.connections).toBe(3);
    }
  });

  it("that the receiver closed while idle cost the next post nothing", async () => {
    const receiver = await receive((socket) => {
      socket.write(OK);
      socket.end();
    });
    const by = await sender();
    for (let i = 0; i < 3; i++) {
      expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual({
        kind: "accepted",
        status: 204,
      });
    }
    expect(receiver.requests).toHaveLength(3);
  });

  it("found closed under a request not yet written are replaced, and it is sent once", async () => {
    let kept: { destroy(): void } | undefined;
    const receiver = await receive((socket) => {
      kept = socket;
      socket.write(OK);
    });
    const by = await sender();
    await post(by, `https://localhost:${receiver.port}/`);
    // From a timer, so that the close is polled for before undici writes on the idle connection.
    const outcome = await new Promise((resolve) => {
      setTimeout(() => {
        kept?.destroy();
        resolve(post(by, `https://localhost:${receiver.port}/`));
      });
    });
    expect(outcome).toEqual({ kind: "accepted", status: 204 });
    expect(receiver.requests).toHaveLength(2);
    expect(receiver.connections).toBe(2);
  });

  it("with an answer nobody asked for are dropped, and that answer is not taken for the next", async () => {
    const receiver = await receive((socket) => socket.write(`${OK}${status("500 Forged")}`));
    const by = await sender();
    for (let i = 0; i < 3; i++) {
      expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual({
        kind: "accepted",
        status: 204,
      });
    }
    expect(receiver.connections).toBe(3);
    expect(receiver.requests).toHaveLength(3);
  });

  it("on which an answer nobody asked for has come, unread while the process was busy, are not used", async () => {
    const answers = ["200 OK", "408 Request Timeout"];
    for (const stray of answers) {
      const sockets: TLSSocket[] = [];
      const receiver = await receive((socket) => {
        sockets.push(socket);
        socket.write(OK);
      });
      const by = await sender();
      const url = `https://localhost:${receiver.port}/`;
      expect(await post(by, url)).toEqual(ACCEPTED);
      // In the phase of a turn in which sockets are polled: what is written here is polled in the next turn.
      const posted = await new Promise<Promise<Outcome>>((resolve) =>
        stat(".", () => {
          sockets[0]?.write(status(stray));
          resolve(post(by, url));
        }),
      );
      expect(await posted).toEqual(ACCEPTED);
      expect(receiver.connections).toBe(2);
    }
  });

  it("are not used beyond half a minute, however busy", async () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    const receiver = await receive(answering(OK));
    const by = await sender();
    const used: number[] = [];
    // Steps shorter than the idle time, so that nothing but the age can end the first connection.
    for (let seconds = 0; seconds <= 36; seconds += 3) {
      await post(by, `https://localhost:${receiver.port}/`);
      used.push(receiver.connections);
      vi.advanceTimersByTime(3_000);
    }
    expect(used).toEqual([...Array(10).fill(1), ...Array(3).fill(2)]);
  });

  it("lie idle in a bounded number over all origins, the one idle longest making way", async () => {
    const receiver = await receive(answering(OK), { dns: ["*.many.test"] });
    const by = await sender({ maxIdleConnections: 3 });
    const to = (i: number) => post(by, `https://n${i}.many.test:${receiver.port}/`);
    for (let i = 0; i < 5; i++) await to(i);
    const [, ms] = await timed(() => receiver.openAtMost(3));
    expect(ms).toBeLessThan(1_000);
    expect(receiver.openNow).toBe(3);
    for (let i = 2; i < 5; i++) await to(i);
    expect(receiver.connections).toBe(5);
    await to(0);
    expect(receiver.connections).toBe(6);
  });

  it("do not last longer than the receiver's answer allows, though it allows ten minutes", async () => {
    const receiver = await receive(answering(status("200 OK", "keep-alive: timeout=600")));
    const by = await sender();
    await post(by, `https://localhost:${receiver.port}/`);
    const startedAt = performance.now();
    await receiver.allClosed();
    expect(performance.now() - startedAt).toBeLessThan(4_500);
  });
});

describe("those who wait for a connection", () => {
  it.each(["a stop", "a shared signal"])("are lent none while %s ends them all", async (how) => {
    const listener = await listenTcp();
    const by = await sender({ connectionsPerOrigin: 2 });
    const controller = new AbortController();
    const url = `https://127.0.0.1:${listener.port}/`;
    const posts = Array.from({ length: 100 }, () => post(by, url, controller.signal));
    await listener.connected(2);
    const dial = vi.spyOn(Socket.prototype, "connect");
    if (how === "a stop") await by.close();
    else controller.abort();
    expect(new Set((await Promise.all(posts)).map(({ kind }) => kind))).toEqual(new Set([ABORTED.kind]));
    await new Promise(setImmediate);
    expect(dial).not.toHaveBeenCalled();
    expect(listener.connections).toBe(2);
  });

  it("are lent none at the deadline they share, and meet it", async () => {
    const listener = await listenTcp();
    const by = await sender({ connectionsPerOrigin: 8, timeoutMs: 400 });
    const url = `https://127.0.0.1:${listener.port}/`;
    const [outcomes, ms] = await timed(() => Promise.all(Array.from({ length: 2_000 }, () => post(by, url))));
    expect(outcomes.every((outcome) => JSON.stringify(outcome) === JSON.stringify(TIMEOUT))).toBe(true);
    expect(ms).toBeLessThan(900);
    // Some began a millisecond later than the others, and may be lent a place just freed.
    expect(listener.connections).toBeLessThan(100);
  });
});

describe("connections that still read a body", () => {
  const begun = () =>
    receive((socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx"), {
      dns: ["*.many.test"],
    });

  it("count among the idle: past the limit the one that has read longest ends", async () => {
    const receivers = await Promise.all(Array.from({ length: 5 }, begun));
    const by = await sender({ maxIdleConnections: 3 });
    const to = (receiver: Receiver) => post(by, `https://a.many.test:${receiver.port}/`);
    const startedAt = performance.now();
    for (const receiver of receivers) expect(await to(receiver)).toMatchObject({ kind: "accepted" });
    const [first, second, ...others] = receivers as [Receiver, Receiver, ...Receiver[]];
    await Promise.all([first.allClosed(), second.allClosed()]);
    // Before their own limit of a second ends them all.
    expect(performance.now() - startedAt).toBeLessThan(900);
    expect(others.map(({ openNow }) => openNow)).toEqual([1, 1, 1]);
  });

  it("take one place of the idle ones, and after that each other's", async () => {
    const idle = await Promise.all([receive(answering(OK)), receive(answering(OK))]);
    const reading = await Promise.all([begun(), begun(), begun()]);
    const by = await sender({ maxIdleConnections: 2 });
    for (const { port } of idle) await post(by, `https://localhost:${port}/`);
    for (const { port } of reading) await post(by, `https://a.many.test:${port}/`);
    const [longestIdle, otherIdle, ...others] = [...idle, ...reading];
    await Promise.all([longestIdle?.allClosed(), others[0]?.allClosed(), others[1]?.allClosed()]);
    expect([otherIdle?.openNow, others[2]?.openNow]).toEqual([1, 1]);
  });
});
