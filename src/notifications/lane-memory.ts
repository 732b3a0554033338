// The endpoints that a process remembers. Those a statement has to be told of are kept apart from the many that
// answered well and have nothing due: with 10,000 endpoints, naming them all to each claim cost a fifth of a drain.
import type { Claim } from "./deliveries.ts";
import { isIdle, isQuiet, type Lane, lags, laneFor } from "./lane.ts";
import { type Origin, Origins } from "./origins.ts";

/** How long it is remembered that an endpoint lags behind: a forgotten one costs its usual few attempts. */
const MEMORY_MS = 600_000;
/** How long it is remembered that an endpoint answered well, of this many endpoints. */
const KNOWN_MS = 60_000;
const MAX_QUIET = 10_000;

export class LaneMemory {
  readonly origins = new Origins();
  /**
   * Those with something under way, that lag behind or may have more due than was claimed, and those that no look has
   * named since; of those that lag behind the one tried last at the end.
   */
  readonly #engaged = new Map<string, Lane>();
  /** Those that answered well and had nothing due when last looked at, the one that has been so for longest first. */
  readonly #quiet = new Map<string, Lane>();
  readonly #byScope = new Map<string, Set<Lane>>();

  get(endpointId: string): Lane | undefined {
    return this.#engaged.get(endpointId) ?? this.#quiet.get(endpointId);
  }

  add(claim: Claim, origin: Origin): Lane {
    const lane = laneFor(claim, origin);
    this.#engaged.set(lane.endpointId, lane);
    this.origins.enter(origin);
    const others = this.#byScope.get(lane.scope);
    if (others === undefined) this.#byScope.set(lane.scope, new Set([lane]));
    else others.add(lane);
    return lane;
  }

  get engaged(): Iterable<Lane> {
    return this.#engaged.values();
  }

  get quiet(): Iterable<Lane> {
    return this.#quiet.values();
  }

  get anyQuiet(): boolean {
    return this.#quiet.size > 0;
  }

  /** All that signals of these projects can be for. */
  *ofScopes(scopes: ReadonlySet<string>): Generator<Lane> {
    for (const scope of scopes) yield* this.#byScope.get(scope) ?? [];
  }

  /** It has something under way again, or rows that nothing claimed. */
  engage(lane: Lane): void {
    if (this.#quiet.delete(lane.endpointId)) this.#engaged.set(lane.endpointId, lane);
  }

  /** It was looked at, and nothing more is due. */
  settle(lane: Lane): void {
    if (isQuiet(lane) && this.#engaged.delete(lane.endpointId)) this.#quiet.set(lane.endpointId, lane);
  }

  moveLast(lane: Lane): void {
    if (this.#engaged.delete(lane.endpointId)) this.#engaged.set(lane.endpointId, lane);
    const others = this.#byScope.get(lane.scope);
    if (others?.delete(lane)) others.add(lane);
  }

  /** Forgets those that were not heard of for long, and of the quiet ones those too many. */
  tidy(now: number): void {
    for (const lane of this.#engaged.values()) {
      if (isIdle(lane) && lane.endedAt < now - (lags(lane) ? MEMORY_MS : KNOWN_MS)) this.#forget(lane);
    }
    for (const lane of this.#quiet.values()) {
      if (this.#quiet.size <= MAX_QUIET && lane.endedAt >= now - KNOWN_MS) break;
      this.#forget(lane);
    }
  }

  #forget(lane: Lane): void {
    this.#engaged.delete(lane.endpointId);
    this.#quiet.delete(lane.endpointId);
    this.origins.leave(lane.origin);
    const others = this.#byScope.get(lane.scope);
    others?.delete(lane);
    if (others?.size === 0) this.#byScope.delete(lane.scope);
  }
}
