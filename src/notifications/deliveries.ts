// Deliveries as the engine sees them: owed, claimed under a lease, and ended exactly once.
import type { KeyObject } from "node:crypto";
import type { Queryable } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { variablesHash } from "../ledger/hash.ts";
import { signingKey } from "../signing/index.ts";
import { type News, notificationFields } from "./payload.ts";
import { ANY_ORIGIN, type DeliveryStatements, deliveryStatements } from "./queries.ts";

/** That a project's watermark advanced, and the numbers then. */
export interface Advance {
  scope: string;
  formedThrough: bigint;
  storedThrough: bigint;
  /** How many turns the advance covers. */
  formedTurns: number;
  parkedTurns: number;
}

/** A delivery this process holds: it sends it and then says what came of it, under the same lease. */
export interface Claim {
  deliveryId: string;
  endpointId: string;
  url: string;
  key: KeyObject;
  news: News;
  /** Requests started, this one included. */
  attempts: number;
  /** Requests that failed for rows this one took the place of. */
  carried: number;
  /** Whether its endpoint wants the latest only. */
  latest: boolean;
  lease: number;
  /** When the claim was made: by the database's clock in ms since 1970, and by performance.now. */
  databaseMs: number;
  claimedAt: number;
}

/** How many deliveries may be claimed: in all, to one endpoint, and less to the endpoints named. */
export interface Room {
  total: number;
  perEndpoint: number;
  busy: { endpointId: string; room: number }[];
  /** Origins, as `originOf` names them, whose other endpoints have none. */
  fullOrigins?: string[];
  /** Whether all that are known to answer are named, too, and not those alone that may have more due. */
  namesAll?: boolean | undefined;
  /** Whether any got none that may have something due, since others had what they share or they were not named: it is their turn soon. */
  othersLag?: boolean;
}

/** What became of one claim. */
export interface Outcome {
  deliveryId: string;
  lease: number;
  /** `released` gives the claim back as if it had not been made. */
  verdict: "delivered" | "parked" | "retry" | "released";
  status?: number | undefined;
  /** A failure category, never a raw error. */
  error?: string | undefined;
  /** For `retry`. */
  waitMs?: number;
  /** For `delivered`: what was told, which the ledger keeps the hash of. */
  news?: News;
  /** Where its endpoint wants the latest: what the row that may have taken its place meanwhile has to know. */
  heir?: Heir | undefined;
  /** Called once it is recorded, or never will be. */
  onSettled?: (() => void) | undefined;
}

/** A row newer than this one, of an endpoint that wants the latest: how often the endpoint failed, and its wait. */
export interface Heir {
  endpointId: string;
  formedThrough: bigint;
  carried: number;
  waitMs: number;
}

/** What PostgreSQL made of outcomes, by delivery. */
export interface Recorded {
  recorded: Set<string>;
  /** Their rows are held by somebody else just now: to be tried again. */
  locked: Set<string>;
}

export interface Owed {
  claims: Claim[];
  /** Rows written, due and left for a later claim, for want of room. */
  left: number;
  /** Their endpoints. */
  leftTo: string[];
  /** Rows written in all; 0 where everything was owed before. */
  written: number;
  /** Rows that this made superseded, of endpoints that want the latest. */
  superseded: number;
  /** Whether there is more to owe than one statement takes. */
  more: boolean;
}

/** What a look went through: the endpoints between these ids, both excluded; `before` undefined is up to the last one. */
export interface Looked {
  after: string;
  before: string | undefined;
  /** The endpoint of each row that was claimed or ended. */
  took: string[];
}

export interface Due {
  claims: Claim[];
  looked: Looked;
  parked: number;
  superseded: number;
  /** Whether more may be due: the room was used up, or only the later endpoints were looked at. */
  more: boolean;
  /** By which instant "due" was judged, on the database's clock. */
  lookedAt: string;
}

interface ClaimRow {
  delivery_id: string;
  endpoint_id: string;
  scope: string;
  formed_through: bigint;
  stored_through: bigint;
  parked_turns: number;
  attempts: number;
  carried_attempts: number;
  lease: number;
  latest: boolean;
  url: string;
  secret: string;
  occurred_at: string;
  database_ms: number;
}

