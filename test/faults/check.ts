// Holds what happened against what is promised (docs/guarantees.md): the history that PostgreSQL wrote, the
// table as it is, and what the receiver got. Every sentence in `broken` is a promise that was not kept.
import { type Claim, type Story, stories } from "./claims.ts";
import { Findings } from "./findings.ts";
import type { CommittedAdvance } from "./history.ts";
import type { Arrival } from "./receiver.ts";
import type { Fault, Scenario, Stage } from "./stage.ts";
import { longestWait } from "./waits.ts";
import { ATTEMPTS, type Endpoint, type World } from "./world.ts";

export interface Row {
  scenario: string;
  /** How often it was played. */
  rounds: number;
  faults: number;
  /** Committed advances. */
  advances: number;
  /** Deliveries written. */
  owed: number;
  /** Of them, those that the receiver got. */
  received: number;
  /** Requests beyond the first of a delivery. */
  repeated: number;
  /** How many repeats there may be: claims in flight at a fault that cost them, and attempts that failed. */
  bound: number;
  /** Deliveries and advances that their endpoint was never told of. */
  lost: number;
  /** Advances that only a later one's delivery told of. */
  covered: number;
  longestWaitMs: number;
  recoveryMs: number | undefined;
  notes: string[];
  broken: string[];
}

/**
 * A statement that the server had already can still commit this long after the fault that orphaned it: long
 * for a life that the fault ended, which makes no other claims then; short for those that go on claiming.
 */
const AFTERMATH_MS = { named: 10_000, all: 500 };

/** Of a scenario that could not be played to its end. */
export const unplayed = (scenario: string, reason: string): Row => ({
  scenario,
  rounds: 1,
  faults: 0,
  advances: 0,
  owed: 0,
  received: 0,
  repeated: 0,
  bound: 0,
  lost: 0,
  covered: 0,
  longestWaitMs: 0,
  recoveryMs: undefined,
  notes: [],
  broken: [`could not be played to its end: ${reason}`],
});

type Requests = Map<string, Arrival[]>;

export async function check(stage: Stage, scenario: Scenario): Promise<Row> {
  const { world, faults } = stage;
  const { arrivals } = world.receiver;
  const advances = await world.history.advances();
  const told = stories(await world.history.changes());
  const requests: Requests = Map.groupBy(arrivals, ({ deliveryId }) => deliveryId);
  const endpoints = new Map(world.endpoints.map((endpoint) => [endpoint.id, endpoint]));
  const found = new Findings();

  checkRequests(arrivals, told, endpoints, found);
  const deliveries = checkDeliveries(told, requests, endpoints, faults, found);
  const coverage = checkAdvances(world, advances, told, requests, found);
  if (scenario.everyAdvance === true && coverage.covered > 0) {
    found.add("advances whose signal was heard were not owed on their own", `${coverage.covered} of them`);
  }
  const longestWaitMs = longestWait(world);
  if (longestWaitMs > stage.longestWaitLimitMs) {
    found.add(`news took more than ${stage.longestWaitLimitMs} ms`, `${Math.round(longestWaitMs)} ms`);
  }
  return {
    scenario: scenario.name,
    rounds: 1,
    faults: faults.length,
    advances: advances.length,
    owed: told.size,
    received: Array.from(told.keys()).filter((deliveryId) => requests.has(deliveryId)).length,
    repeated: deliveries.repeated,
    bound: deliveries.bound,
    lost: deliveries.lost + coverage.lost,
    covered: coverage.covered,
    longestWaitMs,
    recoveryMs: stage.recoveryMs,
    notes: [...stage.notes, ...fates(told), ...staleOutcomes(world)],
    broken: [...stage.broken, ...found.sentences()],
  };
}

/** Nothing is sent that no committed row says, and all of it is signed. */
function checkRequests(
  arrivals: Arrival[],
  told: Map<string, Story>,
  endpoints: Map<string, Endpoint>,
  found: Findings,
): void {
  for (const { deliveryId, path, formedThrough, verified } of arrivals) {
    const row = told.get(deliveryId);
    if (row === undefined) found.add("sent without a committed row", deliveryId);
    else if (endpoints.get(row.endpointId)?.path !== path || String(row.formedThrough) !== formedThrough) {
      found.add("sent to another endpoint or with other news than its row says", deliveryId);
    }
    if (!verified) found.add("signature or its time did not hold", deliveryId);
  }
}

