/**
 * Connections kept per origin and lent to one request at a time. Nothing is ever queued on a connection:
 * who finds none free waits here, where a deadline can take them out again.
 */
import type { EventEmitter } from "node:events";
import type { TLSSocket } from "node:tls";
import { Client, type Dispatcher } from "undici";
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

/** Someone who wants a connection to one origin. */
export interface Borrower {
  /** Called once, at once or when a connection is free, unless `withdraw` came first. */
  use(connection: Connection): void;
}

interface Lane {
  readonly origin: string;
  /** All connections that exist; never more than the limit. */
  readonly open: Set<Connection>;
  /** Those free to lend, the last used last. */
  readonly idle: Connection[];
  /** Those whose answer is decided and whose body is still being read. */
  readonly draining: Set<Connection>;
  readonly waiting: Set<Borrower>;
}

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

export class Connections {
  readonly #dial: Connector;
  readonly #perOrigin: number;
  readonly #maxIdle: number;
  readonly #lanes = new Map<string, Lane>();
  /** The idle ones of all lanes, idle longest first. */
  readonly #idle = new Set<Connection>();

  /** At most `perOrigin` connections to one origin, and `maxIdle` idle ones to all: past it the one idle longest ends. */
  constructor(dial: Connector, perOrigin: number, maxIdle: number) {
    this.#dial = dial;
    this.#perOrigin = Math.max(1, perOrigin);
    this.#maxIdle = maxIdle;
  }

  /** How many there are now. An origin without connections and without anyone waiting is forgotten. */
  get counts(): { origins: number; open: number; idle: number } {
    const lanes = [...this.#lanes.values()];
    return {
      origins: lanes.length,
      open: lanes.reduce((sum, { open }) => sum + open.size, 0),
      idle: this.#idle.size,
    };
  }

  /** Lends a kept connection, else a new one, else has the borrower wait its turn. */
  borrow(origin: string, borrower: Borrower): void {
    const lane = this.#laneOf(origin);
    const kept = this.#takeIdle(lane);
    if (kept !== undefined) borrower.use(kept);
    else if (this.#makeRoom(lane)) borrower.use(this.#open(lane));
    else lane.waiting.add(borrower);
  }

  withdraw(origin: string, borrower: Borrower): void {
    const lane = this.#lanes.get(origin);
    lane?.waiting.delete(borrower);
    if (lane !== undefined) this.#forgetIfUnused(lane);
  }

  /**
   * The answer on it is decided, its body not read to the end: from now on it is dropped as soon as someone
   * needs its place. False where that is at once, or it is gone already.
   */
  drains(connection: Connection): boolean {
    const { lane } = connection;
    if (!lane.open.has(connection)) return false;
    if (lane.waiting.size > 0) {
      this.drop(connection);
      return false;
    }
    lane.draining.add(connection);
    return true;
  }

  /** Takes back a connection whose answer was read to its end. */
  giveBack(connection: Connection): void {
    const { lane } = connection;
    if (!lane.open.has(connection)) return;
    if (!connection.lendable) {
      this.drop(connection);
      return;
    }
    lane.draining.delete(connection);
    const next = takeFirst(lane.waiting);
    if (next !== undefined) {
      next.use(connection);
      return;
    }
    lane.idle.push(connection);
    this.#idle.add(connection);
    if (this.#idle.size > this.#maxIdle) {
      const [oldest] = this.#idle;
      if (oldest !== undefined) this.drop(oldest);
    }
  }

  /** Ends a connection, whatever its state, and lets the next in line have its place. */
  drop(connection: Connection): void {
    const { lane } = connection;
    if (!this.#discard(connection)) return;
    const next = takeFirst(lane.waiting);
    if (next !== undefined) next.use(this.#open(lane));
    else this.#forgetIfUnused(lane);
  }

  /** Ends all connections; resolves once their sockets are closed. Who still waits is the caller's to settle. */
  async close(): Promise<void> {
    const all = [...this.#lanes.values()].flatMap((lane) => [...lane.open]);
    this.#lanes.clear();
    this.#idle.clear();
    for (const { lane } of all) {
      lane.open.clear();
      lane.waiting.clear();
    }
    await Promise.allSettled(all.map((connection) => connection.destroy()));
  }

  #laneOf(origin: string): Lane {
    let lane = this.#lanes.get(origin);
    if (lane === undefined) {
      lane = { origin, open: new Set(), idle: [], draining: new Set(), waiting: new Set() };
      this.#lanes.set(origin, lane);
    }
    return lane;
  }

  #takeIdle(lane: Lane): Connection | undefined {
    for (let kept = lane.idle.pop(); kept !== undefined; kept = lane.idle.pop()) {
      this.#idle.delete(kept);
      if (kept.lendable) return kept;
      this.#discard(kept);
    }
    return undefined;
  }

  /** Whether one more may be opened, if need be in the place of the one that has drained longest. */
  #makeRoom(lane: Lane): boolean {
    if (lane.open.size < this.#perOrigin) return true;
    const [oldest] = lane.draining;
    return oldest !== undefined && this.#discard(oldest);
  }

  /** Ends a connection and takes it out of everything; false where that was done before. */
  #discard(connection: Connection): boolean {
    const { lane } = connection;
    if (!lane.open.delete(connection)) return false;
    lane.draining.delete(connection);
    if (this.#idle.delete(connection)) lane.idle.splice(lane.idle.indexOf(connection), 1);
    connection.destroy().catch(() => {});
    return true;
  }

  #open(lane: Lane): Connection {
    const connection = new Connection(lane, this.#dial, (closed) => this.#closed(closed));
    lane.open.add(connection);
    return connection;
  }

  /** A socket's end is the business of the request on it; only an idle one has nobody to notice. */
  #closed(connection: Connection): void {
    if (this.#idle.has(connection)) this.drop(connection);
  }

  #forgetIfUnused(lane: Lane): void {
    if (lane.open.size === 0 && lane.waiting.size === 0 && this.#lanes.get(lane.origin) === lane) {
      this.#lanes.delete(lane.origin);
    }
  }
}

function takeFirst<T>(set: Set<T>): T | undefined {
  for (const first of set) {
    set.delete(first);
    return first;
  }
  return undefined;
}
