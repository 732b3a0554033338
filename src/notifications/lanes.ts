// What each endpoint may have of this process's attempts, and the claims that wait for theirs. A slow or
// failing endpoint takes only its own room: one attempt until it has answered and while it keeps failing, else a
// few at once, and all that lag behind or are not known yet share a part of the attempts, so that the others always find room.
import type { Claim, Room } from "./deliveries.ts";
import { type Origin, Origins, SLOW_MS } from "./origins.ts";

/**
 * Claims held beyond the attempts under way, as a multiple of those, so that no attempt waits for a claiming statement
 * and each of those takes many: with 2 a drain stood still for a fifth of its time, and 8 is 1.2 times as fast.
 */
const MOST_AHEAD = 8;
/** No more are held than are sent within this time: a process that dies leaves them to their lease. */
const AHEAD_MS = 100;
/** An endpoint whose last attempt took no longer has claims waiting for it. */
const QUICK_MS = 250;
/** The average attempt, for claims to be held ahead at all. */
const QUICK_PACE_MS = 50;
/**
 * Attempts at once to an endpoint that has not answered yet, as far as is remembered, or keeps failing: with four, a
 * hundred that hang took all of them four times over before each was known for what it is.
 */
const UNPROVEN = 1;
/** A claim that waited longer is given back: its lease has to outlast the attempt. */
const MAX_WAIT_MS = 1_000;
/** Of the attempts, what endpoints that lag behind have together. */
const LAGGING_SHARE = 1 / 4;
/**
 * Likewise those and the ones that have not answered yet: the rest is left to those known to answer. With a quarter
 * for the unknown, it took a process that starts 31 s to find out which hundred of a thousand hang.
 */
const UNSURE_SHARE = 3 / 4;
/** Of the attempts, what signals find room for while a look through the table has set aside all there is. */
const OVERLAP_SHARE = 1 / 4;
/** Of the attempts, what an origin that keeps its last one waiting, or is new, has for endpoints that have not answered yet. */
const ORIGIN_SHARE = 1 / 4;
/** How long it is remembered that an endpoint lags behind: a forgotten one costs its usual few attempts. */
const MEMORY_MS = 600_000;
/** How long it is remembered that an endpoint answered well, of this many endpoints. */
const KNOWN_MS = 60_000;
const MAX_IDLE = 1_000;
/** One that has had nothing for longer rests: it gets one attempt until that has ended, as if it were new. */
const REST_MS = 1_000;
/** Attempts that the average goes back over, and what it begins with: a few have to be quick first. */
const PACE_OVER = 32;
const FIRST_PACE_MS = 100;

type Share = "lagging" | "unproven";
type Shares = Record<Share, number>;
const SHARES: readonly Share[] = ["unproven", "lagging"];

interface Lane {
  readonly endpointId: string;
  readonly origin: Origin;
  inFlight: number;
  /** How many of them count towards which share. */
  readonly sharing: Shares;
  readonly waiting: Claim[];
  /** Whether its last attempts failed in a way that is retried. */
  failing: boolean;
  /** Failures not written down yet that it may have no attempt before. */
  unrecorded: number;
  /** Whether it rested until what is under way began. */
  rested: boolean;
  /** Whether it wants the latest only: what waited for it here could not be overtaken any more. */
  latest: boolean;
  /** How long its last attempt took; undefined before the first one ended. */
  lastMs: number | undefined;
  /** When its last attempt ended (performance.now). */
  endedAt: number;
}

/** What claims: signals, or a look through the table, the sweeper's or the reconciler's, which may take long. */
export type Claimant = "signals" | "looks";

/** Room as a statement is given it, with what each busy endpoint may hold in all by it. */
export interface GrantedRoom extends Room {
  readonly claimant: Claimant;
  readonly holds: ReadonlyMap<string, number>;
}

