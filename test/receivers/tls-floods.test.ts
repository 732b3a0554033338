// Messages of TLS itself, of which nothing above TLS hears: a receiver that sends them without end is cut off,
// whether its answer is awaited or its connection lies idle.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { answering, authority, listenTcp, post, receive, sender, status } from "./harness.ts";

const SCRIPT = new URL("./tls-flood.py", import.meta.url).pathname;
const NETWORK_ERROR = { kind: "failed", category: "network error", retryable: true };
const KINDS = ["key-updates", "mixed-key-updates", "answered-key-updates", "tickets", "hello-requests"];
const ACCEPTED = { kind: "accepted", status: 204 };

let folder: string;
const children = new Set<ReturnType<typeof spawn>>();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tls-flood-"));
  const { certPem, keyPem } = await (await authority()).issue({ dns: ["localhost"], ip: [] });
  await writeFile(join(folder, "cert.pem"), certPem);
  await writeFile(join(folder, "key.pem"), keyPem, { mode: 0o600 });
});

afterAll(async () => {
  for (const child of children) child.kill("SIGKILL");
  await rm(folder, { recursive: true, force: true });
});

/** The port of a flooding receiver, and the lines it prints when a connection of its has ended. */
async function flooding(kind: string, when: string) {
  const args = [SCRIPT, kind, when, join(folder, "cert.pem"), join(folder, "key.pem")];
  const child = spawn("python3", args, { stdio: ["ignore", "pipe", "inherit"] });
  children.add(child);
  await once(child, "spawn");
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const next = async () => (await lines.next()).value;
  return { port: Number(await next()), next };
}

/** Whether no further connection has ended within a moment: the receiver would print a line. */
async function saysNothing(next: () => Promise<string | undefined>): Promise<boolean> {
  const moment = new Promise((resolve) => setTimeout(resolve, 100));
  return (await Promise.race([next(), moment])) === undefined;
}

describe("a flood of", () => {
  it.each(KINDS)("%s in place of an answer ends the attempt before its time limit", async (kind) => {
    const { port, next } = await flooding(kind, "instead");
    const by = await sender({ timeoutMs: 25_000 });
    expect(await post(by, `https://localhost:${port}/`)).toEqual(NETWORK_ERROR);
    expect(await next()).toMatch(/^closed after [1-9]\d\d+$/);
  });

  it.each(KINDS)("%s on an idle connection ends it, and bars its origin for a while", async (kind) => {
    const { port, next } = await flooding(kind, "idle");
    const healthy = await receive(answering(status("204 No Content")));
    const by = await sender();
    expect(await post(by, `https://localhost:${port}/`)).toEqual(ACCEPTED);
    expect(await next()).toMatch(/^closed after [1-9]\d\d+$/);
    expect(await post(by, `https://localhost:${port}/`)).toEqual(NETWORK_ERROR);
    expect(await saysNothing(next)).toBe(true);
    // Others at the host and its address are other people's, perhaps.
    expect(await post(by, `https://localhost:${healthy.port}/`)).toEqual(ACCEPTED);
    // It may be registered: what is sent to it later is another matter.
    expect((await by.vet(`https://localhost:${port}/`)).hostname).toBe("localhost");
  });

  it("any kind is met by one connection, however many posts wait for their turn", async () => {
    const { port, next } = await flooding("key-updates", "instead");
    const by = await sender({ timeoutMs: 25_000, connectionsPerOrigin: 1 });
    const posts = Array.from({ length: 5 }, () => post(by, `https://localhost:${port}/`));
    expect(await Promise.all(posts)).toEqual(Array(5).fill(NETWORK_ERROR));
    await next();
    expect(await saysNothing(next)).toBe(true);
  });
});

describe("a chain of certificates", () => {
  it("too long for any receiver's bars it: each signature in it is checked before anyone vouches for it", async () => {
    const { certPem, keyPem } = await (await authority()).issue({ dns: ["localhost"], ip: [] });
    const long = { cert: certPem.repeat(90), key: keyPem };
    const receiver = await receive(answering(status("204 No Content")), { tls: long });
    const by = await sender();
    for (let i = 0; i < 2; i++) {
      expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual(NETWORK_ERROR);
    }
    expect(receiver.connections).toBe(1);
  });
});

describe("what is no flood", () => {
  it("an answer in records of one byte each, be it long", async () => {
    const receiver = await receive((socket) => {
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 4000\r\n\r\n");
      for (let byte = 0; byte < 4_000; byte++) socket.write("x");
    });
    const by = await sender();
    for (let i = 0; i < 2; i++) {
      expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual({
        kind: "accepted",
        status: 200,
      });
    }
  });

  it("a full record whose last segment is late", async () => {
    const late = { forwarded: 0, holdAt: Number.POSITIVE_INFINITY };
    const receiver = await receive((socket) => {
      late.holdAt = late.forwarded + 16_300;
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: 40000\r\n\r\n${"x".repeat(40_000)}`);
    });
    const relay = await listenTcp((socket) => {
      const to = connect(receiver.port, "127.0.0.1");
      to.on("error", () => {});
      socket.on("data", (chunk) => to.write(chunk));
      socket.on("close", () => to.destroy());
      to.on("data", (chunk) => {
        const now = chunk.subarray(0, Math.max(0, late.holdAt - late.forwarded));
        late.forwarded += now.length;
        socket.write(now);
        if (now.length < chunk.length) setTimeout(() => socket.write(chunk.subarray(now.length)), 200);
      });
    });
    const by = await sender();
    expect(await post(by, `https://localhost:${relay.port}/`)).toEqual({ kind: "accepted", status: 200 });
  });
});
