// One endpoint as a process remembers it: what it has under way, what waits for it, and how it answered last.
import type { Claim } from "./deliveries.ts";
import { type Origin, SLOW_MS } from "./origins.ts";

/** One that has had nothing for longer rests: it gets one attempt until that has ended, as if it were new. */
const REST_MS = 1_000;

/** What part of the attempts one counts towards: of endpoints that have not answered yet, or that lag behind. */
export type Share = "lagging" | "unproven";
export type Shares = Record<Share, number>;
export const SHARES: readonly Share[] = ["unproven", "lagging"];

export interface Lane {
  readonly endpointId: string;
  readonly scope: string;
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
  /** When it was last known to have rows that nothing claimed (performance.now). */
  leftAt: number;
}

export function laneFor({ endpointId, news }: Claim, origin: Origin): Lane {
  return {
    endpointId,
    scope: news.scope,
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
    leftAt: Number.NEGATIVE_INFINITY,
  };
}

export function isIdle({ inFlight, waiting, unrecorded }: Lane): boolean {
  return inFlight === 0 && waiting.length === 0 && unrecorded === 0;
}

/** Known to answer well, with nothing to do. */
export function isQuiet(lane: Lane): boolean {
  return isIdle(lane) && shareOf(lane) === undefined;
}

/** The same for a while. */
export function rests(lane: Lane, now: number): boolean {
  return isQuiet(lane) && lane.endedAt < now - REST_MS;
}

export function shareOf(lane: Lane): Share | undefined {
  return isUnproven(lane) ? "unproven" : lags(lane) ? "lagging" : undefined;
}

export function isUnproven({ lastMs }: Lane): boolean {
  return lastMs === undefined;
}

export function lags({ failing, lastMs }: Lane): boolean {
  return failing || (lastMs !== undefined && lastMs > SLOW_MS);
}
