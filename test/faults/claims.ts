// Reads a delivery's history: which claims it had, how each ended, and whether every change was one that
// docs/states.md allows.
import type { Change } from "./history.ts";

export interface Claim {
  who: string | null;
  from: number;
  /** Undefined: nothing ever ended it. */
  until: number | undefined;
  /** `lost`: its lease ran out and somebody else took the row, or ended it. */
  fate: "recorded" | "failed" | "released" | "lost" | undefined;
  /** What a failed one failed with. */
  error: string | null;
}

export interface Story {
  deliveryId: string;
  endpointId: string;
  formedThrough: bigint;
  claims: Claim[];
  ended: Change["ended"];
  /** The row was deleted. */
  gone: boolean;
  attempts: number;
  lastError: string | null;
  /** What may not have happened. */
  wrong: string[];
}

/** `changes` are ordered by delivery, and in the order they were made. */
export function stories(changes: Change[]): Map<string, Story> {
  const all = new Map<string, Story>();
  for (const [deliveryId, own] of Map.groupBy(changes, ({ delivery_id }) => delivery_id)) {
    all.set(deliveryId, story(deliveryId, own));
  }
  return all;
}

function story(deliveryId: string, changes: Change[]): Story {
  const first = changes[0] as Change;
  const told: Story = {
    deliveryId,
    endpointId: first.endpoint_id,
    formedThrough: first.formed_through,
    claims: [],
    ended: first.ended,
    gone: changes.at(-1)?.op === "DELETE",
    attempts: first.attempts,
    lastError: null,
    wrong: [],
  };
  let before: Change | undefined;
  for (const change of changes) {
    step(told, before, change);
    before = change;
    told.ended = change.ended;
    told.attempts = Math.max(told.attempts, change.attempts);
    told.lastError = change.last_error;
  }
  return told;
}

function step({ claims, wrong }: Story, before: Change | undefined, change: Change): void {
  if (change.op === "DELETE") wrong.push("the row vanished");
  else if (change.was_ended) wrong.push(`changed after its end, by ${change.who}`);
  else if (before === undefined) {
    if (change.op !== "INSERT") wrong.push("its history does not begin with it");
    if (change.claimed) claims.push(claimOf(change));
  } else if (change.lease === before.lease + 1) {
    const lost = claims.at(-1);
    if (before.claimed && lost !== undefined) end(lost, change, "lost");
    if (change.claimed) claims.push(claimOf(change));
  } else if (change.lease !== before.lease)
    wrong.push(`its lease went from ${before.lease} to ${change.lease}`);
  else if (before.claimed) {
    const claim = claims.at(-1);
    if (claim === undefined || change.claimed) return;
    if (claim.who !== change.who) {
      wrong.push(`${change.who} recorded an outcome while ${claim.who} held the claim`);
    }
    const released = change.attempts < before.attempts;
    end(claim, change, released ? "released" : change.ended === "delivered" ? "recorded" : "failed");
  } else if (change.told && change.attempts === 0) {
    // It was told what came of a row whose place it takes.
  } else if (change.ended !== "superseded") wrong.push(`changed without a claim, by ${change.who}`);
}

const claimOf = ({ who, at }: Change): Claim => ({
  who,
  from: at,
  until: undefined,
  fate: undefined,
  error: null,
});

function end(claim: Claim, { at, last_error }: Change, fate: Claim["fate"]): void {
  claim.until = at;
  claim.error = last_error;
  claim.fate = fate;
}
