/** One kept connection: a socket, the HTTP/1.1 spoken on it, and how long and how much it may carry. */
import type { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { Client, type Dispatcher } from "undici";
import type { Lane } from "./connections.ts";
import type { Connector } from "./connector.ts";
import { EgressError } from "./failure.ts";

/** Milliseconds a connection may lie idle, whatever the receiver offers. */
const IDLE_MS = 4_000;
/** Milliseconds taken off the idle time a receiver announces, so that its close does not cross a request. */
const IDLE_MARGIN_MS = 1_000;
/** Milliseconds after which a connection is not lent again: its address was vetted, and resolved, that long ago. */
const LIFE_MS = 30_000;
/** Bytes of an answer's head; given here because --max-http-header-size moves the default. */
const MAX_HEAD_BYTES = 16_384;
/** Bytes of an answer's body before its connection is dropped (contract section 8). */
export const MAX_BODY_BYTES = 16_384;
/**
 * Bytes read for one answer in all, as many while idle and as many for the handshake, counted below TLS. undici
 * counts neither informational answers nor chunk extensions, reason phrases and blank lines, and nothing above
 * TLS sees the messages of TLS itself: key updates and requests for a handshake without end. A certificate
 * chain at OpenSSL's limit, or a head and a body at theirs, stay below it.
 */
const MAX_READ_BYTES = 131_072;
/** Milliseconds between two looks at that count on a connection that has nothing for undici to read. */
const COUNT_EVERY_MS = 20;

/** What its owner is told of. */
export interface ConnectionEvents {
  readonly onClosed: (connection: Connection) => void;
  /** The host sent messages of TLS itself without end, which no well-meaning receiver does. */
  readonly onFlood: (hostname: string) => void;
}

/**
 * One socket and the undici client that speaks HTTP/1.1 on it. It dials once: where undici would silently
 * dial again (a kept socket found dead), the request fails with EGRESS_STALE, unsent.
 */
export class Connection {
  readonly lane: Lane;
  readonly #client: Client;
  readonly #openedAt = performance.now();
  /** The TCP socket, from the dialling on. */
  #below: Socket | undefined;
  /** The TLS socket on it, once it may be written to. */
  #socket: TLSSocket | undefined;
  #dialled = false;
  #cameBefore = 0;
  #carriedBefore = 0;
  #failure: Error | undefined;

  constructor(lane: Lane, dial: Connector, { onClosed, onFlood }: ConnectionEvents) {
    this.lane = lane;
    this.#client = new Client(lane.origin, {
      connect: (target, done) => {
        if (this.#dialled) {
          process.nextTick(done, new EgressError("EGRESS_STALE", "the kept connection was closed"), null);
          return;
        }
        this.#dialled = true;
        this.#below = dial(target, (...result) => {
          const [, socket] = result;
          if (socket !== null) this.#watch(socket);
          done(...result);
        });
        if (this.#below !== undefined) this.#count(this.#below, () => onFlood(target.hostname));
      },
      allowH2: false,
      pipelining: 1,
      keepAliveTimeout: IDLE_MS,
      keepAliveMaxTimeout: IDLE_MS,
      keepAliveTimeoutThreshold: IDLE_MARGIN_MS,
      maxHeaderSize: MAX_HEAD_BYTES,
      maxResponseSize: MAX_BODY_BYTES,
      // The attempt's own time limit is the only one: undici's are coarse and one sits on each phase.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    this.#client.on("disconnect", () => onClosed(this));
    // undici's report of a handler that threw; unheard, it would end the process.
    const events: EventEmitter = this.#client;
    events.on("error", () => {});
  }

  dispatch(request: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): void {
    this.#client.dispatch(request, handler);
  }

  /** What ended it, where the TLS socket said so: undici's own error about that has lost the code. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /** A new answer, or a new time of lying idle, begins: it may bring as many bytes as any other. */
  countAnew(): void {
    this.#cameBefore = this.#below?.bytesRead ?? 0;
    this.#carriedBefore = this.#socket?.bytesRead ?? 0;
  }

  /** Its listeners are on before undici's own, so that what is too much is not parsed first. */
  #watch(socket: TLSSocket): void {
    this.#socket = socket;
    socket.on("readable", () => {
      if (this.#came > MAX_READ_BYTES) this.#dropAsEndless();
    });
    socket.on("error", (error) => {
      this.#failure ??= error;
    });
  }

  #count(below: Socket, onFlood: () => void): void {
    const timer = setInterval(() => {
      if (this.#came <= MAX_READ_BYTES) return;
      const carried = (this.#socket?.bytesRead ?? 0) - this.#carriedBefore;
      if (carried < this.#came / 2) onFlood();
      this.#dropAsEndless();
    }, COUNT_EVERY_MS).unref();
    below.once("close", () => clearInterval(timer));
  }

  get #came(): number {
    return (this.#below?.bytesRead ?? 0) - this.#cameBefore;
  }

  #dropAsEndless(): void {
    this.#end(new EgressError("EGRESS_DROPPED", "the receiver sends without end"));
  }

  #end(error: EgressError): void {
    this.#socket?.destroy(error);
    this.#below?.destroy(error);
  }

  get lendable(): boolean {
    const socket = this.#socket;
    return (
      socket !== undefined &&
      !socket.destroyed &&
      socket.readable &&
      socket.writable &&
      performance.now() - this.#openedAt < LIFE_MS
    );
  }

  /** Ends it in whatever state it is. undici does not end a socket that is still connecting, so that is done here. */
  destroy(): Promise<void> {
    const error = new EgressError("EGRESS_DROPPED", "the connection was dropped");
    const destroyed = this.#client.destroy(error);
    this.#end(error);
    return destroyed;
  }
}
