// Bytes that no limit of undici's counts: an answer without end in any of its parts is cut off, whether it
// comes before the status line, after it, or when nobody asked.

import type { TLSSocket } from "node:tls";
import { describe, expect, it, vi } from "vitest";
import { pool, post, receive, sender, status } from "./harness.ts";

const OK = status("204 No Content");
const ACCEPTED = { kind: "accepted", status: 200 };
const NETWORK_ERROR = { kind: "failed", category: "network error", retryable: true };
/** Far more than is read of anything, and far less than a connection takes in the time limit of these posts. */
const BLOCK_BYTES = 65_536;

/** Writes the text, then the unit over and over as fast as it is taken, until the other side closes. */
function flood(socket: TLSSocket, text: string, unit: string): void {
  const block = Buffer.from(unit.repeat(Math.ceil(BLOCK_BYTES / unit.length)), "latin1");
  const pump = () => {
    if (!socket.destroyed && socket.write(block)) setImmediate(pump);
  };
  socket.on("drain", pump);
  socket.write(text, "latin1");
  pump();
}

describe("an answer without end", () => {
  it.each([
    ["blank lines before it", "", "\r\n", NETWORK_ERROR],
    ["informational answers before it", "", "HTTP/1.1 103 Early Hints\r\n\r\n", NETWORK_ERROR],
    ["its reason phrase", "HTTP/1.1 200 ", "A".repeat(64), NETWORK_ERROR],
    ["its head", "HTTP/1.1 200 OK\r\nx: ", "a".repeat(64), NETWORK_ERROR],
    ["a chunk's extension", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", "a", ACCEPTED],
    [
      "chunks of one byte with long extensions",
      "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
      `1;${"b".repeat(60)}\r\nx\r\n`,
      ACCEPTED,
    ],
    ["a trailer", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ", "a", ACCEPTED],
  ])("in %s is cut off long before the time limit", async (_where, first, unit, outcome) => {
    const receiver = await receive((socket) => flood(socket, first, unit));
    const by = await sender({ timeoutMs: 20_000 });
    const startedAt = performance.now();
    expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual(outcome);
    await receiver.allClosed();
    // The drain's own limit would end the connection after a second.
    expect(performance.now() - startedAt).toBeLessThan(900);
    expect(receiver.requests).toHaveLength(1);
  });

  it("may have some informational answers before it, not more than that", async () => {
    const hints = (count: number) => "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(count);
    const counts = [32, 33];
    const receiver = await receive((socket) => socket.write(hints(counts.shift() ?? 0) + OK));
    const by = await sender();
    expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual({ kind: "accepted", status: 204 });
    expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual(NETWORK_ERROR);
  });
});

describe("an idle connection", () => {
  it("on which blank lines come without end is dropped, and the next one opened a second later", async () => {
    const receiver = await receive((socket) => flood(socket, OK, "\r\n"));
    const by = await sender();
    const startedAt = performance.now();
    expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual({ kind: "accepted", status: 204 });
    await receiver.allClosed();
    const droppedAt = performance.now();
    expect(droppedAt - startedAt).toBeLessThan(900);
    expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual({ kind: "accepted", status: 204 });
    expect(performance.now() - droppedAt).toBeGreaterThan(700);
  });
});

describe("of an answer without end", () => {
  it("that had no status line yet, its origin is barred", async () => {
    const hints = "HTTP/1.1 103 Early Hints\r\nx: ".concat("y".repeat(15_000), "\r\n\r\n").repeat(10);
    const receiver = await receive((socket) => socket.write(hints));
    const by = await sender();
    expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual(NETWORK_ERROR);
    expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual(NETWORK_ERROR);
    expect(receiver.connections).toBe(1);
  });
});

describe("the count of what was read", () => {
  it("begins anew with each request: a kept connection may carry far more in all", async () => {
    // Head and body in one TLS record, so that the body is read by the time the post is answered.
    const body = "x".repeat(8_000);
    const receiver = await receive((socket) =>
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`),
    );
    const by = await sender({ connectionsPerOrigin: 1 });
    for (let i = 0; i < 40; i++) {
      expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual(ACCEPTED);
    }
    expect(receiver.connections).toBe(1);
  });

  it("lets a head and a body at their limits pass, be the body in chunks of one byte", async () => {
    const padding = "y".repeat(15_000);
    const chunks = `${"1\r\nx\r\n".repeat(16_000)}0\r\n\r\n`;
    const receiver = await receive((socket) =>
      socket.write(`HTTP/1.1 200 OK\r\nx: ${padding}\r\ntransfer-encoding: chunked\r\n\r\n${chunks}`),
    );
    const { attempt, connections } = await pool();
    expect(await attempt(`https://localhost:${receiver.port}`)).toEqual(ACCEPTED);
    await vi.waitFor(() => expect(connections.counts).toEqual({ origins: 1, open: 1, idle: 1 }));
  });
});
