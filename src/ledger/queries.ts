// The statements of sends and their claims. Each is one transaction of its own, but for `claim` and `row`,
// which are one together. Times are the database's: durations go in, never instants.
import type { Statement } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { LEDGER_COLUMNS, ledgerTime } from "./ledger.ts";

export interface LedgerStatements {
  endpoint: Statement;
  look: Statement;
  claim: Statement;
  row: Statement;
  complete: Statement;
  hold: Statement;
  drop: Statement;
  recover: Statement;
  resume: Statement;
}

/** What a claim and the row it becomes have in common. */
const CLAIMED = "id, identity_id, target, scope, idempotency, run_id, created_at, variables_hash, project";

export function ledgerStatements(namespace: Namespace): LedgerStatements {
  const deliveries = `${namespace.sql}.deliveries`;
  const claim = `${namespace.sql}.delivery_claim`;
  const endpoint = `${namespace.sql}.notification_endpoint`;
  const statement = (name: string, text: string): Statement => ({
    name: `${namespace.name}.ledger.${name}`,
    text,
  });
  const databaseMs = "(extract(epoch FROM clock_timestamp()) * 1000)::float8 AS database_ms";
  const insert = `INSERT INTO ${deliveries} AS d (${CLAIMED}, status)`;

  return {
    // Index notification_endpoint_pkey; no row: the project has no such endpoint.
    endpoint: statement(
      "endpoint",
      `SELECT endpoint_id AS id, url, secret, idempotency, disabled_at IS NOT NULL AS disabled
       FROM ${endpoint} WHERE endpoint_id = $2 AND scope = $1`,
    ),

    // The row of the key $1…$3 and the claim on it, as one moment has them. Indexes
    // deliveries_target_scope_idempotency_key and delivery_claim_pkey. One row in any case.
    look: statement(
      "look",
      `SELECT d.*, CASE WHEN c.id IS NULL THEN 'none' WHEN c.expires_at > now() THEN 'live'
                        WHEN c.body IS NULL THEN 'dead' ELSE 'resumable' END AS claim
       FROM (SELECT) one
       LEFT JOIN (SELECT ${LEDGER_COLUMNS} FROM ${deliveries}
                  WHERE target = $1 AND scope = $2 AND idempotency = $3) d ON true
       LEFT JOIN (SELECT id, expires_at, body FROM ${claim}
                  WHERE target = $1 AND scope = $2 AND idempotency = $3) c ON true`,
    ),

    // Takes the claim on the key $1…$3, or takes over one whose lease ended and which may be sent again: the
    // same variables keep their id, so that a receiver knows them. Index delivery_claim_pkey. No row: somebody
    // else's send is under way, or was and may not be repeated.
    claim: statement(
      "claim",
      `INSERT INTO ${claim} AS c (target, scope, idempotency, id, identity_id, run_id, created_at,
                                  variables_hash, project, body, expires_at)
       VALUES ($1, $2, $3, $4, $5, $6, ${ledgerTime("clock_timestamp()")}, $7, $8, $9,
               clock_timestamp() + $10 * interval '1 ms')
       ON CONFLICT (target, scope, idempotency) DO UPDATE
         SET id = CASE WHEN c.variables_hash = EXCLUDED.variables_hash THEN c.id ELSE EXCLUDED.id END,
             created_at = CASE WHEN c.variables_hash = EXCLUDED.variables_hash THEN c.created_at
                               ELSE EXCLUDED.created_at END,
             identity_id = EXCLUDED.identity_id, run_id = EXCLUDED.run_id,
             variables_hash = EXCLUDED.variables_hash, body = EXCLUDED.body,
             lease = c.lease + 1, expires_at = EXCLUDED.expires_at
         WHERE c.body IS NOT NULL AND c.expires_at <= clock_timestamp()
       RETURNING id, lease, ${databaseMs}`,
    ),

    // The row of the key $1…$3, after `claim` and with a snapshot of its own: a claim that was just let go by
    // its outcome has left that outcome here. Index deliveries_target_scope_idempotency_key.
    row: statement(
      "row",
      `SELECT ${LEDGER_COLUMNS} FROM ${deliveries} WHERE target = $1 AND scope = $2 AND idempotency = $3`,
    ),

    // The target took it: claim $1 under lease $2 becomes an accepted row, in place of the one of an earlier
    // send of other variables. Where the lease ended meanwhile, the row that recovery made is accepted after
    // all, unless the operator was quicker. Indexes delivery_claim_id_key, deliveries_pkey and
    // deliveries_target_scope_idempotency_key. Where that row was released meanwhile, the target has it all the
    // same: a row is made of $3…$9, unless another stands there, or is being sent, by now. No row: that, or it was
    // recorded before.
    complete: statement(
      "complete",
      `WITH gone AS (
         DELETE FROM ${claim} WHERE id = $1 AND lease = $2 RETURNING ${CLAIMED}
       ), put AS (
         ${insert} SELECT ${CLAIMED}, 'accepted' FROM gone
         ON CONFLICT (target, scope, idempotency) DO UPDATE
           SET id = EXCLUDED.id, identity_id = EXCLUDED.identity_id, run_id = EXCLUDED.run_id,
               created_at = EXCLUDED.created_at, status = 'accepted', sent_at = NULL,
               variables_hash = EXCLUDED.variables_hash
         RETURNING ${LEDGER_COLUMNS}
       ), late AS (
         UPDATE ${deliveries} SET status = 'accepted'
         WHERE id = $1 AND status = 'unconfirmed' AND NOT EXISTS (SELECT FROM gone)
         RETURNING ${LEDGER_COLUMNS}
       ), afresh AS (
         ${insert} SELECT $1, $3, $4, $5, $6, $7, ${ledgerTime("clock_timestamp()")}, $8, $9, 'accepted'
         WHERE NOT EXISTS (SELECT FROM gone) AND NOT EXISTS (SELECT FROM late)
           AND NOT EXISTS (SELECT FROM ${claim} WHERE target = $4 AND scope = $5 AND idempotency = $6)
         ON CONFLICT DO NOTHING
         RETURNING ${LEDGER_COLUMNS}
       )
       SELECT * FROM put UNION ALL SELECT * FROM late UNION ALL SELECT * FROM afresh`,
    ),

    // Nobody can say whether the target has it: claim $1 under lease $2 becomes a held row. Index
    // delivery_claim_id_key. No row: it is not this claim's any more.
    hold: statement(
      "hold",
      `WITH gone AS (DELETE FROM ${claim} WHERE id = $1 AND lease = $2 RETURNING ${CLAIMED})
       ${insert} SELECT ${CLAIMED}, 'unconfirmed' FROM gone
       ON CONFLICT (target, scope, idempotency) DO NOTHING
       RETURNING ${LEDGER_COLUMNS}`,
    ),

    // The target does not have it: claim $1 under lease $2 leaves nothing behind, nor does the held row that
    // recovery made of it where its lease ended meanwhile. Indexes delivery_claim_id_key and deliveries_pkey.
    drop: statement(
      "drop",
      `WITH gone AS (DELETE FROM ${claim} WHERE id = $1 AND lease = $2 RETURNING id)
       DELETE FROM ${deliveries} WHERE id = $1 AND status = 'unconfirmed' AND NOT EXISTS (SELECT FROM gone)`,
    ),

    // What was in flight when its process died, and may not be sent again, or has nowhere left to be sent to, is
    // held from now on. Index
    // delivery_claim_expires_idx. SKIP LOCKED: two processes that recover do not wait for each other, nor for
    // an outcome that is just being recorded. No row: there was nothing of the kind.
    recover: statement(
      "recover",
      `WITH dead AS MATERIALIZED (
         SELECT id FROM ${claim} c WHERE expires_at <= now() AND (body IS NULL
           OR NOT EXISTS (SELECT FROM ${endpoint} e WHERE e.endpoint_id::text = c.scope))
         ORDER BY expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED
       ), gone AS (
         DELETE FROM ${claim} WHERE id IN (SELECT id FROM dead) RETURNING ${CLAIMED}
       )
       ${insert} SELECT ${CLAIMED}, 'unconfirmed' FROM gone
       ON CONFLICT (target, scope, idempotency) DO NOTHING
       RETURNING id`,
    ),

    // Takes over up to $1 sends that were in flight when their process died and may be sent again; lease $2 ms.
    // Index delivery_claim_expires_idx. No row: there was nothing of the kind.
    resume: statement(
      "resume",
      `WITH dead AS MATERIALIZED (
         SELECT c.id, e.url, e.secret, e.disabled_at
         FROM ${claim} c JOIN ${endpoint} e ON e.endpoint_id = c.scope::uuid
         WHERE c.expires_at <= now() AND c.body IS NOT NULL
         ORDER BY c.expires_at LIMIT $1 FOR UPDATE OF c SKIP LOCKED
       )
       UPDATE ${claim} c SET lease = c.lease + 1, expires_at = now() + $2 * interval '1 ms'
       FROM dead e
       WHERE c.id = e.id
       RETURNING c.id, c.lease, c.target, c.scope, c.idempotency, c.identity_id, c.run_id, c.variables_hash, c.project,
                 c.body, e.url, e.secret, e.disabled_at IS NOT NULL AS disabled, ${databaseMs}`,
    ),
  };
}
