// Attestations: what the project, or the receiver itself, says about a delivery later on. Which status may
// follow which is the database's to say (deliveries_status_follows).
import type { Audit } from "../audit/audit.ts";
import type { Database } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { breaksConstraint } from "../database/sqlstate.ts";
import { verify } from "../signing/index.ts";
import { LEDGER_COLUMNS, LedgerError, type LedgerRow, ledgerTime } from "./ledger.ts";
import { noSuchDelivery } from "./rows.ts";

export const ATTESTATIONS = ["sent", "confirmed", "contradicted"] as const;

export interface Attestation {
  id: string;
  status: (typeof ATTESTATIONS)[number];
  /** When it was really sent; for `sent`, now unless given. */
  at?: Date | undefined;
}

/** Who attests: a project's credential, or the receiver, by the secret of the endpoint it was sent to. */
export interface Attester {
  project: string;
  principal?: string;
  endpointId?: string;
}

/** A receiver that attests its own delivery. */
export type ReceiverAttester = Attester & { endpointId: string };

const UUID_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
/** What a signature is checked against where there is no secret, so that it takes as long. */
const NO_SECRET = Buffer.alloc(32);

export class Attestations {
  readonly #db: Database;
  readonly #audit: Audit;
  readonly #schema: string;

  constructor(db: Database, namespace: Namespace, audit: Audit) {
    this.#db = db;
    this.#audit = audit;
    this.#schema = namespace.sql;
  }

  /** Attesting the same twice is no error. @throws LedgerError */
  async attest(attester: Attester, { id, status, at }: Attestation): Promise<LedgerRow> {
    const { project, principal, endpointId } = attester;
    try {
      return await this.#db.transaction(async (transaction) => {
        // Index deliveries_pkey; a receiver's own only.
        const [row] = await transaction.query<LedgerRow & Record<string, unknown>>(
          `UPDATE ${this.#schema}.deliveries
           SET status = $3,
               sent_at = COALESCE($4, sent_at, CASE $3 WHEN 'sent' THEN ${ledgerTime("now()")} END)
           WHERE id = $1 AND project = $2 AND ($5::text IS NULL OR scope = $5)
           RETURNING ${LEDGER_COLUMNS}`,
          [id, project, status, at?.toISOString() ?? null, endpointId ?? null],
        );
        if (row === undefined) throw noSuchDelivery();
        await this.#audit.record(transaction, {
          operation: "delivery.attest",
          project,
          outcome: "allowed",
          magnitude: 1,
          ...(principal === undefined ? {} : { principal }),
          ...(endpointId === undefined ? {} : { endpointId }),
        });
        return row;
      });
    } catch (error) {
      if (!breaksConstraint(error, "deliveries_status_follows")) throw error;
      throw new LedgerError(
        "invalid",
        `${(error as Error).message}; a held one is settled or released first`,
      );
    }
  }

  /**
   * Whose secret signed this body, which holds the id of a delivery to that endpoint; undefined where nobody's
   * did, for whatever reason.
   *
   * Failure policy: fail closed, in one way and in one time: an id that nothing has is checked against a
   * secret as well.
   */
  async signer(bytes: Buffer, signature: string): Promise<ReceiverAttester | undefined> {
    const id = idIn(bytes);
    const found = id === undefined ? undefined : await this.#secretOf(id);
    const secret = (found?.secret ?? NO_SECRET).toString("hex");
    const { ok } = verify({ secret, header: signature, body: bytes });
    return ok && found !== undefined ? { project: found.project, endpointId: found.endpoint_id } : undefined;
  }

  /**
   * The endpoint that a delivery went to, recorded or still under way. Indexes deliveries_pkey,
   * delivery_claim_id_key and notification_delivery_pkey. No row: there is no such delivery, it went to a group,
   * or the project is suspended.
   */
  async #secretOf(id: string) {
    const [found] = await this.#db.query<{ project: string; endpoint_id: string; secret: Buffer }>(
      `SELECT e.scope AS project, e.endpoint_id, e.secret
       FROM ${this.#schema}.notification_endpoint e
       JOIN ${this.#schema}.project p ON p.scope = e.scope AND p.suspended_at IS NULL
       WHERE e.endpoint_id = COALESCE(
         (SELECT d.scope::uuid FROM ${this.#schema}.deliveries d WHERE d.id = $1::text AND d.target LIKE 'https/%'),
         (SELECT c.scope::uuid FROM ${this.#schema}.delivery_claim c WHERE c.id = $1::text),
         (SELECT n.endpoint_id FROM ${this.#schema}.notification_delivery n WHERE n.delivery_id = ($1::text)::uuid))`,
      [id],
    );
    return found;
  }
}

/** The id in a body that nobody has vouched for yet. */
function idIn(bytes: Buffer): string | undefined {
  try {
    const { id } = JSON.parse(bytes.toString("utf8")) as { id?: unknown };
    return typeof id === "string" && UUID_PATTERN.test(id) ? id : undefined;
  } catch {
    return undefined;
  }
}
