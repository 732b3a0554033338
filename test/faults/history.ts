// What really happened, written down by PostgreSQL itself: triggers of the campaign's own note every change
// of a delivery row and every advance of a watermark in the transaction that makes it, and who made it. A
// row that is dropped, ended twice or ended by another life's outcome is seen, whatever the table says later.
import type { Queryable } from "../../src/database/database.ts";
import type { Namespace } from "../../src/database/namespace.ts";
import { WHO } from "./replica.ts";

/** One change of a delivery row. */
export interface Change {
  delivery_id: string;
  endpoint_id: string;
  formed_through: bigint;
  op: "INSERT" | "UPDATE" | "DELETE";
  /** Unix ms. */
  at: number;
  /** The replica's life; null for anyone else. */
  who: string | null;
  lease: number;
  attempts: number;
  claimed: boolean;
  ended: "delivered" | "parked" | "superseded" | null;
  last_error: string | null;
  /** It had ended before. */
  was_ended: boolean;
  /** Only what was carried over and when it is due changed, and its endpoint wants the latest. */
  told: boolean;
  [column: string]: unknown;
}

export interface CommittedAdvance {
  scope: string;
  formed_through: bigint;
  [column: string]: unknown;
}

export class History {
  readonly #db: Queryable;
  readonly #schema: string;
  readonly #own: string;

  constructor(db: Queryable, namespace: Namespace) {
    this.#db = db;
    this.#schema = namespace.sql;
    this.#own = `"${namespace.name}_faults"`;
  }

  async create(): Promise<void> {
    const ended = (row: string) =>
      `CASE WHEN ${row}.delivered_at IS NOT NULL THEN 'delivered' WHEN ${row}.parked_at IS NOT NULL THEN 'parked'
            WHEN ${row}.superseded_at IS NOT NULL THEN 'superseded' END`;
    await this.#db.query(`
      CREATE SCHEMA ${this.#own};
      CREATE TABLE ${this.#own}.change (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at timestamptz NOT NULL DEFAULT clock_timestamp(), who text, op text NOT NULL,
        delivery_id uuid NOT NULL, endpoint_id uuid NOT NULL, formed_through bigint NOT NULL,
        lease integer, attempts integer, claimed boolean, ended text, last_error text, was_ended boolean,
        told boolean);
      CREATE TABLE ${this.#own}.advance (
        at timestamptz NOT NULL DEFAULT clock_timestamp(), scope text NOT NULL, formed_through bigint NOT NULL);
      CREATE FUNCTION ${this.#own}.note_change() RETURNS trigger LANGUAGE plpgsql AS $$
      DECLARE
        was_ended boolean := false;
        told boolean := false;
      BEGIN
        IF TG_OP <> 'INSERT' THEN was_ended := ${ended("OLD")} IS NOT NULL; END IF;
        IF TG_OP = 'UPDATE' THEN
          told := to_jsonb(NEW) - '{carried_attempts,next_attempt_at}'::text[]
                    = to_jsonb(OLD) - '{carried_attempts,next_attempt_at}'::text[]
            AND (SELECT deliver FROM ${this.#schema}.notification_endpoint WHERE endpoint_id = NEW.endpoint_id) = 'latest';
        END IF;
        IF TG_OP = 'DELETE' THEN NEW := OLD; END IF;
        INSERT INTO ${this.#own}.change (who, op, delivery_id, endpoint_id, formed_through, lease, attempts,
                                         claimed, ended, last_error, was_ended, told)
        VALUES (nullif(current_setting('${WHO}', true), ''), TG_OP, NEW.delivery_id, NEW.endpoint_id,
                NEW.formed_through, NEW.lease, NEW.attempts, NEW.lease_until IS NOT NULL, ${ended("NEW")},
                NEW.last_error, was_ended, told);
        RETURN NULL;
      END $$;
      CREATE TRIGGER faults_change AFTER INSERT OR UPDATE OR DELETE ON ${this.#schema}.notification_delivery
        FOR EACH ROW EXECUTE FUNCTION ${this.#own}.note_change();
      CREATE FUNCTION ${this.#own}.note_advance() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        INSERT INTO ${this.#own}.advance (scope, formed_through) VALUES (NEW.scope, NEW.formed_through);
        RETURN NULL;
      END $$;
      CREATE TRIGGER faults_advance AFTER UPDATE ON ${this.#schema}.watermark
        FOR EACH ROW WHEN (NEW.formed_through > COALESCE(OLD.formed_through, -1))
        EXECUTE FUNCTION ${this.#own}.note_advance();`);
  }

  /** Every change, each delivery's in their order. */
  changes(): Promise<Change[]> {
    return this.#db.query<Change>(
      `SELECT delivery_id, endpoint_id, formed_through, op, who, lease, attempts, claimed, ended, last_error,
              was_ended, told, (extract(epoch FROM at) * 1000)::float8 AS at
       FROM ${this.#own}.change ORDER BY delivery_id, seq`,
    );
  }

  /** Every advance that was committed, each project's in their order. */
  advances(): Promise<CommittedAdvance[]> {
    return this.#db.query<CommittedAdvance>(
      `SELECT scope, formed_through FROM ${this.#own}.advance ORDER BY scope, formed_through`,
    );
  }

  async drop(): Promise<void> {
    await this.#db.query(`DROP SCHEMA IF EXISTS ${this.#own} CASCADE`);
    await this.#db.query(`DROP SCHEMA IF EXISTS ${this.#schema} CASCADE`);
  }
}
