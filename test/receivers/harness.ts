// Receivers that behave as a test says, byte by byte, on real sockets; and senders that trust them.

import { execFile } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type TLSSocket, type TlsOptions } from "node:tls";
import { promisify } from "node:util";
import { afterAll } from "vitest";
import { type Authority, createAuthority } from "../../src/demo/authority.ts";
import { Attempt, type Check } from "../../src/egress/attempt.ts";
import { Connections } from "../../src/egress/connections.ts";
import { createConnector } from "../../src/egress/connector.ts";
import {
  createSender,
  type Outcome,
  parseDestinations,
  type Sender,
  type SenderOptions,
} from "../../src/egress/index.ts";
import { createResolver } from "../../src/egress/resolver.ts";
import { createTrust } from "../../src/egress/trust.ts";

let made: Promise<Authority> | undefined;
const open = new Set<{ close(): Promise<unknown> }>();

afterAll(async () => {
  await Promise.all(Array.from(open, (each) => each.close()));
});

/** The authority of this test file. */
export function authority(): Promise<Authority> {
  made ??= createAuthority();
  return made;
}

export interface Listener {
  readonly port: number;
  /** TCP connections accepted so far. */
  readonly connections: number;
  /** Connections open now. */
  readonly openNow: number;
  /** Bytes that came in, over all of them, below TLS. */
  readonly bytes: number;
  /** Resolves when that many connections have been accepted in all. */
  connected(count: number): Promise<void>;
  /** Resolves when no more than that many connections are open. */
  openAtMost(count: number): Promise<void>;
  /** Resolves when no connection is open any more. */
  allClosed(): Promise<void>;
  close(): Promise<void>;
}

/** A TCP listener; `onSocket` does as it likes with each connection. */
export async function listenTcp(
  onSocket: (socket: Socket) => void = () => {},
  host = "127.0.0.1",
): Promise<Listener> {
  const server = createServer({ allowHalfOpen: false }, (socket) => {
    socket.on("error", () => {});
    // Unread bytes would hide the other side's close.
    socket.resume();
    onSocket(socket);
  });
  return listening(server, host);
}

export interface Receiver extends Listener {
  /** Each request as it arrived, head and body. */
  readonly requests: readonly string[];
  /** Resolves when that many requests have arrived in all. */
  requested(count: number): Promise<void>;
  /** TLS handshakes that ended well so far. */
  readonly handshakes: number;
}

export interface ReceiverOptions {
  host?: string;
  dns?: string[];
  ip?: string[];
  notBefore?: Date;
  notAfter?: Date;
  tls?: TlsOptions;
}

/** A TLS receiver. `onRequest` is given the socket each time a whole request has come in. */
export async function receive(
  onRequest: (socket: TLSSocket, request: string) => void,
  { host = "127.0.0.1", tls, ...names }: ReceiverOptions = {},
): Promise<Receiver> {
  const certificate = await (await authority()).issue({
    dns: ["localhost"],
    ip: ["127.0.0.1", "::1"],
    ...names,
  });
  const requests: string[] = [];
  const arrived = createCounter();
  let handshakes = 0;
  // Without delay, or the second of two writes waits for the first one's acknowledgement.
  const keys = { cert: certificate.certPem, key: certificate.keyPem, noDelay: true };
  const server = createTlsServer({ ...keys, ...tls }, (socket) => {
    handshakes += 1;
    let text = "";
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      text += chunk.toString("latin1");
      for (let end = endOfRequest(text); end !== -1; end = endOfRequest(text)) {
        const request = text.slice(0, end);
        text = text.slice(end);
        requests.push(request);
        onRequest(socket, request);
        arrived.add();
      }
    });
  });
  const listener = await listening(server, host);
  return Object.create(listener, {
    requests: { value: requests },
    requested: { value: (count: number) => arrived.reached(count) },
    handshakes: { get: () => handshakes },
  });
}

/** Answers every request with this text and keeps the connection. */
export const answering = (answer: string) => (socket: TLSSocket) => {
  socket.write(answer);
};

/** An answer without a body, such as `status("204 No Content")`. */
export function status(line: string, ...headers: string[]): string {
  return [`HTTP/1.1 ${line}`, "content-length: 0", ...headers, "", ""].join("\r\n");
}

