/**
 * Connections kept per origin and lent to one request at a time. Nothing is ever queued on a connection:
 * who finds none free waits here, where a deadline can take them out again.
 */
import { Bar } from "./bar.ts";
import { Connection, type ConnectionEvents } from "./connection.ts";
import type { Connector } from "./connector.ts";
import { EgressError } from "./failure.ts";

/** Someone who wants a connection to one origin. */
export interface Borrower {
  /** Called once, at once or when a connection is free, unless `withdraw` came first. */
  use(connection: Connection): void;
  /** Called in its place where none will be lent. */
  refuse(error: EgressError): void;
}

/** Milliseconds between two looks at what came in on connections that have nothing for undici to read. */
const CHECK_EVERY_MS = 50;
/**
 * Milliseconds until the next connection to an origin of which one sent without end after its answer. Reading that
 * much of the dearest kind costs this thread 70 ms, and the receiver may mean well.
 */
const PAUSE_MS = 1_000;

/** What there is for one origin. */
export interface Lane {
  readonly origin: string;
  /** All connections that exist; never more than the limit. */
  readonly open: Set<Connection>;
  /** Those free to lend, the last used last. */
  readonly idle: Connection[];
  /** Those whose answer is decided and whose body is still being read. */
  readonly draining: Set<Connection>;
  readonly waiting: Set<Borrower>;
  /** Idle ones that are about to be lent to those who wait. */
  inTransit: number;
  /** While set, no connection is opened: one sent on and on after its answer. */
  pause: NodeJS.Timeout | undefined;
}

export class Connections {
  readonly #dial: Connector;
  readonly #events: ConnectionEvents;
  readonly #barred = new Bar();
  readonly #perOrigin: number;
  readonly #maxIdle: number;
  readonly #lanes = new Map<string, Lane>();
  /** The idle ones of all lanes, idle longest first. */
  readonly #idle = new Set<Connection>();
  /** The draining ones of all lanes, draining longest first. */
  readonly #draining = new Set<Connection>();
  /** Lanes with room for someone who waits, until the turn in which it is given. */
  readonly #withRoom = new Set<Lane>();
  #checks: NodeJS.Timeout | undefined;

