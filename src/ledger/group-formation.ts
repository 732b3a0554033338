// Formation handed to groups: what signals say and what no signal brought, each watermark once a group, rising.
import type { Queryable } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import type { Advance } from "../notifications/deliveries.ts";
import type { PermittedGroups } from "./group-name.ts";
import { type FormationStatements, formationStatements } from "./group-queries.ts";
import { handoffChannel } from "./groups.ts";
import { undisputed } from "./undisputed.ts";

/** Group endpoints that one reconciling statement hands to at most. */
const RECONCILE_BATCH = 1_000;

/** What a statement handed over. Nothing of it is left for later: a handoff waits for no room. */
export interface HandedOver {
  written: number;
  left: 0;
  /** Whether there may be more to hand over. */
  more: boolean;
}

export interface FormationHandoffsOptions {
  db: Queryable;
  namespace: Namespace;
  /** The others' endpoints stay registered, and are handed nothing. */
  groups: PermittedGroups;
  /** Whether readers are woken. */
  notify: boolean;
  /** Names this run of this process in the ledger. */
  runId: string;
}

export class FormationHandoffs {
  readonly #options: FormationHandoffsOptions;
  readonly #sql: FormationStatements;

  constructor(options: FormationHandoffsOptions) {
    this.#options = options;
    this.#sql = formationStatements(
      options.namespace,
      options.notify ? handoffChannel(options.namespace) : undefined,
    );
  }

  /** Hands advances to the live group endpoints of their projects. */
  owe(advances: Advance[]): Promise<HandedOver> {
    return this.#hand(this.#sql.owe, [
      advances.map(({ scope }) => scope),
      advances.map(({ formedThrough }) => formedThrough),
      advances.map(({ storedThrough }) => storedThrough),
      advances.map(({ formedTurns }) => formedTurns),
      advances.map(({ parkedTurns }) => parkedTurns),
    ]);
  }

  /** Hands over watermarks that no signal brought. Call again while there is `more`. */
  reconcile(): Promise<HandedOver> {
    return this.#hand(this.#sql.reconcile, [RECONCILE_BATCH]);
  }

  async #hand(statement: FormationStatements["owe"], values: unknown[]): Promise<HandedOver> {
    const { db, groups, runId } = this.#options;
    const all = [runId, groups.targets ?? null, ...values];
    const rows = await undisputed(() => db.query<{ written: number }>(statement, all));
    const written = rows.reduce((sum, row) => sum + row.written, 0);
    // Where others were quicker with some, more than was written may be left: it looks until it finds nothing.
    return { written, left: 0, more: written > 0 };
  }
}
