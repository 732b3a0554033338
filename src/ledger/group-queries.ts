// The statements of groups. Each that hands something over writes the group's row in handoff_group first, in
// one order where there are several, and holds it until its commit: positions are then seen in their order,
// and who comes second sees, in that row, what the first one wrote.
import type { Statement } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { LEDGER_COLUMNS, ledgerTime } from "./ledger.ts";

export interface GroupStatements {
  handOff: Statement;
  byKey: Statement;
  page: Statement;
  lastPositions: Statement;
  list: Statement;
}

export interface FormationStatements {
  owe: Statement;
  reconcile: Statement;
}

/** After the lock, not at the transaction's start: what comes later in a group is not dated earlier. */
const HANDED_AT = ledgerTime("clock_timestamp()");

const waking = (channel: string | undefined, project: string, target: string) =>
  channel === undefined ? "NULL" : `pg_notify('${channel}', ${project} || ' ' || substr(${target}, 7))`;

const statementIn =
  (namespace: Namespace) =>
  (name: string, text: string): Statement => ({ name: `${namespace.name}.handoff.${name}`, text });

/** `channel` is made of a namespace's name and needs no escaping; undefined where nobody is to be woken. */
export function groupStatements(namespace: Namespace, channel: string | undefined): GroupStatements {
  const schema = namespace.sql;
  const statement = statementIn(namespace);
  return {
    // $1…$3 target, scope, idempotency; $4 project, $5 id, $6 identity, $7 run, $8 hash, $9 variables. Index
    // deliveries_target_scope_idempotency_key. No row where the key was committed since the statement began.
    handOff: statement(
      "hand_off",
      `WITH known AS MATERIALIZED (
         SELECT d.* FROM ${schema}.deliveries d
         WHERE d.target = $1::text AND d.scope = $2::text AND d.idempotency = $3::text
       ), placed AS (
         INSERT INTO ${schema}.handoff_group AS g (project, target, last_position)
         SELECT $4::text, $1::text, 1 WHERE NOT EXISTS (SELECT FROM known)
         ON CONFLICT (project, target) DO UPDATE SET last_position = g.last_position + 1
         RETURNING g.last_position
       ), entered AS (
         INSERT INTO ${schema}.deliveries
           (id, identity_id, target, scope, idempotency, run_id, created_at, variables_hash, project)
         SELECT $5::text, $6::text, $1::text, $2::text, $3::text, $7::text, ${HANDED_AT}, $8::text, $4::text
         FROM placed
         ON CONFLICT (target, scope, idempotency) DO NOTHING
         RETURNING *
       ), handed AS (
         INSERT INTO ${schema}.handoff (project, target, position, delivery_id, variables)
         SELECT $4::text, $1::text, p.last_position, e.id, $9::text FROM entered e CROSS JOIN placed p
       )
       SELECT ${LEDGER_COLUMNS}, true AS is_new, ${waking(channel, "e.project", "e.target")} AS woken FROM entered e
       UNION ALL
       SELECT ${LEDGER_COLUMNS}, false, NULL FROM known k`,
    ),

    // Index deliveries_target_scope_idempotency_key.
    byKey: statement(
      "by_key",
      `SELECT ${LEDGER_COLUMNS} FROM ${schema}.deliveries d
       WHERE d.target = $1 AND d.scope = $2 AND d.idempotency = $3`,
    ),

    // At most $5 handoffs of project $1 and target $2 behind position $3, at which the handoff $4 stands.
    // Where it does not, from the first on: the database was set back to an earlier state, so that positions
    // were given out anew; or old rows were deleted, and what is left comes after it. And no more than $6 bytes of variables, whose lengths are known without reading them.
    // Indexes handoff_pkey and deliveries_pkey.
    page: statement(
      "page",
      `SELECT d.*, h.position, h.variables
       FROM (
         SELECT f.*, sum(octet_length(f.variables)) OVER (ORDER BY f.position) AS bytes,
                row_number() OVER (ORDER BY f.position) AS nth
         FROM (
           SELECT * FROM ${schema}.handoff a
           WHERE a.project = $1 AND a.target = $2
             AND a.position > COALESCE((SELECT c.position FROM ${schema}.handoff c
                                        WHERE c.project = $1 AND c.target = $2 AND c.position = $3::bigint
                                          AND c.delivery_id = $4), 0)
           ORDER BY a.position LIMIT $5
         ) f
       ) h
       CROSS JOIN LATERAL (SELECT ${LEDGER_COLUMNS} FROM ${schema}.deliveries WHERE id = h.delivery_id) d
       WHERE h.nth = 1 OR COALESCE(h.bytes, 0) <= $6::bigint
       ORDER BY h.position`,
    ),

    // Of the groups $1, $2. Index handoff_group_pkey.
    lastPositions: statement(
      "last_positions",
      `SELECT g.project, substr(g.target, 7) AS "group", g.last_position AS position
       FROM unnest($1::text[], $2::text[]) AS k(project, target)
       JOIN ${schema}.handoff_group g USING (project, target)`,
    ),

    // For people, now and then: reads all groups and group endpoints.
    list: statement(
      "list",
      `SELECT project, substr(target, 7) AS "group",
              CASE WHEN e.endpoint_id IS NULL THEN 'none' WHEN e.disabled_at IS NULL THEN 'live'
                   ELSE 'disabled' END AS endpoint,
              g.formed_through,
              (SELECT d.created_at FROM ${schema}.handoff h JOIN ${schema}.deliveries d ON d.id = h.delivery_id
               WHERE h.project = g.project AND h.target = g.target
               ORDER BY h.position DESC LIMIT 1) AS last_handoff_at
       FROM ${schema}.handoff_group g
       FULL JOIN (SELECT endpoint_id, scope AS project, group_target AS target, disabled_at
                  FROM ${schema}.notification_endpoint WHERE group_target IS NOT NULL) e USING (project, target)
       WHERE $1::text IS NULL OR project = $1
       ORDER BY project, target`,
    ),
  };
}