  /**
   * At most `perOrigin` connections to one origin, and to all together `maxIdle` that no one waits for an
   * answer on, idle or draining.
   */
  constructor(dial: Connector, perOrigin: number, maxIdle: number) {
    this.#dial = dial;
    this.#events = {
      onClosed: (closed) => this.#closed(closed),
      onEndless: ({ lane }, what) => (what === "flood" ? this.#bar(lane) : this.#pause(lane)),
    };
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
    if (this.#barred.has(origin)) {
      borrower.refuse(new EgressError("EGRESS_DROPPED", "the receiver sends without end"));
      return;
    }
    const lane = this.#laneOf(origin);
    const kept = this.#takeIdle(lane);
    if (kept !== undefined) {
      // A turn later. undici looks for an answer that nobody asked for one turn before it writes, and only what
      // was polled since then shows: after this process was busy, its own turn comes before the next poll.
      lane.waiting.add(borrower);
      lane.inTransit += 1;
      setImmediate(() => {
        lane.inTransit -= 1;
        this.giveBack(kept);
      });
    } else if (lane.waiting.size <= lane.inTransit && this.#makeRoom(lane)) borrower.use(this.#open(lane));
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
    this.#draining.add(connection);
    this.#dropSurplus();
    return lane.open.has(connection);
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
    this.#draining.delete(connection);
    connection.rest();
    const next = takeFirst(lane.waiting);
    if (next !== undefined) {
      next.use(connection);
      return;
    }
    lane.idle.push(connection);
    this.#idle.add(connection);
    this.#dropSurplus();
  }

  /**
   * Ends a connection, whatever its state. Its place goes to the next in line in a later turn: where many give
   * up at once (a deadline they share, a stop), none of them is lent a new connection just to drop it.
   */
  drop(connection: Connection): void {
    const { lane } = connection;
    if (!this.#discard(connection)) return;
    if (lane.waiting.size === 0) this.#forgetIfUnused(lane);
    else {
      if (this.#withRoom.size === 0) setImmediate(() => this.#giveRoom());
      this.#withRoom.add(lane);
    }
  }

  #giveRoom(): void {
    const lanes = [...this.#withRoom];
    this.#withRoom.clear();
    for (const lane of lanes) {
      while (lane.waiting.size > 0 && lane.open.size < this.#perOrigin && lane.pause === undefined) {
        takeFirst(lane.waiting)?.use(this.#open(lane));
      }
      this.#forgetIfUnused(lane);
    }
  }

  /**
   * Past the limit the one draining longest ends; where only one drains, the one idle longest: receivers that
   * are slow with their bodies cost the others one place, and not each other every place.
   */
  #dropSurplus(): void {
    if (this.#idle.size + this.#draining.size <= this.#maxIdle) return;
    const [oldest] = this.#draining.size > 1 || this.#idle.size === 0 ? this.#draining : this.#idle;
    if (oldest !== undefined) this.drop(oldest);
  }

  /** Ends all connections; resolves once their sockets are closed. Who still waits is the caller's to settle. */
  async close(): Promise<void> {
    const all = [...this.#lanes.values()].flatMap((lane) => [...lane.open]);
    this.#lanes.clear();
    this.#idle.clear();
    this.#draining.clear();
    for (const { lane } of all) {
      lane.open.clear();
      lane.waiting.clear();
    }
    await Promise.allSettled(all.map((connection) => connection.destroy()));
  }

  #laneOf(origin: string): Lane {
    let lane = this.#lanes.get(origin);
    if (lane === undefined) {
      lane = {
        origin,
        open: new Set(),
        idle: [],
        draining: new Set(),
        waiting: new Set(),
        inTransit: 0,
        pause: undefined,
      };
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
    if (lane.pause !== undefined) return false;
    if (lane.open.size < this.#perOrigin) return true;
    const [oldest] = lane.draining;
    return oldest !== undefined && this.#discard(oldest);
  }

  /** Ends a connection and takes it out of everything; false where that was done before. */
  #discard(connection: Connection): boolean {
    const { lane } = connection;
    if (!lane.open.delete(connection)) return false;
    lane.draining.delete(connection);
    this.#draining.delete(connection);
    if (this.#idle.delete(connection)) lane.idle.splice(lane.idle.indexOf(connection), 1);
    connection.destroy().catch(() => {});
    return true;
  }

  #open(lane: Lane): Connection {
    const connection = new Connection(lane, this.#dial, this.#events);
    lane.open.add(connection);
    this.#checks ??= setInterval(() => this.#check(), CHECK_EVERY_MS).unref();
    return connection;
  }

  /** Nothing more is sent there for a while; what is under way there ends. */
  #bar(lane: Lane): void {
    this.#barred.add(lane.origin);
    const waiting = [...lane.waiting];
    lane.waiting.clear();
    for (const connection of [...lane.open]) this.drop(connection);
    for (const borrower of waiting) {
      borrower.refuse(new EgressError("EGRESS_DROPPED", "the receiver sends without end"));
    }
  }

  /** Nothing new is opened there for a moment; who waits goes on waiting. */
  #pause(lane: Lane): void {
    lane.pause ??= setTimeout(() => {
      lane.pause = undefined;
      this.#withRoom.add(lane);
      this.#giveRoom();
    }, PAUSE_MS).unref();
  }

  /** Runs while there are connections. */
  #check(): void {
    for (const lane of this.#lanes.values()) {
      for (const connection of lane.open) {
        connection.check();
      }
    }
    if (this.#lanes.size > 0) return;
    clearInterval(this.#checks);
    this.#checks = undefined;
  }

  /** A socket's end is the business of the request on it; only an idle one has nobody to notice. */
  #closed(connection: Connection): void {
    if (this.#idle.has(connection)) this.drop(connection);
  }

  #forgetIfUnused(lane: Lane): void {
    const unused = lane.open.size === 0 && lane.waiting.size === 0 && lane.pause === undefined;
    if (unused && this.#lanes.get(lane.origin) === lane) {
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
