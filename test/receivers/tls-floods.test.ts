// Messages of TLS itself, of which nothing above TLS hears: a receiver that sends them without end is cut off,
// whether its answer is awaited or its connection lies idle.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { answering, authority, post, receive, sender, status } from "./harness.ts";

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

describe("a flood of", () => {
  it.each(KINDS)("%s in place of an answer ends the attempt before its time limit", async (kind) => {
    const { port, next } = await flooding(kind, "instead");
    const by = await sender({ timeoutMs: 25_000 });
    expect(await post(by, `https://localhost:${port}/`)).toEqual(NETWORK_ERROR);
    expect(await next()).toMatch(/^closed after [1-9]\d\d+$/);
  });

  it.each(KINDS)("%s on an idle connection ends it, and bars its host for a while", async (kind) => {
    const { port, next } = await flooding(kind, "idle");
    const healthy = await receive(answering(status("204 No Content")), { dns: ["localhost"] });
    const by = await sender();
    expect(await post(by, `https://localhost:${port}/`)).toEqual(ACCEPTED);
    expect(await next()).toMatch(/^closed after [1-9]\d\d+$/);
    expect(await post(by, `https://localhost:${healthy.port}/`)).toEqual(NETWORK_ERROR);
    expect(healthy.connections).toBe(0);
    // It may be registered: what is sent to it later is another matter.
    expect((await by.vet(`https://localhost:${port}/`)).hostname).toBe("localhost");
  });

  it("any kind is met by one connection, however many posts wait for their turn", async () => {
    const { port, next } = await flooding("key-updates", "instead");
    const by = await sender({ timeoutMs: 25_000, connectionsPerOrigin: 1 });
    const posts = Array.from({ length: 5 }, () => post(by, `https://localhost:${port}/`));
    expect(await Promise.all(posts)).toEqual(Array(5).fill(NETWORK_ERROR));
    await next();
    // A second connection would have a line of its own before the next process's first one.
    const other = await Promise.race([next(), new Promise((resolve) => setTimeout(resolve, 100))]);
    expect(other).toBeUndefined();
  });

  it("any kind bars its address as well, be the next name another", async () => {
    const { port, next } = await flooding("key-updates", "instead");
    const healthy = await receive(answering(status("204 No Content")), { dns: ["a.test"] });
    const by = await sender();
    expect(await post(by, `https://localhost:${port}/`)).toEqual(NETWORK_ERROR);
    await next();
    expect(await post(by, `https://a.test:${healthy.port}/`)).toEqual(NETWORK_ERROR);
    expect(healthy.handshakes).toBe(0);
  });
});

describe("a chain of certificates", () => {
  it("too long for any receiver's bars it: each signature in it is checked before anyone vouches for it", async () => {
    const { certPem, keyPem } = await (await authority()).issue({ dns: ["localhost"], ip: [] });
    const long = { cert: certPem.repeat(60), key: keyPem };
    const receiver = await receive(answering(status("204 No Content")), { tls: long });
    const by = await sender();
    for (let i = 0; i < 2; i++) {
      expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual(NETWORK_ERROR);
    }
    expect(receiver.connections).toBe(1);
  });
});

describe("an answer in records of one byte", () => {
  it("is no flood", async () => {
    const receiver = await receive((socket) => {
      socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
      for (const byte of "1\r\nx\r\n".repeat(1_000)) socket.write(byte);
      socket.write("0\r\n\r\n");
    });
    const by = await sender();
    for (let i = 0; i < 2; i++) {
      expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual({
        kind: "accepted",
        status: 200,
      });
    }
  });
});
