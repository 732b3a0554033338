// Claims: one a send under way, written before its request leaves and ended by its outcome. The sending is
// deliver.ts's; this is what the database knows of it.
import type { Database } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import type { LedgerRow } from "./ledger.ts";
import { type LedgerStatements, ledgerStatements } from "./queries.ts";

/** What a send is known by: the unique key of the ledger. */
export interface Key {
  target: string;
  scope: string;
  idempotency: string;
}

/** A registered endpoint, with what is needed to send to it. */
export interface Destination {
  id: string;
  url: string;
  secret: Buffer;
  idempotency: "none" | "native";
  disabled: boolean;
}

/** A claim this process holds: it sends, and says under the same lease what came of it. */
export interface HeldClaim {
  id: string;
  lease: number;
  /** When it was made: by the database's clock in ms since 1970, and by performance.now. */
  databaseMs: number;
  claimedAt: number;
  /** What the row will say. */
  made: Made;
}

/** The columns of a row that its claim fixes. */
export interface Made extends Key {
  identityId: string;
  runId: string;
  variablesHash: string;
  project: string;
}

/** What stands for a key: the row, and whether somebody sends just now or died doing so. */
export interface Standing {
  row: LedgerRow | undefined;
  claim: "none" | "live" | "dead" | "resumable";
}

export interface ClaimRequest extends Made {
  id: string;
  /** What may be sent again after a crash; undefined where nothing may. */
  body: string | undefined;
  leaseMs: number;
}

/** A send that its process did not live to end, taken over. */
export interface Resumed extends HeldClaim {
  body: string;
  url: string;
  secret: Buffer;
  disabled: boolean;
}

type ResumedRow = Omit<Resumed, keyof HeldClaim> &
  ClaimRow &
  Key & { identity_id: string; run_id: string; variables_hash: string; project: string };

interface ClaimRow {
  id: string;
  lease: number;
  database_ms: number;
}

const heldFrom = ({ id, lease, database_ms }: ClaimRow, made: Made): HeldClaim => ({
  id,
  lease,
  made,
  databaseMs: database_ms,
  claimedAt: performance.now(),
});

export class Claims {
  readonly #db: Database;
  readonly #sql: LedgerStatements;

  constructor(db: Database, namespace: Namespace) {
    this.#db = db;
    this.#sql = ledgerStatements(namespace);
  }

  async endpoint(project: string, id: string): Promise<Destination | undefined> {
    const [found] = await this.#db.query<Destination & Record<string, unknown>>(this.#sql.endpoint, [
      project,
      id,
    ]);
    return found;
  }

  async look({ target, scope, idempotency }: Key): Promise<Standing> {
    const [found] = await this.#db.query<LedgerRow & { claim: Standing["claim"] }>(this.#sql.look, [
      target,
      scope,
      idempotency,
    ]);
    const { claim, ...row } = found as LedgerRow & { claim: Standing["claim"] };
    return { row: row.id === null ? undefined : row, claim };
  }

  /**
   * Claims a key, unless `stands` says of the row there, seen after the claim was made, that nothing is to be
   * sent. `again`: what is claimed was in flight before, so whatever the row says of an earlier send, it goes
   * out. Undefined where the claim is somebody else's.
   */
  async take(
    request: ClaimRequest,
    stands: (row: LedgerRow | undefined, again: boolean) => boolean,
  ): Promise<HeldClaim | LedgerRow | undefined> {
    const { target, scope, idempotency } = request;
    return this.#db.transaction(async (transaction) => {
      const [claimed] = await transaction.query<ClaimRow & Record<string, unknown>>(this.#sql.claim, [
        target,
        scope,
        idempotency,
        request.id,
        request.identityId,
        request.runId,
        request.variablesHash,
        request.project,
        request.body ?? null,
        request.leaseMs,
      ]);
      if (claimed === undefined) return undefined;
      const [row] = await transaction.query<LedgerRow & Record<string, unknown>>(this.#sql.row, [
        target,
        scope,
        idempotency,
      ]);
      if (row === undefined || !stands(row, claimed.lease > 1)) return heldFrom(claimed, request);
      await transaction.query(this.#sql.drop, [claimed.id, claimed.lease]);
      return row;
    });
  }

  /** The accepted row, made anew where what it was claimed for was released meanwhile; undefined where another stands there. */
  async complete({ id, lease, made }: HeldClaim): Promise<LedgerRow | undefined> {
    const [row] = await this.#db.query<LedgerRow & Record<string, unknown>>(this.#sql.complete, [
      id,
      lease,
      made.identityId,
      made.target,
      made.scope,
      made.idempotency,
      made.runId,
      made.variablesHash,
      made.project,
    ]);
    return row;
  }

  /** The held row; undefined where the claim is not this process's any more. */
  async hold({ id, lease }: HeldClaim): Promise<LedgerRow | undefined> {
    const [row] = await this.#db.query<LedgerRow & Record<string, unknown>>(this.#sql.hold, [id, lease]);
    return row;
  }

  async drop({ id, lease }: HeldClaim): Promise<void> {
    await this.#db.query(this.#sql.drop, [id, lease]);
  }

  /** Holds what died in flight and may not be sent again; how many. */
  async recover(): Promise<number> {
    return (await this.#db.query(this.#sql.recover)).length;
  }

  /** Takes over what died in flight and may be sent again, at most `limit`. */
  async resume(limit: number, leaseMs: number): Promise<Resumed[]> {
    const rows = await this.#db.query<ResumedRow>(this.#sql.resume, [limit, leaseMs]);
    return rows.map(({ body, url, secret, disabled, ...row }) => ({
      ...heldFrom(row, {
        target: row.target,
        scope: row.scope,
        idempotency: row.idempotency,
        identityId: row.identity_id,
        runId: row.run_id,
        variablesHash: row.variables_hash,
        project: row.project,
      }),
      body,
      url,
      secret,
      disabled,
    }));
  }
}
