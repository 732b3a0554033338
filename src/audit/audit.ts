// The append-only record of who did what. It holds ids and counts: no path, secret, token or content.

import type { Queryable, Statement } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";

export interface AuditEntry {
  /** Such as `notification.register` or `authenticate`. */
  operation: string;
  /** The credential's id; left out where none was recognised. */
  principal?: string;
  project?: string;
  outcome: "allowed" | "refused";
  /** How many rows the call touched. */
  magnitude: number;
  endpointId?: string;
}

export class Audit {
  readonly #statement: Statement;

  constructor(namespace: Namespace) {
    this.#statement = {
      name: `${namespace.name}.audit.record`,
      text: `INSERT INTO ${namespace.sql}.audit_entry
               (operation, principal, project, outcome, magnitude, endpoint_id)
             VALUES ($1, $2, $3, $4, $5, $6)`,
    };
  }

  /** Appends one entry; inside the transaction of the change it speaks of, where there is one. */
  async record(db: Queryable, entry: AuditEntry): Promise<void> {
    await db.query(this.#statement, [
      entry.operation,
      entry.principal ?? null,
      entry.project ?? null,
      entry.outcome,
      entry.magnitude,
      entry.endpointId ?? null,
    ]);
  }
}