/** The sender of a test: trusts the file's authority, may go inside, and knows `*.test` as 127.0.0.1. */
export async function sender(options: Partial<SenderOptions> = {}): Promise<Sender> {
  const made = createSender({
    destinations: parseDestinations("localhost, .test, 127.0.0.1, [::1]"),
    permitPrivate: true,
    extraCa: (await authority()).certPem,
    timeoutMs: 5_000,
    userAgent: "taisce-notify/test",
    connectionsPerOrigin: 4,
    lookup: async () => [{ address: "127.0.0.1", family: 4 }],
    ...options,
  });
  open.add(made);
  return made;
}

/** A post that says nothing in particular. */
export function post(sender: Sender, url: string, signal?: AbortSignal): Promise<Outcome> {
  return sender.post(url, { "content-type": "application/json" }, '{"a":1}', signal);
}

/** A sender's inside: connections that can be counted, and attempts on them whose check is the test's. */
export async function pool({ permitsAddress = (_address: string): boolean => true } = {}) {
  const connections = new Connections(
    createConnector({
      resolver: createResolver(),
      permitsHost: () => true,
      permitsAddress,
      trust: createTrust((await authority()).certPem),
    }),
    1,
    10,
  );
  open.add(connections);
  const attempt = (origin: string, path = "/", check: Check = () => undefined) =>
    new Promise<Outcome>((resolve) => {
      const request = { origin, path, headers: [], body: "{}", timeoutMs: 60_000, signal: undefined };
      new Attempt(request, connections, (_attempt, outcome) => resolve(outcome)).start(check);
    });
  return { attempt, connections };
}

/** Milliseconds that something took, and what came of it. */
export async function timed<T>(act: () => Promise<T>): Promise<[result: T, ms: number]> {
  const startedAt = performance.now();
  return [await act(), performance.now() - startedAt];
}

/** What `lone-sender.ts` said: its post's outcome, and what a plain TLS client got beside it. */
export interface Told {
  outcome: unknown;
  plain: string;
}

/** A post from a process of its own, for what only the environment or the command line of one can set. */
export async function postAlone(
  asked: object,
  env: NodeJS.ProcessEnv = {},
  execArgv: string[] = [],
): Promise<Told> {
  const args = [...execArgv, LONE_SENDER, JSON.stringify(asked)];
  const { PATH } = process.env;
  const { stdout } = await promisify(execFile)(process.execPath, args, { env: { PATH, ...env } });
  return JSON.parse(stdout);
}

const LONE_SENDER = new URL("./lone-sender.ts", import.meta.url).pathname;

function endOfRequest(text: string): number {
  const head = text.indexOf("\r\n\r\n");
  if (head === -1) return -1;
  const length = Number(/\r\ncontent-length: (\d+)/i.exec(text.slice(0, head))?.[1] ?? 0);
  return text.length >= head + 4 + length ? head + 4 + length : -1;
}

async function listening(server: Server, host: string): Promise<Listener> {
  const sockets = new Set<Socket>();
  const arrived = createCounter();
  const closed = createCounter();
  let closedBytes = 0;
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => {
      closedBytes += socket.bytesRead;
      sockets.delete(socket);
      closed.add();
    });
    arrived.add();
  });
  server.listen(0, host);
  await once(server, "listening");
  const listener: Listener = {
    port: (server.address() as AddressInfo).port,
    get connections() {
      return arrived.count;
    },
    get openNow() {
      return sockets.size;
    },
    get bytes() {
      return Array.from(sockets).reduce((sum, socket) => sum + socket.bytesRead, closedBytes);
    },
    connected: (count) => arrived.reached(count),
    openAtMost: (count) => closed.reached(arrived.count - count),
    allClosed: () => closed.reached(arrived.count),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
  open.add(listener);
  return listener;
}

function createCounter() {
  let waiting: [count: number, tell: () => void][] = [];
  const counter = {
    count: 0,
    add() {
      counter.count += 1;
      for (const [count, tell] of waiting) if (counter.count >= count) tell();
      waiting = waiting.filter(([count]) => counter.count < count);
    },
    reached: (count: number) =>
      new Promise<void>((resolve) => {
        if (counter.count >= count) resolve();
        else waiting.push([count, resolve]);
      }),
  };
  return counter;
}