/** Every row ends in one way that its endpoint and the receiver bear out, and is repeated only for a reason. */
function checkDeliveries(
  told: Map<string, Story>,
  requests: Requests,
  endpoints: Map<string, Endpoint>,
  faults: Fault[],
  found: Findings,
) {
  const sums = { lost: 0, repeated: 0, bound: 0 };
  for (const row of told.values()) {
    const add = (kind: string) => found.add(kind, row.deliveryId);
    const times = requests.get(row.deliveryId)?.length ?? 0;
    const { deliver } = endpoints.get(row.endpointId) as Endpoint;
    for (const wrong of row.wrong) add(wrong);
    if (row.ended === null && !row.gone) add("pending to the end");
    if (row.attempts > ATTEMPTS) add(`more than ${ATTEMPTS} attempts`);
    if (row.ended === "superseded" && deliver === "every")
      add("superseded, although its endpoint wants every");
    // The receiver takes everything: only a claim that never came back may have spent the last attempt.
    if (row.ended === "parked" && row.lastError !== "unrecorded") add(`parked as ${row.lastError}`);
    if (times === 0 && row.ended !== "superseded") {
      sums.lost++;
      add(`${row.gone ? "vanished" : `ended as ${row.ended}`} and never arrived`);
    }
    const excuses = row.claims.filter((claim) => excuse(claim, faults)).length;
    const again = Math.max(0, times - 1);
    sums.repeated += again;
    sums.bound += excuses;
    if (times > row.claims.length) add("more requests than claims");
    if (again > excuses) add("arrived again without having been in flight at a fault");
    for (const claim of row.claims) {
      if (claim.fate === "lost" && !struck(claim, faults)) add("a claim was lost without a fault");
    }
  }
  return sums;
}

/** Every endpoint was told of every committed advance of its project, by that one or a later one. */
function checkAdvances(
  { endpoints, writers }: World,
  advances: CommittedAdvance[],
  told: Map<string, Story>,
  requests: Requests,
  found: Findings,
) {
  const sums = { lost: 0, covered: 0 };
  const committed = Map.groupBy(advances, ({ scope }) => scope);
  const rowsOf = Map.groupBy(told.values(), ({ endpointId }) => endpointId);
  for (const { id, scope, deliver } of endpoints) {
    const rows = rowsOf.get(id) ?? [];
    const newest = newestTold(rows, requests);
    const owed = new Set(rows.map(({ formedThrough }) => formedThrough));
    for (const { formed_through } of committed.get(scope) ?? []) {
      if (formed_through > newest) {
        sums.lost++;
        found.add("a committed advance was never told, nor any later one", `${scope} ${formed_through}`);
      } else if (deliver === "every" && !owed.has(formed_through)) sums.covered++;
    }
  }
  for (const { scope, acknowledged } of writers) {
    const kept = new Set(committed.get(scope)?.map(({ formed_through }) => formed_through));
    if (acknowledged.some(({ formedThrough }) => !kept.has(formedThrough))) {
      found.add("PostgreSQL forgot an advance it had committed", scope);
    }
  }
  return sums;
}

/**
 * What makes one more request for the same delivery right. A claim whose outcome was recorded never does, and
 * one that was given back does only where its life was ended: what finds no room is given back unsent.
 */
function excuse(claim: Claim, faults: Fault[]): boolean {
  if (claim.fate === "failed") return true;
  if (claim.fate === "lost") return struck(claim, faults);
  const named = faults.filter(({ who }) => who !== undefined);
  return claim.fate === "released" && struck(claim, named);
}

/** Whether the claim was in flight when a fault struck the life that held it. */
function struck({ who, from, until = Number.POSITIVE_INFINITY }: Claim, faults: Fault[]): boolean {
  return faults.some(
    (fault) =>
      from <= fault.until + (fault.who === undefined ? AFTERMATH_MS.all : AFTERMATH_MS.named) &&
      until >= fault.from &&
      (fault.who === undefined || (who !== null && fault.who.includes(who))),
  );
}

function newestTold(rows: Story[], requests: Requests): bigint {
  return rows.reduce(
    (newest, { deliveryId, ended, formedThrough }) =>
      ended === "delivered" && requests.has(deliveryId) && formedThrough > newest ? formedThrough : newest,
    -1n,
  );
}

/** What else than being recorded or lost became of claims. */
function fates(told: Map<string, Story>): string[] {
  const claims = Array.from(told.values()).flatMap((row) => row.claims);
  const others = claims.filter(({ fate }) => fate !== "recorded" && fate !== "lost");
  const byFate = Map.groupBy(others, ({ fate, error }) => (fate === "failed" ? error : (fate ?? "nothing")));
  return Array.from(byFate, ([fate, some]) => `${some.length} attempts ended as ${fate}`);
}

function staleOutcomes({ replicas }: World): string[] {
  const times = replicas.reduce((sum, replica) => sum + replica.staleOutcomes, 0);
  return times === 0 ? [] : [`late outcomes dropped ${times} times`];
}
