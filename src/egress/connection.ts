/** One kept connection: a socket, the HTTP/1.1 spoken on it, and how long and how much it may carry. */
import type { EventEmitter } from "node:events";
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
 * Bytes read for one answer in all, and as many while idle. undici counts neither informational answers nor
 * chunk extensions, reason phrases and blank lines; a head and a body at their limits, the body in chunks of
 * one byte, stay below it.
 */
const MAX_READ_BYTES = 131_072;

/**
 * One socket and the undici client that speaks HTTP/1.1 on it. It dials once: where undici would silently
 * dial again (a kept socket found dead), the request fails with EGRESS_STALE, unsent.
 */
export class Connection {
  readonly lane: Lane;
  readonly #client: Client;
  readonly #openedAt = performance.now();
  #socket: TLSSocket | undefined;
  #dialled = false;
  #readBefore = 0;

  constructor(lane: Lane, dial: Connector, onClosed: (connection: Connection) => void) {
    this.lane = lane;
    this.#client = new Client(lane.origin, {
      connect: (target, done) => {
        if (this.#dialled) {
          process.nextTick(done, new EgressError("EGRESS_STALE", "the kept connection was closed"), null);
          return;
        }
        this.#dialled = true;
        this.#socket = dial(target, done);
        // On before undici's own, so that what is too much is not parsed first.
        this.#socket?.on("readable", () => this.#dropIfTooMuchCame());
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

  /** A new answer, or a new time of lying idle, begins: it may bring as many bytes as any other. */
  countAnew(): void {
    this.#readBefore = this.#socket?.bytesRead ?? 0;
  }

  #dropIfTooMuchCame(): void {
    if ((this.#socket?.bytesRead ?? 0) - this.#readBefore <= MAX_READ_BYTES) return;
    this.#socket?.destroy(new EgressError("EGRESS_DROPPED", "the receiver sends without end"));
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
    this.#socket?.destroy(error);
    return destroyed;
  }
}