export class Lanes {
  readonly #concurrency: number;
  readonly #perEndpoint: number;
  /** Endpoints with something under way or remembered, of those that lag behind the one tried last at the end. */
  readonly #lanes = new Map<string, Lane>();
  readonly #origins = new Origins();
  /** Those with a claim that could be sent, the one served last at the end. */
  readonly #ready = new Set<Lane>();
  #inFlight = 0;
  #waiting = 0;
  /** Those of them to endpoints that have not answered yet. */
  #waitingUnproven = 0;
  /** Set aside for statements under way. */
  readonly #reserved = { signals: 0, looks: 0 };
  /** Endpoints remembered to have answered well, at the last look. */
  #known = 0;
  readonly #sharing: Shares = { lagging: 0, unproven: 0 };
  #paceMs = FIRST_PACE_MS;

  constructor(concurrency: number, perEndpoint: number) {
    this.#concurrency = concurrency;
    this.#perEndpoint = perEndpoint;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Sets the room of a claiming statement aside until the function it returns is called. */
  reserve({ total, claimant }: GrantedRoom): () => void {
    this.#reserved[claimant] += total;
    return () => {
      this.#reserved[claimant] -= total;
    };
  }

  /**
   * What a claiming statement may take now. Signals do not wait for a look to end: beside 10,000 endpoints of a
   * host that hangs it takes 70 ms, and a tenth of all advances waited for it. What is claimed too much waits here.
   */
  room(claimant: Claimant = "signals"): GrantedRoom {
    const busy: Room["busy"] = [];
    const holds = new Map<string, number>();
    const now = performance.now();
    const perEndpoint = this.takesUnproven ? UNPROVEN : 0;
    let share = this.#leftOf("lagging");
    let othersLag = false;
    let known = 0;
    const fullOrigins = new Set<string>();
    const served: Lane[] = [];
    for (const lane of this.#lanes.values()) {
      if (isIdle(lane) && lane.endedAt < now - (lags(lane) ? MEMORY_MS : KNOWN_MS)) {
        this.#forget(lane);
        continue;
      }
      if (isUnproven(lane)) {
        if (this.#isFull(lane.origin)) fullOrigins.add(lane.origin.name);
      } else if (!lags(lane)) known++;
      if (rests(lane, now)) {
        // Where endpoints not known have as much, it need not be said.
        if (perEndpoint !== UNPROVEN) busy.push({ endpointId: lane.endpointId, room: UNPROVEN });
        continue;
      }
      const most = this.#holds(lane);
      let room = Math.max(0, most - lane.inFlight - lane.waiting.length);
      if (lags(lane)) {
        if (room > share) othersLag = true;
        room = Math.min(room, share);
        share -= room;
        if (room > 0) served.push(lane);
      }
      busy.push({ endpointId: lane.endpointId, room });
      holds.set(lane.endpointId, most);
    }
    // Whether or not they have anything due: others that have would otherwise never get a share.
    for (const lane of served) this.#moveLast(lane);
    this.#known = known;
    // In time an origin that is full will not be.
    othersLag ||= fullOrigins.size > 0;
    const total = this.#freeTo(claimant);
    return { claimant, total, perEndpoint, busy, fullOrigins: [...fullOrigins], holds, othersLag };
  }

  #forget(lane: Lane): void {
    this.#lanes.delete(lane.endpointId);
    this.#origins.leave(lane.origin);
  }

  #moveLast(lane: Lane): void {
    this.#lanes.delete(lane.endpointId);
    this.#lanes.set(lane.endpointId, lane);
  }

  /** Whether a claiming statement is worth its price: what waits has gone down by half. */
  get hungry(): boolean {
    return (
      this.#freeTo("looks") > 0 && (this.#waiting - this.#blocked) * 2 <= this.#ahead * this.#concurrency
    );
  }

  /** Whether endpoints that have not answered yet may have more claims than wait for them already. */
  get takesUnproven(): boolean {
    return this.#leftOf("unproven") > this.#waitingUnproven;
  }

  /** The same for one endpoint. */
  isHungry(endpointId: string): boolean {
    const lane = this.#lanes.get(endpointId);
    return lane === undefined || lane.waiting.length * 2 <= this.#holds(lane) - this.#limitOf(lane);
  }

