/** One kept connection: a socket, the HTTP/1.1 spoken on it, and how long and how much it may carry. */
import type { EventEmitter } from "node:events";
import type { TLSSocket } from "node:tls";
import { Client, type Dispatcher } from "undici";
import type { Lane } from "./connections.ts";
import type { Connector, Dialled } from "./connector.ts";
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
 * Bytes read for one answer in all, and as many while idle, counted below TLS. undici counts neither
 * informational answers nor chunk extensions, reason phrases and blank lines; a head and a body at their
 * limits, the body in chunks of one byte, stay below it.
 */
const MAX_READ_BYTES = 131_072;
/**
 * Bytes of a handshake. OpenSSL checks every signature of a chain before it asks whether anyone vouches for it:
 * its own limit of 100 KB lets junk cost this thread 0.8 s, and no receiver's chain is that long.
 */
const MAX_HANDSHAKE_BYTES = 32_768;
/**
 * Bytes of TLS's own, in one answer or while idle, that carry (almost) nothing: key updates, tickets, requests
 * for another handshake. Besides 16 KiB of them, a record may still be on its way that shows only when it is whole.
 * A receiver that sends an answer in records of one byte carries one part in 30.
 */
const MAX_SILENT_BYTES = 16_384 + 16_645;
const SILENT_SHARE = 32;

/** What its owner is told of. */
export interface ConnectionEvents {
  readonly onClosed: (connection: Connection) => void;
  /** The peer sent without end: "flood" where no well-meaning receiver does, else "surplus" after its answer. */
  readonly onEndless: (connection: Connection, what: "flood" | "surplus") => void;
}

/**
 * One socket and the undici client that speaks HTTP/1.1 on it. It dials once: where undici would silently
 * dial again (a kept socket found dead), the request fails with EGRESS_STALE, unsent.
 */
export class Connection {
  readonly lane: Lane;
  readonly #onEndless: ConnectionEvents["onEndless"];
  readonly #client: Client;
  readonly #openedAt = performance.now();
  /** Whether it was dialled, be it in vain. */
  #used = false;
  #dialled: Dialled | undefined;
  /** The TLS socket, once it may be written to. */
  #socket: TLSSocket | undefined;
  #awaiting = false;
  #cameBefore = 0;
  #carriedBefore = 0;
  #failure: Error | undefined;

  constructor(lane: Lane, dial: Connector, { onClosed, onEndless }: ConnectionEvents) {
    this.lane = lane;
    this.#onEndless = onEndless;
    this.#client = new Client(lane.origin, {
      connect: (target, done) => {
        if (this.#used) {
          process.nextTick(done, new EgressError("EGRESS_STALE", "the kept connection was closed"), null);
          return;
        }
        this.#used = true;
        this.#dialled = dial(target, (error, socket) => {
          if (this.#came > MAX_HANDSHAKE_BYTES) {
            done(new EgressError("EGRESS_DROPPED", "the handshake is too long"), null);
            this.#dropAsEndless("flood");
          } else if (socket === null) done(error, null);
          else {
            this.#watch(socket);
            done(null, socket);
          }
        });
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

  /** An answer is awaited from now on: it may bring as many bytes as any other. */
  expectAnswer(): void {
    this.#countAnew();
    this.#awaiting = true;
  }

  /** Its status line has come. */
  answered(): void {
    this.#awaiting = false;
  }

  /** It lies idle from now on. */
  rest(): void {
    this.#countAnew();
    this.#awaiting = false;
  }

  #countAnew(): void {
    this.#cameBefore = this.#dialled?.below.bytesRead ?? 0;
    this.#carriedBefore = this.#socket?.bytesRead ?? 0;
  }

  /** Its listeners are on before undici's own, so that what is too much is not parsed first. */
  #watch(socket: TLSSocket): void {
    this.#socket = socket;
    this.#countAnew();
    socket.on("readable", () => {
      if (this.#came > MAX_READ_BYTES) this.#dropAsEndless(this.#isFlood ? "flood" : "surplus");
    });
    socket.on("error", (error) => {
      this.#failure ??= error;
    });
  }

  /**
   * Ends the connection if too much came in; to be called between two turns, when all that TLS made of it has
   * been read.
   */
  check(): void {
    const came = this.#came;
    if (this.#socket === undefined) {
      if (came > MAX_HANDSHAKE_BYTES) this.#dropAsEndless("flood");
    } else if (came <= MAX_SILENT_BYTES) return;
    else if (came - this.#carried > MAX_SILENT_BYTES && this.#isMostlySilent) this.#dropAsEndless("flood");
    else if (came > MAX_READ_BYTES) this.#dropAsEndless(this.#isFlood ? "flood" : "surplus");
  }

  /** Of what is beyond the limit: a well-meaning receiver has sent its status line by then. */
  get #isFlood(): boolean {
    return this.#awaiting || this.#isMostlySilent;
  }

  get #isMostlySilent(): boolean {
    return this.#carried < this.#came / SILENT_SHARE;
  }

  get #came(): number {
    return (this.#dialled?.below.bytesRead ?? 0) - this.#cameBefore;
  }

  get #carried(): number {
    return (this.#socket?.bytesRead ?? 0) - this.#carriedBefore;
  }

  #dropAsEndless(what: "flood" | "surplus"): void {
    this.#end(new EgressError("EGRESS_DROPPED", "the receiver sends without end"));
    this.#onEndless(this, what);
  }

  #end(error: EgressError): void {
    this.#dialled?.end(error);
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