/** The statements by which formation is handed over; see group-formation.ts. */
export function formationStatements(namespace: Namespace, channel: string | undefined): FormationStatements {
  const schema = namespace.sql;
  const statement = statementIn(namespace);

  /** What a notification's body says, as the variables of a handoff, and in canonical form for their hash. */
  const occurredAt = `to_char(COALESCE(o.advanced_at, now()) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`;
  const variables = `format(
    '{"version":"taisce-notification/v1","scope":"%s","formed_through":%s,"stored_through":%s,"parked_turns":%s,"occurred_at":"%s"}',
    o.scope, o.formed_through, o.stored_through, o.parked_turns, ${occurredAt})`;
  const canonical = `format(
    '{"formed_through":%s,"occurred_at":"%s","parked_turns":%s,"scope":"%s","stored_through":%s,"version":"taisce-notification/v1"}',
    o.formed_through, ${occurredAt}, o.parked_turns, o.scope, o.stored_through)`;

  /** The groups that the operator lists, $2; null stands for all. */
  const permitted = "($2::text[] IS NULL OR e.group_target = ANY ($2::text[]))";

  /**
   * Hands over `owed`(endpoint_id, scope, target, formed_through, stored_through, formed_turns, parked_turns,
   * advanced_at) in the run $1: a delivery that is delivered at once, under the same id its row of the ledger,
   * and its place in the group, all or none. `owed` is as old as the statement; what another one handed over since is known
   * once the group's row is held, from what is in it, and left out.
   */
  const hand = (owed: string) => `
    WITH owed AS MATERIALIZED (${owed}), placed AS (
      INSERT INTO ${schema}.handoff_group AS g (project, target, last_position, formed_through)
      SELECT o.scope, o.target, count(*), max(o.formed_through) FROM owed o
      GROUP BY o.scope, o.target ORDER BY o.scope, o.target
      ON CONFLICT (project, target) DO UPDATE
        SET last_position = g.last_position + EXCLUDED.last_position,
            formed_before = g.formed_through, formed_through = EXCLUDED.formed_through
        WHERE g.formed_through IS NULL OR g.formed_through < EXCLUDED.formed_through
      RETURNING g.project, g.target, g.last_position, g.formed_before
    ), fresh AS MATERIALIZED (
      SELECT o.*, ${schema}.new_delivery_id()::text AS id,
             p.last_position + 1 - row_number() OVER (PARTITION BY o.scope, o.target
                                                      ORDER BY o.formed_through DESC) AS position,
             ${variables} AS variables,
             encode(sha256(convert_to(${canonical}, 'UTF8')), 'hex') AS variables_hash
      FROM owed o JOIN placed p ON p.project = o.scope AND p.target = o.target
      WHERE o.formed_through > COALESCE(p.formed_before, -1)
    ), delivered AS (
      INSERT INTO ${schema}.notification_delivery
        (delivery_id, scope, endpoint_id, formed_through, stored_through, formed_turns, parked_turns,
         occurred_at, delivered_at)
      SELECT f.id::uuid, f.scope, f.endpoint_id, f.formed_through, f.stored_through,
             f.formed_turns, f.parked_turns, COALESCE(f.advanced_at, now()), now()
      FROM fresh f
      ON CONFLICT (endpoint_id, formed_through) DO NOTHING
    ), entered AS (
      INSERT INTO ${schema}.deliveries
        (id, identity_id, target, scope, idempotency, run_id, created_at, variables_hash, project)
      SELECT f.id, f.scope, f.target, f.scope, f.formed_through::text, $1::text, ${HANDED_AT},
             f.variables_hash, f.scope
      FROM fresh f
      ON CONFLICT (target, scope, idempotency) DO NOTHING
      RETURNING id
    ), handed AS (
      INSERT INTO ${schema}.handoff (project, target, position, delivery_id, variables)
      SELECT f.scope, f.target, f.position, f.id, f.variables FROM fresh f JOIN entered e USING (id)
      RETURNING project, target
    )
    SELECT count(*)::integer AS written, ${waking(channel, "h.project", "h.target")} AS woken
    FROM handed h GROUP BY h.project, h.target`;

  /** Past what the group was handed, and past the registration. Index handoff_group_pkey. */
  const toldThrough = `GREATEST(e.registered_from, -1,
    (SELECT g.formed_through FROM ${schema}.handoff_group g
     WHERE g.project = e.scope AND g.target = e.group_target))`;

  return {
    // Signals as arrays $3…$7. Indexes notification_endpoint_group_idx and watermark_pkey. As with HTTPS
    // endpoints, a signal of more than the watermark says is not believed.
    owe: statement(
      "owe",
      hand(`
        SELECT DISTINCT ON (e.endpoint_id, n.formed_through)
               e.endpoint_id, n.scope, e.group_target AS target, n.formed_through, n.stored_through,
               n.formed_turns, n.parked_turns, w.advanced_at
        FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::integer[], $7::integer[])
               AS n(scope, formed_through, stored_through, formed_turns, parked_turns)
        JOIN ${schema}.notification_endpoint e
          ON e.scope = n.scope AND e.group_target IS NOT NULL AND e.disabled_at IS NULL AND ${permitted}
        JOIN ${schema}.watermark w ON w.scope = n.scope
        WHERE n.formed_through > ${toldThrough} AND n.formed_through <= w.formed_through`),
    ),

    // At most $3 group endpoints whose project has formed past what they were handed.
    reconcile: statement(
      "reconcile",
      hand(`
        SELECT b.endpoint_id, b.scope, b.group_target AS target, b.formed_through, b.stored_through,
               LEAST(b.formed_through::numeric - b.told_through, 2147483647)::integer AS formed_turns,
               b.parked_turns, b.advanced_at
        FROM (
          SELECT e.endpoint_id, e.group_target, w.*, ${toldThrough} AS told_through
          FROM ${schema}.notification_endpoint e JOIN ${schema}.watermark w USING (scope)
          WHERE e.group_target IS NOT NULL AND e.disabled_at IS NULL AND ${permitted}
        ) b
        WHERE b.formed_through > b.told_through
        LIMIT $3`),
    ),
  };
}
