// The ledger's rows as clients and operators meet them: listed, looked up, and settled or released where
// they are held.
import type { Audit } from "../audit/audit.ts";
import type { Database, Queryable } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import {
  LEDGER_COLUMNS,
  LedgerError,
  type LedgerRow,
  type LedgerStatus,
  NOTIFICATION_TARGET,
  OWN_RUN,
} from "./ledger.ts";

export interface LedgerFilter {
  /** Undefined for the operator, who sees every project's. */
  project?: string | undefined;
  target?: string | undefined;
  scope?: string | undefined;
  status?: LedgerStatus | undefined;
  runId?: string | undefined;
  identityId?: string | undefined;
  limit: number;
  after?: string | undefined;
}

export interface LedgerPage {
  /** Newest first. */
  deliveries: (LedgerRow & { project: string })[];
  /** Where the next page starts; undefined on the last one. */
  next?: string;
}

/** Who acts on a row: a credential, or the operator at the command line, who may act on any project's. */
export interface Actor {
  project: string | undefined;
  principal: string | undefined;
}

/** A place in the list: when a row was made, and its id. Opaque to clients. */
const CURSOR_PATTERN = /^([0-9TZ:.-]{20,30})_([\x21-\x7e]{1,64})$/;

/** The cursor in a client's `after`; undefined where it is none of ours. */
export function parseLedgerCursor(after: string): { createdAt: string; id: string } | undefined {
  const match = CURSOR_PATTERN.exec(Buffer.from(after, "base64url").toString("latin1"));
  return match === null ? undefined : { createdAt: match[1] as string, id: match[2] as string };
}

export class LedgerRows {
  readonly #db: Database;
  readonly #audit: Audit;
  readonly #table: string;

  constructor(db: Database, namespace: Namespace, audit: Audit) {
    this.#db = db;
    this.#audit = audit;
    this.#table = `${namespace.sql}.deliveries`;
  }

  /**
   * Index deliveries_project_idx; deliveries_status_idx for a status that is not plainly accepted;
   * deliveries_run_idx and deliveries_identity_idx where the filter leaves no notification. By a scope alone, or
   * for the operator without a project, rows are read until the page is full, all of them at worst. `after` must
   * have passed parseLedgerCursor.
   */
  async list(filter: LedgerFilter): Promise<LedgerPage> {
    const cursor = filter.after === undefined ? undefined : parseLedgerCursor(filter.after);
    const values: unknown[] = [];
    const conditions = ["true"];
    const add = (condition: (place: string) => string, value: unknown) => {
      if (value !== undefined) conditions.push(condition(`$${values.push(value)}`));
    };
    add((place) => `project = ${place}`, filter.project);
    add((place) => `target = ${place}`, filter.target);
    add((place) => `scope = ${place}`, filter.scope);
    add((place) => `status = ${place}`, filter.status);
    add((place) => `run_id = ${place}`, filter.runId);
    add((place) => `identity_id = ${place}`, filter.identityId);
    if (filter.status !== undefined && filter.status !== "accepted") conditions.push("status <> 'accepted'");
    if (leavesNoNotification(filter)) conditions.push(`target <> '${NOTIFICATION_TARGET}'`);
    if (cursor !== undefined) {
      conditions.push(`(created_at, id) < ($${values.push(cursor.createdAt)}, $${values.push(cursor.id)})`);
    }
    const rows = await this.#db.query<LedgerRow & { project: string }>(
      `SELECT ${LEDGER_COLUMNS}, project FROM ${this.#table} WHERE ${conditions.join(" AND ")}
       ORDER BY created_at DESC, id DESC LIMIT $${values.push(filter.limit + 1)}`,
      values,
    );
    const deliveries = rows.slice(0, filter.limit);
    const last = deliveries.at(-1);
    return {
      deliveries,
      ...(rows.length > filter.limit && last !== undefined
        ? { next: Buffer.from(`${last.created_at}_${last.id}`).toString("base64url") }
        : {}),
    };
  }

  /** Index deliveries_pkey. @throws LedgerError where there is no such row. */
  async find(id: string, project?: string): Promise<LedgerRow & { project: string }> {
    return this.#find(this.#db, id, project);
  }

  /** A held row was found at its target. Settling it twice is no error. @throws LedgerError */
  async settle(actor: Actor, id: string): Promise<LedgerRow> {
    return this.#db.transaction(async (transaction) => {
      const [settled] = await transaction.query<LedgerRow & { project: string }>(
        `UPDATE ${this.#table} SET status = 'settled'
         WHERE id = $1 AND ($2::text IS NULL OR project = $2) AND status = 'unconfirmed'
         RETURNING ${LEDGER_COLUMNS}, project`,
        [id, actor.project ?? null],
      );
      const row = settled ?? (await this.#find(transaction, id, actor.project));
      if (row.status !== "settled") throw notHeld(row, "settled");
      await this.#record(transaction, actor, row, "delivery.settle", settled === undefined ? 0 : 1);
      return row;
    });
  }

  /** A held row leaves the ledger, so that the next delivery under its key is sent. @throws LedgerError */
  async release(actor: Actor, id: string): Promise<LedgerRow> {
    return this.#db.transaction(async (transaction) => {
      const [released] = await transaction.query<LedgerRow & { project: string }>(
        `DELETE FROM ${this.#table}
         WHERE id = $1 AND ($2::text IS NULL OR project = $2) AND status = 'unconfirmed'
         RETURNING ${LEDGER_COLUMNS}, project`,
        [id, actor.project ?? null],
      );
      if (released === undefined) throw notHeld(await this.#find(transaction, id, actor.project), "released");
      await this.#record(transaction, actor, released, "delivery.release", 1);
      return released;
    });
  }

  async #find(db: Queryable, id: string, project: string | undefined) {
    const [row] = await db.query<LedgerRow & { project: string }>(
      `SELECT ${LEDGER_COLUMNS}, project FROM ${this.#table}
       WHERE id = $1 AND ($2::text IS NULL OR project = $2)`,
      [id, project ?? null],
    );
    if (row === undefined) throw noSuchDelivery();
    return row;
  }

  async #record(
    transaction: Queryable,
    { principal }: Actor,
    { project }: { project: string },
    operation: string,
    magnitude: number,
  ): Promise<void> {
    await this.#audit.record(transaction, {
      operation,
      project,
      outcome: "allowed",
      magnitude,
      ...(principal === undefined ? {} : { principal }),
    });
  }
}

export function noSuchDelivery(): LedgerError {
  return new LedgerError("not found", "There is no such delivery; list the deliveries for their ids.");
}

/** A notification is about its project and made by a run of the service itself. */
function leavesNoNotification({ project, target, runId, identityId }: LedgerFilter): boolean {
  if (target !== undefined) return target !== NOTIFICATION_TARGET;
  const otherIdentity = identityId !== undefined && project !== undefined && identityId !== project;
  return otherIdentity || (runId !== undefined && !runId.startsWith(OWN_RUN));
}

function notHeld({ status }: LedgerRow, what: string): LedgerError {
  return new LedgerError("invalid", `only a held delivery can be ${what}; this one is ${status}`);
}
