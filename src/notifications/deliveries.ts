// Deliveries as the engine sees them: owed, claimed under a lease, and ended exactly once.
import type { Queryable } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import type { Signal } from "../signals/signal.ts";
import type { News } from "./payload.ts";
import { type DeliveryStatements, deliveryStatements } from "./queries.ts";

/** A delivery this process holds: it sends it and then says what came of it, under the same lease. */
export interface Claim {
  deliveryId: string;
  endpointId: string;
  url: string;
  secret: Buffer;
  news: News;
  /** Requests started, this one included. */
  attempts: number;
  lease: number;
  /** The database's clock when the claim was made, in ms since 1970. */
  databaseMs: number;
}

/** How many deliveries may be claimed: in all, to one endpoint, and less to the endpoints named. */
export interface Room {
  total: number;
  perEndpoint: number;
  busy: { endpointId: string; room: number }[];
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
}

export interface Owed {
  claims: Claim[];
  /** Rows written and left for a later claim, for want of room. */
  left: number;
  /** Rows written in all; 0 where everything was owed before. */
  written: number;
}

export interface Due {
  claims: Claim[];
  parked: number;
  superseded: number;
  /** Whether more may be due: the room was used up, or only the later endpoints were looked at. */
  more: boolean;
}

interface ClaimRow {
  delivery_id: string;
  endpoint_id: string;
  scope: string;
  formed_through: bigint;
  stored_through: bigint;
  parked_turns: number;
  attempts: number;
  lease: number;
  url: string;
  secret: Buffer;
  occurred_at: string;
  database_ms: number;
}

/** Endpoints that one reconciling statement owes at most. */
const RECONCILE_BATCH = 1_000;
/** Sorts before every id. */
const BEFORE_ALL = "00000000-0000-0000-0000-000000000000";

export class Deliveries {
  readonly #db: Queryable;
  readonly #sql: DeliveryStatements;
  readonly #leaseMs: number;
  readonly #maxAttempts: number;
  /** The endpoint the last claim ended at: the next one starts behind it, so that all get their turn. */
  #cursor = BEFORE_ALL;

  constructor(db: Queryable, namespace: Namespace, options: { leaseMs: number; maxAttempts: number }) {
    this.#db = db;
    this.#sql = deliveryStatements(namespace);
    this.#leaseMs = options.leaseMs;
    this.#maxAttempts = options.maxAttempts;
  }

  /** Owes what the signals say to every live endpoint of their projects, and claims what there is room for. */
  async owe(signals: Signal[], room: Room): Promise<Owed> {
    const rows = await this.#db.query<ClaimRow & { claimed: boolean }>(this.#sql.owe, [
      ...this.#roomValues(room),
      signals.map(({ scope }) => scope),
      signals.map(({ formedThrough }) => formedThrough),
      signals.map(({ storedThrough }) => storedThrough),
      signals.map(({ formedTurns }) => formedTurns),
      signals.map(({ parkedTurns }) => parkedTurns),
    ]);
    return owedFrom(rows);
  }

  /** Owes what no signal brought: every watermark past what an endpoint was told. Call again while `written` is not 0. */
  async reconcile(room: Room): Promise<Owed> {
    const rows = await this.#db.query<ClaimRow & { claimed: boolean }>(this.#sql.reconcile, [
      ...this.#roomValues(room),
      RECONCILE_BATCH,
    ]);
    return owedFrom(rows);
  }

  /** Claims what is due, a little from each endpoint, taking up where the last claim left off. */
  async claim(room: Room): Promise<Due> {
    const start = this.#cursor;
    const rows = await this.#db.query<ClaimRow & { verdict: "claimed" | "parked" | "superseded" }>(
      this.#sql.claim,
      [...this.#roomValues(room), start, this.#maxAttempts],
    );
    const reachedEnd = rows.length < room.total;
    this.#cursor = reachedEnd ? BEFORE_ALL : (rows.at(-1)?.endpoint_id ?? BEFORE_ALL);
    const due: Due = { claims: [], parked: 0, superseded: 0, more: !reachedEnd || start !== BEFORE_ALL };
    for (const row of rows) {
      if (row.verdict === "claimed") due.claims.push(claimFrom(row));
      else due[row.verdict]++;
    }
    return due;
  }

  /** Records outcomes; the deliveries whose row was still held by its claim. */
  async record(outcomes: Outcome[]): Promise<Set<string>> {
    const rows = await this.#db.query<{ delivery_id: string }>(this.#sql.record, [
      outcomes.map(({ deliveryId }) => deliveryId),
      outcomes.map(({ lease }) => lease),
      outcomes.map(({ verdict }) => verdict),
      outcomes.map(({ status }) => status ?? null),
      outcomes.map(({ error }) => error ?? null),
      outcomes.map(({ waitMs }) => waitMs ?? 0),
    ]);
    return new Set(rows.map(({ delivery_id }) => delivery_id));
  }

  /** Milliseconds until the next delivery becomes due; undefined where none is waiting. */
  async nextDueMs(): Promise<number | undefined> {
    const [row] = await this.#db.query<{ wait_ms: number | null }>(this.#sql.nextDue);
    return row?.wait_ms ?? undefined;
  }

  /** Deletes up to `limit` deliveries that ended longer ago than `retentionMs`; how many. */
  async expire(retentionMs: number, limit: number): Promise<number> {
    return (await this.#db.query(this.#sql.expire, [retentionMs, limit])).length;
  }

  #roomValues(room: Room): unknown[] {
    return [
      room.total,
      room.perEndpoint,
      room.busy.map(({ endpointId }) => endpointId),
      room.busy.map((endpoint) => endpoint.room),
      this.#leaseMs,
    ];
  }
}

function owedFrom(rows: (ClaimRow & { claimed: boolean })[]): Owed {
  const claims = rows.filter(({ claimed }) => claimed).map(claimFrom);
  return { claims, left: rows.length - claims.length, written: rows.length };
}

function claimFrom(row: ClaimRow): Claim {
  return {
    deliveryId: row.delivery_id,
    endpointId: row.endpoint_id,
    url: row.url,
    secret: row.secret,
    attempts: row.attempts,
    lease: row.lease,
    databaseMs: row.database_ms,
    news: {
      scope: row.scope,
      formedThrough: row.formed_through,
      storedThrough: row.stored_through,
      parkedTurns: row.parked_turns,
      occurredAt: row.occurred_at,
    },
  };
}
