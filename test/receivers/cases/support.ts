// What the tables of cases share: what an outcome may say, a look-up that counts its questions, a view of
// every connection begun, and peers that only one table needs.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, isIP, Socket } from "node:net";
import { promisify } from "node:util";
import { expect, onTestFinished, vi } from "vitest";
import {
  createSender,
  EgressRefusal,
  type Outcome,
  parseDestinations,
  type Sender,
  type SystemLookup,
} from "../../../src/egress/index.ts";
import { authority, post, type Told } from "../harness.ts";

export const PUBLIC = "93.184.216.34";
export const PUBLIC_SIX = "2606:4700:4700::1111";
export const DESTINATION = { kind: "failed", category: "destination not permitted", retryable: false };
export const ADDRESS = { kind: "failed", category: "address not permitted", retryable: false };

/** A failure that is tried again. */
export const failure = (category: string) => ({ kind: "failed", category, retryable: true });

/** The words of contract section 9; nothing else may be stored of a failed attempt. */
const CATEGORY = new RegExp(
  `^(?:${[
    "(?:destination|address) not permitted",
    "redirect not followed",
    "destination (?:answered|refused with) [1-9][0-9]{2}",
    "timeout",
    "connection refused",
    "tls failure",
    "network error",
  ].join("|")})$`,
);
const FIELDS = {
  accepted: ["kind", "status"],
  failed: ["category", "kind", "retryable", "retryAfterMs", "status"],
  aborted: ["kind"],
};
/** An IPv4 address, two groups of an IPv6 address, a host's port, an error's code, a line of HTTP or PEM. */
const TELLTALE =
  /\d+\.\d+\.\d+\.\d+|[\da-f]{0,4}:[\da-f]{0,4}:|\w:\d{2,5}\b|\bE[A-Z]{4,}|_ERR_|CERT|HTTP\/|[\r\n]/;

/** No address, port, name behind a name, certificate's name or raw byte: nothing of these in what is told. */
function expectSilent(told: object | string, secrets: readonly (string | number)[]): void {
  const text = typeof told === "string" ? told : Object.values(told).join(" ");
  expect(text).not.toMatch(TELLTALE);
  for (const secret of secrets) expect(text).not.toContain(String(secret));
}

/**
 * Holds an outcome to the closed list, whatever the failure was; `secrets` are what this one must not tell
 * besides. An outcome is all that is stored of an attempt, and so all that a client can be shown.
 */
export function expectClean(outcome: Outcome, ...secrets: (string | number)[]): void {
  expect(FIELDS[outcome.kind]).toEqual(expect.arrayContaining(Object.keys(outcome)));
  if (outcome.kind === "failed") expect(outcome.category).toMatch(CATEGORY);
  for (const value of Object.values(outcome)) expect(["string", "number", "boolean"]).toContain(typeof value);
  expectSilent(outcome, secrets);
}