// Both answers have one row at least; where nothing was written or due, its delivery columns are null.
type OwedRow = ClaimRow & {
  claimed: boolean;
  due: boolean;
  considered: number;
  superseded: number;
  /** Endpoints that this left out since they want the latest. */
  wanting_latest?: number;
};
type DueRow = ClaimRow & { verdict: "claimed" | "parked" | "superseded"; looked_at: string };

/** Endpoints that one reconciling statement owes at most. */
const RECONCILE_BATCH = 1_000;
/** Sorts before every id. */
const BEFORE_ALL = "00000000-0000-0000-0000-000000000000";

export class Deliveries {
  readonly #db: Queryable;
  readonly #sql: DeliveryStatements;
  readonly #leaseMs: number;
  readonly #maxAttempts: number;
  readonly #ledgerRun: string | undefined;
  /**
   * The endpoint that the last claim ended at, the next one starts behind it, so that all get their turn: of claims
   * that take from every endpoint, of those that take from named ones only and so come to an end sooner, and of those
   * that name all.
   */
  readonly #cursors = { open: BEFORE_ALL, closed: BEFORE_ALL, all: BEFORE_ALL };

  /** `ledgerRun`: by which run the ledger knows what is delivered; undefined enters nothing there. */
  constructor(
    db: Queryable,
    namespace: Namespace,
    options: { leaseMs: number; maxAttempts: number; ledgerRun?: string | undefined },
  ) {
    this.#db = db;
    this.#ledgerRun = options.ledgerRun;
    this.#sql = deliveryStatements(namespace, options.ledgerRun !== undefined);
    this.#leaseMs = options.leaseMs;
    this.#maxAttempts = options.maxAttempts;
  }

  /**
   * Owes advances to every live endpoint of their projects, and claims what there is room for. Where there is `more`,
   * `oweLatest` owes it: what was claimed here need not wait for that, nor be lost with it.
   */
  async owe(advances: Advance[], room: Room): Promise<Owed> {
    const oneEach = new Set(advances.map(({ scope }) => scope)).size === advances.length;
    const statement = oneEach ? this.#sql.oweEach : this.#sql.owe;
    const rows = await this.#db.query<OwedRow>(statement, this.#oweValues(advances, room));
    return { ...owedFrom(rows), more: (rows[0]?.wanting_latest ?? 0) > 0 };
  }

