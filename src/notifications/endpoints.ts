// Endpoints: where a project asked to be told. Each change and its audit entry are one transaction.
import { randomBytes, randomUUID } from "node:crypto";
import type { Audit } from "../audit/audit.ts";
import type { Principal } from "../credentials/credentials.ts";
import type { Database, Queryable } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";

/** Contract section 7: live endpoints a project may have. */
export const MAX_LIVE_ENDPOINTS = 100;

export type Deliver = "every" | "latest";

export interface Endpoint {
  id: string;
  url: string;
  created_at: Date;
  disabled_at: Date | null;
}

export type Registration =
  | { kind: "registered"; endpoint: Endpoint; secret: string }
  | { kind: "already registered" }
  | { kind: "too many" };

const COLUMNS = "endpoint_id AS id, url, created_at, disabled_at";
const UUID_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export class Endpoints {
  readonly #db: Database;
  readonly #audit: Audit;
  readonly #schema: string;

  constructor(db: Database, namespace: Namespace, audit: Audit) {
    this.#db = db;
    this.#audit = audit;
    this.#schema = namespace.sql;
  }

  /**
   * Registers a URL (already checked and in the parser's form) with a new secret. A disabled endpoint of
   * the same URL comes back to life as the same row. It is owed what forms from now on.
   */
  async register(principal: Principal, url: string, deliver: Deliver): Promise<Registration> {
    const secret = randomBytes(32);
    return this.#db.transaction(async (transaction) => {
      // One registration at a time in a project, so that the limit holds. Only this statement and
      // other registrations take this lock; formation takes none on the project.
      await transaction.query(`SELECT FROM ${this.#schema}.project WHERE scope = $1 FOR NO KEY UPDATE`, [
        principal.project,
      ]);
      const [known] = await transaction.query<{ same_live: boolean; live: bigint }>(
        `SELECT COALESCE(bool_or(url = $2), false) AS same_live, count(*) AS live
         FROM ${this.#schema}.notification_endpoint WHERE scope = $1 AND disabled_at IS NULL`,
        [principal.project, url],
      );
      if (known?.same_live === true) return { kind: "already registered" };
      if (Number(known?.live) >= MAX_LIVE_ENDPOINTS) return { kind: "too many" };
      const [endpoint] = await transaction.query<Endpoint>(
        `INSERT INTO ${this.#schema}.notification_endpoint AS e
           (endpoint_id, scope, url, secret, deliver, registered_from)
         SELECT $1, $2, $3, $4, $5,
                (SELECT formed_through FROM ${this.#schema}.watermark WHERE scope = $2)
         ON CONFLICT (scope, url) DO UPDATE
           SET secret = EXCLUDED.secret, deliver = EXCLUDED.deliver,
               registered_from = EXCLUDED.registered_from, disabled_at = NULL
         RETURNING ${COLUMNS}`,
        [randomUUID(), principal.project, url, secret, deliver],
      );
      const registered = endpoint as Endpoint;
      await this.#record(transaction, principal, "notification.register", 1, registered.id);
      return { kind: "registered", endpoint: registered, secret: secret.toString("hex") };
    });
  }

  /** Every endpoint of a project, live or not, oldest first. */
  async list(project: string): Promise<Endpoint[]> {
    return this.#db.query<Endpoint>(
      `SELECT ${COLUMNS} FROM ${this.#schema}.notification_endpoint WHERE scope = $1 ORDER BY created_at, endpoint_id`,
      [project],
    );
  }

  /** Whether the project has, or had, this endpoint. */
  async owns(project: string, id: string): Promise<boolean> {
    if (!UUID_PATTERN.test(id)) return false;
    const rows = await this.#db.query(
      `SELECT FROM ${this.#schema}.notification_endpoint WHERE scope = $1 AND endpoint_id = $2`,
      [project, id],
    );
    return rows.length > 0;
  }

  /**
   * Disables an endpoint: what is pending for it ends as superseded, what is under way included, whose
   * outcome then changes nothing. False where the project has no such endpoint; disabling one that is
   * disabled already is true and changes nothing.
   */
  async disable(principal: Principal, id: string): Promise<boolean> {
    if (!UUID_PATTERN.test(id)) return false;
    return this.#db.transaction(async (transaction) => {
      const [found] = await transaction.query<{ id: string }>(
        `UPDATE ${this.#schema}.notification_endpoint SET disabled_at = COALESCE(disabled_at, now())
         WHERE scope = $1 AND endpoint_id = $2 RETURNING endpoint_id AS id`,
        [principal.project, id],
      );
      if (found === undefined) return false;
      // Index notification_delivery_endpoint_due_idx.
      const ended = await transaction.query(
        `UPDATE ${this.#schema}.notification_delivery
         SET superseded_at = now(), next_attempt_at = 'infinity', claimed_at = NULL
         WHERE endpoint_id = $1 AND delivered_at IS NULL AND parked_at IS NULL AND superseded_at IS NULL
         RETURNING delivery_id`,
        [id],
      );
      await this.#record(transaction, principal, "notification.disable", 1 + ended.length, found.id);
      return true;
    });
  }

  async #record(
    transaction: Queryable,
    principal: Principal,
    operation: string,
    magnitude: number,
    endpointId: string,
  ): Promise<void> {
    await this.#audit.record(transaction, {
      operation,
      principal: principal.id,
      project: principal.project,
      outcome: "allowed",
      magnitude,
      endpointId,
    });
  }
}