/** Posts; the outcome has been held to `expectClean`, the port in the URL among its secrets. */
export async function posted(by: Sender, url: string, ...secrets: (string | number)[]): Promise<Outcome> {
  const outcome = await post(by, url);
  expectClean(outcome, ...(/:(\d{3,5})\//.exec(url)?.slice(1) ?? []), ...secrets);
  return outcome;
}

/**
 * A sender for what is to end before a certificate is looked at. One that trusts an authority besides the
 * process's own costs some 100 ms on Node 22.
 */
export function refusing(
  list: string,
  permitPrivate: boolean,
  lookup: SystemLookup,
  timeoutMs = 5_000,
): Sender {
  const by = createSender({
    destinations: parseDestinations(list),
    permitPrivate,
    timeoutMs,
    userAgent: "taisce-notify/test",
    connectionsPerOrigin: 4,
    lookup,
    answerLifetimeMs: 0,
  });
  onTestFinished(() => by.close());
  return by;
}

/** Neither registration nor an attempt lets it pass, and neither says what it leads to. */
export async function expectRefused(by: Sender, url: string, ...secrets: (string | number)[]): Promise<void> {
  const error: unknown = await by.vet(url).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(EgressRefusal);
  expect(error).toMatchObject({ category: "destination not permitted" });
  expect(error).not.toHaveProperty("cause");
  expectSilent(String(error), secrets);
  expectSilent({ ...(error as EgressRefusal), code: "" }, secrets);
  expect(await posted(by, url, ...secrets)).toEqual(DESTINATION);
}

/** One answer a look-up, the last one again and again; `asked` are the names, in order. */
export function answers(...each: string[][]): SystemLookup & { asked: string[] } {
  const asked: string[] = [];
  const lookup: SystemLookup = async (hostname) => {
    const addresses = each[Math.min(asked.length, each.length - 1)] ?? [];
    asked.push(hostname);
    return addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  };
  return Object.assign(lookup, { asked });
}

const THIS_HOST = /^(?:127\.|0\.|::1?$|::ffff:7f|localhost$)/;

/**
 * Until the test ends: every connection begun is listed as host and port, and goes to `port` instead, so that
 * a URL's own port may be one that no test can listen on. To an address of another host nothing is sent.
 */
export function watchDials(port: number): string[] {
  const dials: string[] = [];
  const dial = Socket.prototype.connect as (...args: unknown[]) => Socket;
  const spy = vi.spyOn(Socket.prototype, "connect").mockImplementation(function (
    this: Socket,
    ...args: unknown[]
  ) {
    const target = [args[0]].flat()[0] as { host: string; port: number };
    dials.push(`${target.host} ${target.port}`);
    if (isIP(target.host) !== 0 && !THIS_HOST.test(target.host)) {
      process.nextTick(() => this.destroy(new Error("another host")));
      return this;
    }
    target.port = port;
    return dial.apply(this, args);
  });
  onTestFinished(() => spy.mockRestore());
  return dials;
}

/**
 * A TCP port that hands what it hears on to another, and keeps the first bytes of each connection. When the
 * far end closes, the near one is closed, or reset.
 */
export async function tap(
  port: number,
  { host = "127.0.0.1", reset = false } = {},
): Promise<{ port: number; first: Buffer[] }> {
  const first: Buffer[] = [];
  const server = createServer((socket) => {
    socket.once("data", (chunk: Buffer) => first.push(chunk));
    const onward = connect(port, host);
    for (const end of [socket, onward]) end.on("error", () => {});
    socket.pipe(onward).pipe(socket, { end: false });
    onward.once("close", () => (reset ? socket.resetAndDestroy() : socket.end()));
  });
  server.listen(0, host);
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { port: (server.address() as AddressInfo).port, first };
}

/** The extensions of a ClientHello (RFC 8446 section 4.1.2), by their numbers. */
function extensionsOf(hello: Buffer): Map<number, Buffer> {
  const found = new Map<number, Buffer>();
  // Record header, handshake header, version and random; then session id, cipher suites, compressions.
  let at = 5 + 4 + 2 + 32;
  at += 1 + hello.readUInt8(at);
  at += 2 + hello.readUInt16BE(at);
  at += 1 + hello.readUInt8(at);
  const end = at + 2 + hello.readUInt16BE(at);
  for (at += 2; at < end; at += 4 + hello.readUInt16BE(at + 2)) {
    found.set(hello.readUInt16BE(at), hello.subarray(at + 4, at + 4 + hello.readUInt16BE(at + 2)));
  }
  return found;
}

/** The name that a ClientHello asks for (RFC 6066 section 3), or undefined where it asks for none. */
export function serverNameIn(hello: Buffer): string | undefined {
  return extensionsOf(hello).get(0)?.toString("latin1", 5);
}

/** The versions of TLS that a ClientHello offers, as on the wire: 0303 is 1.2. */
export function versionsIn(hello: Buffer): string[] {
  return extensionsOf(hello).get(43)?.toString("hex", 1).match(/.{4}/g) ?? [];
}

/** Listens on a free port, prints it, and is stopped: the kernel alone answers, until its queue of one is full. */
const STOPPED_LISTENER = `
  const server = require("node:net").createServer();
  server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => {
    process.stdout.write(String(server.address().port), () => process.kill(process.pid, "SIGSTOP"));
  });`;

/** A port on 127.0.0.1 whose accept queue is full until the test ends: a SYN to it gets no answer. */
export async function blackHole(): Promise<number> {
  const child = spawn(process.execPath, ["-e", STOPPED_LISTENER]);
  onTestFinished(() => void child.kill("SIGKILL"));
  const [text] = await once(child.stdout, "data");
  const port = Number(text);
  const fillers = Array.from({ length: 6 }, () => connect(port, "127.0.0.1").on("error", () => {}));
  onTestFinished(() => {
    for (const filler of fillers) filler.destroy();
  });
  await Promise.all(fillers.slice(0, 2).map((filler) => once(filler, "connect")));
  return port;
}

/** A port nothing listens on: the kernel gave it a moment ago, and it was closed. */
export async function closedPort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

const POSTING_PROCESS = new URL("./posting-process.ts", import.meta.url).pathname;

/** One post to each port from a process with that environment, and what a plain TLS client gets there beside it. */
export async function postFromProcess(ports: readonly number[], env: NodeJS.ProcessEnv): Promise<Told[]> {
  const asked = JSON.stringify({ ports, extraCa: (await authority()).certPem });
  const { PATH } = process.env;
  const environment = { env: { PATH, ...env } };
  const { stdout } = await promisify(execFile)(process.execPath, [POSTING_PROCESS, asked], environment);
  return JSON.parse(stdout);
}
