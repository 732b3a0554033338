// What each endpoint may have of this process's attempts, and the claims that wait for theirs. A slow or
// failing endpoint takes only its own room: one attempt until it has answered and while it keeps failing, else a
// few at once, and all that lag behind or are not known yet share a part of the attempts, so that the others always find room.
import type { Claim, Looked, Room } from "./deliveries.ts";
import { isUnproven, type Lane, lags, rests, SHARES, type Share, type Shares, shareOf } from "./lane.ts";
import { LaneMemory } from "./lane-memory.ts";
import type { Origin } from "./origins.ts";

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
/**
 * While only the endpoints that are named have room, a sweep names the quiet ones this often: what another process left,
 * and old retries, are not missed for longer.
 */
const NAME_ALL_EVERY_MS = 1_000;
/** Attempts that the average goes back over, and what it begins with: a few have to be quick first. */
const PACE_OVER = 32;
const FIRST_PACE_MS = 100;

/** What claims: signals, of these projects, or a look through the table, the reconciler's or the sweeper's, which may take long. */
export type Claimant = ReadonlySet<string> | "comparison" | "sweep";
type Kind = "signals" | "looks";

/** Room as a statement is given it, with what each busy endpoint may hold in all by it. */
export interface GrantedRoom extends Room {
  readonly claimant: Claimant;
  readonly holds: ReadonlyMap<string, number>;
}

