// A real HTTPS receiver in this process: the demo shows its deliveries, the tests make it misbehave.

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { verify } from "../signing/index.ts";
import type { Certificate } from "./authority.ts";

/** One request as it arrived. */
export interface ReceivedRequest {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  /** Names in lower case, as Node gives them. */
  readonly headers: IncomingHttpHeaders;
  readonly rawBody: Buffer;
  /** When head and body had been read: milliseconds since 1970, with a fraction (`performance`'s clock). */
  readonly receivedAt: number;
  /** Whether the signature held; undefined where no secret is known for the path. */
  readonly verified: boolean | undefined;
}

/** What to answer with: a status, a whole answer, silence with the socket open, or a TCP reset. */
export type Answer =
  | number
  | {
      readonly status: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly body?: string;
      readonly delayMs?: number;
    }
  | "hang"
  | "reset";

export interface ReceiverOptions {
  readonly certificate: Certificate;
  /** Address to listen on; default 127.0.0.1. */
  readonly host?: string;
  /** Default 0: any free port. */
  readonly port?: number;
  /** The signing secret of a path, as it was shown at registration. */
  readonly secretFor?: (path: string) => string | undefined;
  /** Default: 204 to everything. One that throws answers 500. */
  readonly answer?: (request: ReceivedRequest) => Answer | Promise<Answer>;
}

export interface Receiver extends AsyncDisposable {
  readonly port: number;
  /** `https://localhost:<port>` and the path. */
  url(path: string): string;
  /** Every request whose body was read to its end, oldest first. */
  readonly received: readonly ReceivedRequest[];
  /** TCP connections accepted so far. */
  readonly connections: number;
  /**
   * The oldest request that matches and that no earlier `next` returned; waits for one where there is none.
   * Rejects after `timeoutMs` (default 10 s), and when the receiver closes.
   */
  next(predicate?: (request: ReceivedRequest) => boolean, timeoutMs?: number): Promise<ReceivedRequest>;
  /** Stops listening and cuts every connection, hung ones too. Safe to call twice. */
  close(): Promise<void>;
}

/**
 * Starts a receiver; it listens when the promise resolves, and rejects where the port is taken.
 *
 * @example
 * const authority = await createAuthority();
 * const receiver = await startReceiver({ certificate: await authority.issue({ dns: ["localhost"] }) });
 * const request = await receiver.next();
 */
export async function startReceiver(options: ReceiverOptions): Promise<Receiver> {
  const { certificate, host = "127.0.0.1", port = 0, secretFor, answer = () => 204 } = options;
  const inbox = createInbox();
  const sockets = new Map<string, Socket>();
  const closing = new AbortController();
  let connections = 0;

  const server = createServer(
    { cert: certificate.certPem, key: certificate.keyPem, ALPNProtocols: ["http/1.1"] },
    (request, response) => {
      serve(request, response).catch(() => response.destroy());
    },
  );
  // Above the five seconds of Node's default, so that a sender's kept connection is not closed under it.
  server.keepAliveTimeout = 30_000;
  server.on("connection", (socket: Socket) => {
    connections += 1;
    const peer = peerOf(socket);
    sockets.set(peer, socket);
    socket.once("close", () => sockets.delete(peer));
  });

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const received = await read(request, secretFor);
    inbox.add(received);
    const chosen = await choose(received);
    if (chosen === "hang") return;
    if (chosen === "reset") {
      // The TCP socket below TLS: a TLS socket can only be closed in good order.
      sockets.get(peerOf(request.socket))?.resetAndDestroy();
      return;
    }
    const {
      status,
      headers = {},
      body = "",
      delayMs = 0,
    } = typeof chosen === "number" ? { status: chosen } : chosen;
    if (delayMs > 0) await delay(delayMs, undefined, { signal: closing.signal });
    response.writeHead(status, headers).end(body);
  }

  async function choose(request: ReceivedRequest): Promise<Answer> {
    try {
      return await answer(request);
    } catch (error) {
      return { status: 500, body: String(error) };
    }
  }

  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => resolve());
  });
  const { port: boundPort } = server.address() as AddressInfo;

  let closed: Promise<void> | undefined;
  const close = () => {
    closed ??= new Promise<void>((resolve) => {
      server.close(() => resolve());
      closing.abort();
      for (const socket of sockets.values()) socket.destroy();
      inbox.close();
    });
    return closed;
  };

  return {
    port: boundPort,
    url: (path) => new URL(path, `https://localhost:${boundPort}`).href,
    received: inbox.received,
    get connections() {
      return connections;
    },
    next: inbox.next,
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function read(
  request: IncomingMessage,
  secretFor: ReceiverOptions["secretFor"],
): Promise<ReceivedRequest> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const receivedAt = performance.timeOrigin + performance.now();
  const { method = "", url: path = "", headers } = request;
  const rawBody = Buffer.concat(chunks);
  const secret = secretFor?.(path);
  const verified =
    secret === undefined
      ? undefined
      : verify({ secret, header: headers["taisce-signature"], body: rawBody }).ok;
  return { method, path, headers, rawBody, receivedAt, verified };
}

function peerOf(socket: Socket): string {
  return `${socket.remoteAddress} ${socket.remotePort}`;
}

interface Waiter {
  readonly matches: (request: ReceivedRequest) => boolean;
  readonly settle: (outcome: ReceivedRequest | Error) => void;
}

// What arrived, what of it nobody took yet, and who waits for more.
function createInbox() {
  const received: ReceivedRequest[] = [];
  const untaken: ReceivedRequest[] = [];
  const waiters = new Set<Waiter>();
  let open = true;

  function add(request: ReceivedRequest): void {
    received.push(request);
    for (const waiter of waiters) {
      if (waiter.matches(request)) {
        waiter.settle(request);
        return;
      }
    }
    untaken.push(request);
  }

  function next(matches: Waiter["matches"] = () => true, timeoutMs = 10_000): Promise<ReceivedRequest> {
    const at = untaken.findIndex(matches);
    const [found] = at === -1 ? [] : untaken.splice(at, 1);
    if (found !== undefined) return Promise.resolve(found);
    if (!open) return Promise.reject(new Error("the receiver is closed"));
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        matches,
        settle: (outcome) => {
          clearTimeout(timer);
          waiters.delete(waiter);
          if (outcome instanceof Error) reject(outcome);
          else resolve(outcome);
        },
      };
      const timer = setTimeout(() => {
        waiter.settle(new Error(`no such request in ${timeoutMs} ms; ${received.length} arrived in all`));
      }, timeoutMs);
      waiters.add(waiter);
    });
  }

  function close(): void {
    open = false;
    for (const waiter of waiters) waiter.settle(new Error("the receiver closed while waited for"));
  }

  return { received, add, next, close };
}
