// Endpoints: where a project asked to be told. Each change and its audit entry are one transaction.
import { randomBytes, randomUUID } from "node:crypto";
import type { Audit } from "../audit/audit.ts";
import type { Principal } from "../credentials/credentials.ts";
import type { Database, Queryable } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { isConflict } from "../database/sqlstate.ts";
import { groupNameIn, groupUrl } from "../ledger/group-name.ts";

/** Contract section 7: live endpoints a project may have. */
export const MAX_LIVE_ENDPOINTS = 100;

/** Disabled ones are kept for as long as deliveries point at them, so a list of them needs an end. */
export const MAX_LISTED_DISABLED = 1_000;

export type Deliver = "every" | "latest";

/** `native`: the receiver updates in place, so that what a crash cut off can be sent again. */
export type Idempotency = "none" | "native";

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

const COLUMNS = "endpoint_id AS id, COALESCE(group_target, url) AS url, created_at, disabled_at";

/** Deliveries that one statement supersedes at most. */
const SUPERSEDE_BATCH = 5_000;

const UUID_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Whether a client's text can be an endpoint's id at all; PostgreSQL would refuse any other with an error. */
export function isEndpointId(text: string): boolean {
  return UUID_PATTERN.test(text);
}

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
   * Registers a URL (already checked and in the parser's form), or `group:<name>`, with a new secret. A
   * disabled endpoint of the same URL comes back to life as the same row. It is owed what forms from now on.
   */
  async register(
    principal: Principal,
    url: string,
    deliver: Deliver,
    idempotency: Idempotency = "none",
  ): Promise<Registration> {
    const secret = randomBytes(32);
    const group = groupNameIn(url);
    const storedUrl = group === undefined ? url : groupUrl(group);
    return this.#change(async (transaction) => {
      // One registration at a time in a project, so that the limit holds. Only this statement and
      // other registrations take this lock; formation takes none on the project.
      await transaction.query(`SELECT FROM ${this.#schema}.project WHERE scope = $1 FOR NO KEY UPDATE`, [
        principal.project,
      ]);
      const [known] = await transaction.query<{ same_live: boolean; live: bigint }>(
        `SELECT COALESCE(bool_or(url = $2), false) AS same_live, count(*) AS live
         FROM ${this.#schema}.notification_endpoint WHERE scope = $1 AND disabled_at IS NULL`,
        [principal.project, storedUrl],
      );
      if (known?.same_live === true) return { kind: "already registered" };
      if (Number(known?.live) >= MAX_LIVE_ENDPOINTS) return { kind: "too many" };
      // What was owed before, and is perhaps pending still, is not sent now: claims compare each row with
      // registered_from. Index notification_endpoint_scope_url_key.
      const [endpoint] = await transaction.query<Endpoint>(
        `INSERT INTO ${this.#schema}.notification_endpoint AS e
           (endpoint_id, scope, url, secret, deliver, group_target, idempotency, registered_from)
         SELECT $1, $2, $3, $4, $5, $6, $7,
                (SELECT formed_through FROM ${this.#schema}.watermark WHERE scope = $2)
         ON CONFLICT (scope, url) DO UPDATE
           SET secret = EXCLUDED.secret, deliver = EXCLUDED.deliver, idempotency = EXCLUDED.idempotency,
               registered_from = EXCLUDED.registered_from, disabled_at = NULL
         RETURNING ${COLUMNS}`,
        [
          randomUUID(),
          principal.project,
          storedUrl,
          secret,
          deliver,
          group === undefined ? null : url,
          idempotency,
        ],
      );
      const registered = endpoint as Endpoint;
      await this.#record(transaction, principal, "notification.register", 1, registered.id);
      return { kind: "registered", endpoint: registered, secret: secret.toString("hex") };
    });
  }

  /** The live endpoints of a project and the 1,000 that it disabled last, oldest first. */
  async list(project: string): Promise<Endpoint[]> {
    // Indexes notification_endpoint_scope_idx for the live, notification_endpoint_scope_url_key for the rest.
    return this.#db.query<Endpoint>(
      `SELECT ${COLUMNS} FROM ${this.#schema}.notification_endpoint
       WHERE scope = $1 AND disabled_at IS NULL
       UNION ALL
       (SELECT ${COLUMNS} FROM ${this.#schema}.notification_endpoint
        WHERE scope = $1 AND disabled_at IS NOT NULL
        ORDER BY disabled_at DESC LIMIT ${MAX_LISTED_DISABLED})
       ORDER BY created_at, id`,
      [project],
    );
  }

  /** Whether the project has, or had, this endpoint. */
  async owns(project: string, id: string): Promise<boolean> {
    if (!isEndpointId(id)) return false;
    const rows = await this.#db.query(
      `SELECT FROM ${this.#schema}.notification_endpoint WHERE scope = $1 AND endpoint_id = $2`,
      [project, id],
    );
    return rows.length > 0;
  }

  /**
   * Disables an endpoint: what is pending for it ends as superseded, what is under way included, whose
   * outcome then changes nothing. False where the project has no such endpoint; disabling one that is
   * disabled already is true and ends what is pending still.
   */
  async disable(principal: Principal, id: string): Promise<boolean> {
    if (!isEndpointId(id)) return false;
    const ended = await this.#change(async (transaction) => {
      const [found] = await transaction.query<{ id: string }>(
        `UPDATE ${this.#schema}.notification_endpoint SET disabled_at = COALESCE(disabled_at, now())
         WHERE scope = $1 AND endpoint_id = $2 RETURNING endpoint_id AS id`,
        [principal.project, id],
      );
      if (found === undefined) return undefined;
      const first = await this.#supersede(transaction, id);
      await this.#record(transaction, principal, "notification.disable", 1 + first, found.id);
      return first;
    });
    if (ended === undefined) return false;
    // A backlog of months does not fit into one transaction. Nothing of it is sent meanwhile: claims end
    // rows of a disabled endpoint too.
    let last = ended;
    while (last === SUPERSEDE_BATCH) last = await this.#supersede(this.#db, id);
    return true;
  }

  /** Ends pending deliveries of an endpoint that is disabled; how many. */
  async #supersede(db: Queryable, id: string): Promise<number> {
    // Index notification_delivery_endpoint_due_idx. Asks again whether it is disabled: it may have been
    // registered anew since the last batch, and what is owed to it then must stay.
    const rows = await db.query(
      `UPDATE ${this.#schema}.notification_delivery d
       SET superseded_at = now(), next_attempt_at = 'infinity', lease_until = NULL
       WHERE d.delivery_id IN (
         SELECT p.delivery_id FROM ${this.#schema}.notification_delivery p
         WHERE p.endpoint_id = $1 AND num_nonnulls(p.delivered_at, p.parked_at, p.superseded_at) = 0
           AND EXISTS (SELECT FROM ${this.#schema}.notification_endpoint e
                       WHERE e.endpoint_id = $1 AND e.disabled_at IS NOT NULL)
         LIMIT ${SUPERSEDE_BATCH})
         AND num_nonnulls(d.delivered_at, d.parked_at, d.superseded_at) = 0
       RETURNING d.delivery_id`,
      [id],
    );
    return rows.length;
  }

  /**
   * One transaction, done again where PostgreSQL undid it: the engine locks deliveries in an order of its
   * own, so disabling an endpoint while outcomes are recorded can be the loser of a deadlock.
   */
  async #change<Result>(work: (transaction: Queryable) => Promise<Result>): Promise<Result> {
    try {
      return await this.#db.transaction(work);
    } catch (error) {
      if (!isConflict(error)) throw error;
      return await this.#db.transaction(work);
    }
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