export class Lanes {
  readonly #concurrency: number;
  readonly #perEndpoint: number;
  readonly #memory = new LaneMemory();
  /** Those with a claim that could be sent, the one served last at the end. */
  readonly #ready = new Set<Lane>();
  #inFlight = 0;
  #waiting = 0;
  /** Those of them to endpoints that have not answered yet. */
  #waitingUnproven = 0;
  /** Set aside for statements under way. */
  readonly #reserved = { signals: 0, looks: 0 };
  /** When all are named again (performance.now). */
  #nameAllAt = Number.NEGATIVE_INFINITY;
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
    const kind = kindOf(claimant);
    this.#reserved[kind] += total;
    return () => {
      this.#reserved[kind] -= total;
    };
  }

  /**
   * What a claiming statement may take now. Signals do not wait for a look to end: beside 10,000 endpoints of a
   * host that hangs it takes 70 ms, and a tenth of all advances waited for it. What is claimed too much waits here.
   */
  room(claimant: Claimant = "sweep"): GrantedRoom {
    const busy: Room["busy"] = [];
    const holds = new Map<string, number>();
    const now = performance.now();
    const perEndpoint = this.takesUnproven ? UNPROVEN : 0;
    let share = this.#leftOf("lagging");
    const fullOrigins = this.#memory.origins.full(this.#shareOfAll(ORIGIN_SHARE));
    const { lanes, leavesOut, namesAll } = this.#named(claimant, perEndpoint > 0 && fullOrigins.length === 0);
    // In time an origin that is full will not be.
    let othersLag = leavesOut === true || fullOrigins.length > 0;
    for (const lane of lanes) {
      if (rests(lane, now)) {
        // Where endpoints not known have as much, it need not be said.
        if (perEndpoint !== UNPROVEN || this.#isFull(lane.origin))
          busy.push({ endpointId: lane.endpointId, room: UNPROVEN });
        continue;
      }
      const most = this.#holds(lane);
      let room = Math.max(0, most - lane.inFlight - lane.waiting.length);
      if (lags(lane)) {
        if (room > share) othersLag = true;
        room = Math.min(room, share);
        share -= room;
        // Whether or not it has anything due: others that have would otherwise never get a share.
        if (room > 0) this.#memory.moveLast(lane);
      }
      busy.push({ endpointId: lane.endpointId, room });
      holds.set(lane.endpointId, most);
    }
    const total = this.#freeTo(kindOf(claimant));
    return { claimant, total, perEndpoint, busy, fullOrigins, holds, othersLag, namesAll };
  }

  /** The endpoints that a statement is told of, and whether it so leaves out any that have something due, perhaps. */
  #named(claimant: Claimant, openToAll: boolean): { lanes: Lane[]; leavesOut?: boolean; namesAll?: boolean } {
    const memory = this.#memory;
    if (typeof claimant !== "string") return { lanes: [...memory.ofScopes(claimant)] };
    const now = performance.now();
    memory.tidy(now);
    // The quiet ones have as much as those not known, which is as good as being named.
    if (openToAll || !memory.anyQuiet) return { lanes: [...memory.engaged] };
    if (claimant !== "sweep" || now < this.#nameAllAt) return { lanes: [...memory.engaged], leavesOut: true };
    return { lanes: [...memory.engaged, ...memory.quiet], namesAll: true };
  }

  /** Rows of these endpoints were written and not claimed. */
  left(endpointIds: readonly string[]): void {
    for (const endpointId of endpointIds) {
      const lane = this.#memory.get(endpointId);
      if (lane === undefined) continue;
      lane.leftAt = performance.now();
      this.#memory.engage(lane);
    }
  }

  /**
   * A look that had this room, since `began` (performance.now), went through these endpoints: those it named and took
   * less of than it might have need not be named again.
   */
  looked(room: GrantedRoom, { after, before, took }: Looked, began: number): void {
    // Named until a look reached the end: each goes on where the one before stopped.
    if (room.namesAll && before === undefined) this.#nameAllAt = performance.now() + NAME_ALL_EVERY_MS;
    const taken = new Map<string, number>();
    for (const endpointId of took) taken.set(endpointId, (taken.get(endpointId) ?? 0) + 1);
    for (const { endpointId, room: most } of room.busy) {
      const passed = endpointId > after && (before === undefined || endpointId < before);
      if (!passed || (taken.get(endpointId) ?? 0) >= most) continue;
      const lane = this.#memory.get(endpointId);
      if (lane !== undefined && lane.leftAt < began) this.#memory.settle(lane);
    }
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
    const lane = this.#memory.get(endpointId);
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
    this.#memory.engage(lane);
    lane.latest = claim.latest;
    lane.waiting.push(claim);
    this.#countWaiting(lane, 1);
    if (isUnproven(lane)) lane.origin.tries(1);
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
        if (isUnproven(lane)) lane.origin.tries(-1);
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
    const lane = this.#memory.get(endpointId);
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
      lane.origin.tries(-1 - lane.waiting.length);
      this.#waitingUnproven -= lane.waiting.length;
    }
    lane.lastMs = ms;
    lane.endedAt = performance.now();
    this.#paceMs += (ms - this.#paceMs) / PACE_OVER;
    if (how !== "other") lane.failing = how === "failed";
    if (lags(lane)) this.#memory.moveLast(lane);
    const back = lane.failing ? this.takeWaiting(endpointId) : [];
    if (lane.waiting.length > 0 && lane.inFlight < this.#limitOf(lane)) this.#ready.add(lane);
    return back;
  }

  /** Lets an endpoint have no attempt until the function it returns is called. */
  hold(endpointId: string): () => void {
    const lane = this.#memory.get(endpointId);
    if (lane === undefined) return () => {};
    lane.unrecorded++;
    return () => {
      lane.unrecorded--;
      if (lane.waiting.length > 0 && lane.inFlight < this.#limitOf(lane)) this.#ready.add(lane);
    };
  }

  /** Takes out what waits for one endpoint, or for all. */
  takeWaiting(endpointId?: string): Claim[] {
    if (endpointId === undefined)
      return [...this.#memory.engaged].flatMap((lane) => this.takeWaiting(lane.endpointId));
    const lane = this.#memory.get(endpointId);
    if (lane === undefined) return [];
    this.#ready.delete(lane);
    this.#countWaiting(lane, -lane.waiting.length);
    if (isUnproven(lane)) lane.origin.tries(-lane.waiting.length);
    return lane.waiting.splice(0);
  }

  /** Undefined where it is not known, and its origin full. */
  #laneOf(claim: Claim): Lane | undefined {
    const known = this.#memory.get(claim.endpointId);
    if (known !== undefined) return known;
    const origin = this.#memory.origins.of(claim.url);
    return this.#isFull(origin) ? undefined : this.#memory.add(claim, origin);
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

  #freeTo(kind: Kind): number {
    const { signals, looks } = this.#reserved;
    const overlap = kind === "signals" ? Math.min(looks, this.#shareOfAll(OVERLAP_SHARE)) : 0;
    const taken = this.#inFlight + this.#waiting - this.#blocked + signals + looks - overlap;
    return Math.max(0, this.#concurrency * (1 + this.#ahead) - taken);
  }
}

function kindOf(claimant: Claimant): Kind {
  return typeof claimant === "string" ? "looks" : "signals";
}