  /**
   * Takes a claim in; false where its endpoint has no room any more: `room` was what a statement was given, others
   * may have run beside it, and the endpoint may have failed meanwhile. Likewise where it is not known and its origin
   * has all that it may have for such.
   */
  add(claim: Claim, room: GrantedRoom): boolean {
    const lane = this.#laneOf(claim);
    if (lane === undefined) return false;
    const held = lane.inFlight + lane.waiting.length;
    if (held >= (lane.failing ? this.#limitOf(lane) : (room.holds.get(claim.endpointId) ?? UNPROVEN)))
      return false;
    if (held === 0) lane.rested = rests(lane, performance.now());
    lane.latest = claim.latest;
    lane.waiting.push(claim);
    this.#countWaiting(lane, 1);
    if (isUnproven(lane)) lane.origin.trying++;
    if (lane.inFlight < this.#limitOf(lane)) this.#ready.add(lane);
    return true;
  }

  /** The next claim to send, and those found that waited too long. */
  next(): { claim: Claim | undefined; stale: Claim[] } {
    const stale: Claim[] = [];
    const tooOld = performance.now() - MAX_WAIT_MS;
    // Hundreds may wait for a share, and each attempt that ends goes through them: what is the same for all is asked once.
    const left = { unproven: this.#leftOf("unproven"), lagging: this.#leftOf("lagging") };
    for (const lane of this.#ready) {
      if (this.#inFlight >= this.#concurrency) break;
      const [first] = lane.waiting;
      const isStale = first !== undefined && first.claimedAt < tooOld;
      const share = shareOf(lane);
      if (!isStale && share !== undefined && left[share] === 0) continue;
      this.#ready.delete(lane);
      const claim = lane.waiting.shift();
      if (claim === undefined) continue;
      this.#countWaiting(lane, -1);
      if (isStale) {
        if (isUnproven(lane)) lane.origin.trying--;
        stale.push(claim);
        if (lane.waiting.length > 0) this.#ready.add(lane);
        continue;
      }
      lane.inFlight++;
      this.#inFlight++;
      if (share !== undefined) {
        lane.sharing[share]++;
        this.#sharing[share]++;
      }
      if (lane.waiting.length > 0 && lane.inFlight < this.#limitOf(lane)) this.#ready.add(lane);
      return { claim, stale };
    }
    return { claim: undefined, stale };
  }

  /** An attempt ended after `ms`: "failed" in a way that is retried. Returns what now must not wait any longer. */
  ended(endpointId: string, how: "accepted" | "failed" | "other", ms: number): Claim[] {
    const lane = this.#lanes.get(endpointId);
    if (lane === undefined) throw new Error("an attempt ended that had not begun");
    lane.inFlight--;
    this.#inFlight--;
    for (const share of SHARES) {
      if (lane.sharing[share] === 0) continue;
      lane.sharing[share]--;
      this.#sharing[share]--;
      break;
    }
    lane.rested = false;
    lane.origin.ended(how === "accepted", ms);
    if (isUnproven(lane)) {
      lane.origin.trying -= 1 + lane.waiting.length;
      this.#waitingUnproven -= lane.waiting.length;
    }
    lane.lastMs = ms;
    lane.endedAt = performance.now();
    this.#paceMs += (ms - this.#paceMs) / PACE_OVER;
    if (how !== "other") lane.failing = how === "failed";
    if (lags(lane)) this.#moveLast(lane);
    const back = lane.failing ? this.takeWaiting(endpointId) : [];
    if (lane.waiting.length > 0 && lane.inFlight < this.#limitOf(lane)) this.#ready.add(lane);
    if (isIdle(lane) && !lags(lane) && this.#known > MAX_IDLE) this.#forget(lane);
    return back;
  }

  /** Lets an endpoint have no attempt until the function it returns is called. */
  hold(endpointId: string): () => void {
    const lane = this.#lanes.get(endpointId);
    if (lane === undefined) return () => {};
    lane.unrecorded++;
    return () => {
      lane.unrecorded--;
      if (lane.waiting.length > 0 && lane.inFlight < this.#limitOf(lane)) this.#ready.add(lane);
    };
  }

  /** Takes out what waits for one endpoint, or for all. */
  takeWaiting(endpointId?: string): Claim[] {
    if (endpointId === undefined) return [...this.#lanes.keys()].flatMap((each) => this.takeWaiting(each));
    const lane = this.#lanes.get(endpointId);
    if (lane === undefined) return [];
    this.#ready.delete(lane);
    this.#countWaiting(lane, -lane.waiting.length);
    if (isUnproven(lane)) lane.origin.trying -= lane.waiting.length;
    return lane.waiting.splice(0);
  }

  /** Undefined where it is not known, and its origin full. */
  #laneOf({ endpointId, url }: Claim): Lane | undefined {
    const known = this.#lanes.get(endpointId);
    if (known !== undefined) return known;
    const origin = this.#origins.of(url);
    if (this.#isFull(origin)) return undefined;
    const lane: Lane = {
      endpointId,
      origin,
      inFlight: 0,
      sharing: { lagging: 0, unproven: 0 },
      waiting: [],
      failing: false,
      unrecorded: 0,
      rested: false,
      latest: false,
      lastMs: undefined,
      endedAt: 0,
    };
    this.#lanes.set(endpointId, lane);
    this.#origins.enter(origin);
    return lane;
  }

  #isFull(origin: Origin): boolean {
    return origin.isFull(this.#shareOfAll(ORIGIN_SHARE));
  }

  /** Attempts at once. */
  #limitOf(lane: Lane): number {
    if (lane.unrecorded > 0) return 0;
    return lane.failing || lane.rested || isUnproven(lane) ? UNPROVEN : this.#perEndpoint;
  }

  /** Claims, sent or waiting. */
  #holds(lane: Lane): number {
    const quick = !lane.failing && lane.lastMs !== undefined && lane.lastMs <= QUICK_MS;
    return this.#limitOf(lane) * (quick && !lane.latest ? 1 + this.#ahead : 1);
  }

  #leftOf(share: Share): number {
    const { lagging, unproven } = this.#sharing;
    const unsure = this.#shareOfAll(UNSURE_SHARE) - lagging - unproven;
    return Math.max(
      0,
      share === "unproven" ? unsure : Math.min(unsure, this.#shareOfAll(LAGGING_SHARE) - lagging),
    );
  }

  #shareOfAll(share: number): number {
    return Math.max(1, Math.floor(this.#concurrency * share));
  }

  /** Claims ahead for each attempt. */
  get #ahead(): number {
    return this.#paceMs > QUICK_PACE_MS ? 0 : Math.min(MOST_AHEAD, Math.floor(AHEAD_MS / this.#paceMs));
  }

  #countWaiting(lane: Lane, change: number): void {
    this.#waiting += change;
    if (isUnproven(lane)) this.#waitingUnproven += change;
  }

  /** Claims that wait for a share, and take nothing from endpoints known to answer. */
  get #blocked(): number {
    return Math.max(0, this.#waitingUnproven - this.#leftOf("unproven"));
  }

  #freeTo(claimant: Claimant): number {
    const { signals, looks } = this.#reserved;
    const overlap = claimant === "signals" ? Math.min(looks, this.#shareOfAll(OVERLAP_SHARE)) : 0;
    const taken = this.#inFlight + this.#waiting - this.#blocked + signals + looks - overlap;
    return Math.max(0, this.#concurrency * (1 + this.#ahead) - taken);
  }
}

function isIdle({ inFlight, waiting, unrecorded }: Lane): boolean {
  return inFlight === 0 && waiting.length === 0 && unrecorded === 0;
}

/** Known to answer well, with nothing to do for a while. */
function rests(lane: Lane, now: number): boolean {
  return isIdle(lane) && !isUnproven(lane) && !lags(lane) && lane.endedAt < now - REST_MS;
}

function shareOf(lane: Lane): Share | undefined {
  return isUnproven(lane) ? "unproven" : lags(lane) ? "lagging" : undefined;
}

function isUnproven({ lastMs }: Lane): boolean {
  return lastMs === undefined;
}

function lags({ failing, lastMs }: Lane): boolean {
  return failing || (lastMs !== undefined && lastMs > SLOW_MS);
}