  /** The same for endpoints that want the latest. */
  async oweLatest(advances: Advance[], room: Room): Promise<Owed> {
    return owedFrom(await this.#db.query<OwedRow>(this.#sql.oweLatest, this.#oweValues(advances, room)));
  }

  /** Owes what no signal brought: watermarks past what their endpoints were told. Call again while there is `more`. */
  async reconcile(room: Room): Promise<Owed> {
    const rows = await this.#db.query<OwedRow>(this.#sql.reconcile, [
      ...this.#roomValues(room),
      RECONCILE_BATCH,
    ]);
    return { ...owedFrom(rows), more: (rows[0]?.considered ?? 0) >= RECONCILE_BATCH };
  }

  /** Claims what is due, a little from each endpoint, taking up where the last claim left off. */
  async claim(room: Room): Promise<Due> {
    const which = room.namesAll ? "all" : room.perEndpoint > 0 ? "open" : "closed";
    const start = this.#cursors[which];
    const answer = await this.#db.query<DueRow>(this.#sql.claim, [
      ...this.#roomValues(room),
      start,
      this.#maxAttempts,
    ]);
    const rows = answer.filter(({ delivery_id }) => delivery_id !== null);
    const reachedEnd = rows.length < room.total;
    const last = reachedEnd ? undefined : rows.at(-1)?.endpoint_id;
    this.#cursors[which] = last ?? BEFORE_ALL;
    return {
      claims: rows.filter(({ verdict }) => verdict === "claimed").map(claimFrom),
      looked: { after: start, before: last, took: rows.map(({ endpoint_id }) => endpoint_id) },
      parked: rows.filter(({ verdict }) => verdict === "parked").length,
      superseded: rows.filter(({ verdict }) => verdict === "superseded").length,
      more: !reachedEnd || start !== BEFORE_ALL,
      lookedAt: answer[0]?.looked_at ?? "infinity",
    };
  }

  /** Records outcomes where their claims still hold the row. */
  async record(outcomes: Outcome[]): Promise<Recorded> {
    const rows = await this.#db.query<{ delivery_id: string; fate: "recorded" | "locked" | "stale" }>(
      this.#sql.record,
      [
        outcomes.map(({ deliveryId }) => deliveryId),
        outcomes.map(({ lease }) => lease),
        outcomes.map(({ verdict }) => verdict),
        outcomes.map(({ status }) => status ?? null),
        outcomes.map(({ error }) => error ?? null),
        outcomes.map(({ waitMs }) => waitMs ?? 0),
        ...(this.#ledgerRun === undefined ? [] : [this.#ledgerRun, outcomes.map(hashOf)]),
      ],
    );
    const withFate = (wanted: string) =>
      new Set(rows.filter(({ fate }) => fate === wanted).map(({ delivery_id }) => delivery_id));
    return { recorded: withFate("recorded"), locked: withFate("locked") };
  }

  /** Tells the rows that took the place of what was recorded. */
  async passOn(heirs: Heir[]): Promise<void> {
    await this.#db.query(this.#sql.passOn, [
      heirs.map(({ endpointId }) => endpointId),
      heirs.map(({ formedThrough }) => formedThrough),
      heirs.map(({ carried }) => carried),
      heirs.map(({ waitMs }) => waitMs),
    ]);
  }

  /** Milliseconds until what was not due at `lookedAt` becomes due; undefined where nothing is waiting. */
  async nextDueMs(lookedAt: string): Promise<number | undefined> {
    const [row] = await this.#db.query<{ wait_ms: number | null }>(this.#sql.nextDue, [lookedAt]);
    return row?.wait_ms ?? undefined;
  }

  /** Deletes up to `limit` deliveries that ended longer ago than `retentionMs`; how many. */
  async expire(retentionMs: number, limit: number): Promise<number> {
    return (await this.#db.query(this.#sql.expire, [retentionMs, limit])).length;
  }

  #oweValues(advances: Advance[], room: Room): unknown[] {
    return [
      ...this.#roomValues(room),
      advances.map(({ scope }) => scope),
      advances.map(({ formedThrough }) => formedThrough),
      advances.map(({ storedThrough }) => storedThrough),
      advances.map(({ formedTurns }) => formedTurns),
      advances.map(({ parkedTurns }) => parkedTurns),
    ];
  }

  #roomValues({ total, perEndpoint, busy, fullOrigins = [] }: Room): unknown[] {
    const rooms: Record<string, number> = {};
    const someFull = perEndpoint > 0 && fullOrigins.length > 0;
    // What is as for all others need not be said: with 10,000 endpoints this list took a tenth of the worker's time.
    for (const { endpointId, room } of busy) if (someFull || room !== perEndpoint) rooms[endpointId] = room;
    if (someFull) {
      rooms[ANY_ORIGIN] = 0;
      for (const origin of fullOrigins) rooms[origin] = 0;
    }
    return [total, perEndpoint, JSON.stringify(rooms), this.#leaseMs];
  }
}

function hashOf({ news }: Outcome): string {
  return news === undefined ? "" : variablesHash(notificationFields(news));
}

function owedFrom(answer: OwedRow[]): Owed {
  const rows = answer.filter(({ delivery_id }) => delivery_id !== null);
  const claims = rows.filter(({ claimed }) => claimed).map(claimFrom);
  const superseded = answer[0]?.superseded ?? 0;
  const leftTo = rows.filter(({ claimed, due }) => due && !claimed).map(({ endpoint_id }) => endpoint_id);
  return { claims, left: leftTo.length, leftTo, written: rows.length, superseded, more: false };
}

/** Signing keys by their secrets: making one anew for each claim is 2 % of a drain. */
const keys = new Map<string, KeyObject>();
const MAX_KEYS = 10_000;

function keyOf(secret: string): KeyObject {
  let key = keys.get(secret);
  if (key === undefined) {
    key = signingKey(Buffer.from(secret, "hex"));
    if (keys.size >= MAX_KEYS) keys.clear();
    keys.set(secret, key);
  }
  return key;
}

function claimFrom(row: ClaimRow): Claim {
  return {
    deliveryId: row.delivery_id,
    endpointId: row.endpoint_id,
    url: row.url,
    key: keyOf(row.secret),
    attempts: row.attempts,
    carried: row.carried_attempts,
    latest: row.latest,
    lease: row.lease,
    databaseMs: row.database_ms,
    claimedAt: performance.now(),
    news: {
      scope: row.scope,
      formedThrough: row.formed_through,
      storedThrough: row.stored_through,
      parkedTurns: row.parked_turns,
      occurredAt: row.occurred_at,
    },
  };
}
