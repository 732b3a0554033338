// The statements of the delivery engine. Each is one round trip and one transaction; each is named,
// so that its plan is kept. Times are the database's: durations go in, never instants.
import type { Statement } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { ledgerTime, NOTIFICATION_TARGET } from "../ledger/ledger.ts";

/** A key of $3 where it says anything of origins: without it no endpoint's URL is read. */
export const ANY_ORIGIN = "//";

export interface DeliveryStatements {
  owe: Statement;
  oweEach: Statement;
  oweLatest: Statement;
  passOn: Statement;
  reconcile: Statement;
  claim: Statement;
  record: Statement;
  nextDue: Statement;
  expire: Statement;
}

/** `ledger`: whether an accepted notification gets its row in the ledger. */
export function deliveryStatements(namespace: Namespace, ledger = false): DeliveryStatements {
  const delivery = `${namespace.sql}.notification_delivery`;
  const endpoint = `${namespace.sql}.notification_endpoint`;
  const watermark = `${namespace.sql}.watermark`;
  const statement = (name: string, text: string): Statement => ({
    name: `${namespace.name}.delivery.${name}`,
    text,
  });
  // In the words of notification_delivery_endpoint_due_idx, and of no other index.
  const pending = (alias: string) =>
    `num_nonnulls(${alias}.delivered_at, ${alias}.parked_at, ${alias}.superseded_at) = 0`;

  /**
   * The room of an endpoint: what $3 says of it, an object by id, else of its origin, else $2. By a binary search, since
   * there may be thousands of both; joined with an array, 10,000 endpoints cost a claim 45 ms.
   */
  const roomOf = (id: string, url: string) => `COALESCE(
    ($3::jsonb ->> ${id}::text)::integer,
    CASE WHEN $3::jsonb ? '${ANY_ORIGIN}' THEN ($3::jsonb ->> ('//' || split_part(${url}, '/', 3)))::integer END,
    $2)`;

  /**
   * The newest watermark ever owed to an endpoint: the last entry of its range in
   * notification_delivery_endpoint_id_formed_through_key, one probe; -1 where there is none.
   */
  const newest = (endpointId: string) =>
    `COALESCE((SELECT newest.formed_through FROM ${delivery} newest WHERE newest.endpoint_id = ${endpointId}
               ORDER BY newest.formed_through DESC LIMIT 1), -1)`;

  const urlOf = (id: string) => `(SELECT e.url FROM ${endpoint} e WHERE e.endpoint_id = ${id})`;

  /** A retry `o` of `d` that need not be made: its endpoint wants the latest, and newer news is owed. */
  const overtaken = `o.verdict = 'retry'
    AND (SELECT e.deliver FROM ${endpoint} e WHERE e.endpoint_id = d.endpoint_id) = 'latest'
    AND d.formed_through < ${newest("d.endpoint_id")}`;

  /** The rows of the ledger for what `recorded` says was delivered. */
  const entered = `, entered AS (
         INSERT INTO ${namespace.sql}.deliveries
           (id, identity_id, target, scope, idempotency, run_id, created_at, variables_hash, project)
         SELECT r.delivery_id::text, r.scope, '${NOTIFICATION_TARGET}', r.endpoint_id::text,
                r.formed_through::text, $7, (SELECT ${ledgerTime("now()")}), r.variables_hash, r.scope
         FROM recorded r WHERE r.verdict = 'delivered'
         ON CONFLICT (target, scope, idempotency) DO NOTHING
       )`;

  /** What a sender needs of a claimed delivery `d` to endpoint `e`. */
  const claimed = `
    d.delivery_id, d.endpoint_id, d.scope, d.formed_through, d.stored_through, d.parked_turns,
    d.attempts, d.carried_attempts, d.lease, e.deliver = 'latest' AS latest, e.url, encode(e.secret, 'hex') AS secret,
    to_char(d.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS occurred_at,
    (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS database_ms`;

  /**
   * What endpoint `o`, which wants the latest, has been through with the rows that a new one takes the place of: how
   * often it failed, and until when it is left alone. Nothing for all others.
   */
  const before = `LEFT JOIN LATERAL (
      SELECT max(x.failed) AS carried, max(COALESCE(x.lease_until, x.next_attempt_at)) AS due
      FROM (SELECT x.*, x.attempts + x.carried_attempts - (x.lease_until IS NOT NULL)::integer AS failed
            FROM ${delivery} x
            WHERE o.deliver = 'latest' AND x.endpoint_id = o.endpoint_id AND x.formed_through < o.formed_through
              AND ${pending("x")}) x
      WHERE x.failed > 0
    ) before ON true`;

  /**
   * `owed` with what is `outdated` and what is `mine` to claim: $1 in all, of each endpoint what it has room for, the
   * newest first.
   */
  const ranked = `placed AS (
      SELECT o.*, before.carried, before.due,
             o.deliver = 'latest'
               AND (o.formed_through < max(o.formed_through) OVER (PARTITION BY o.endpoint_id)
                    OR o.formed_through < ${newest("o.endpoint_id")}) AS outdated,
             row_number() OVER (PARTITION BY o.endpoint_id ORDER BY o.formed_through DESC)
               <= CASE WHEN before.carried IS NULL THEN ${roomOf("o.endpoint_id", "o.url")} ELSE 0 END AS has_room
      FROM owed o ${before}
    ), ranked AS (
      SELECT p.*,
             p.has_room AND NOT p.outdated
               AND count(*) FILTER (WHERE p.has_room AND NOT p.outdated)
                     OVER (ORDER BY p.endpoint_id, p.formed_through) <= $1 AS mine
      FROM placed p
    )`;

  /** The first columns of a row for `r` of ranked, and when the lease of a claim ends: $4 ms from now. */
  const newRow = `${namespace.sql}.new_delivery_id(), r.scope, r.endpoint_id, r.formed_through, r.stored_through,
    r.formed_turns, r.parked_turns, COALESCE(r.advanced_at, now())`;
  const leaseEnd = "now() + $4 * interval '1 ms'";

  /**
   * Writes the deliveries of `owed`(endpoint_id, deliver, url, scope, formed_through, stored_through,
   * formed_turns, parked_turns, advanced_at) and claims, in the same statement, as many as this process
   * has room for: $1 in all, room $2 an endpoint, or what $3 says of it; lease $4 ms.
   *
   * Rows go in by endpoint and offset: every replica hears every signal and inserts the same rows, and
   * with one order the loser of each waits for the winner instead of both for each other. ON CONFLICT
   * uses notification_delivery_endpoint_id_formed_through_key. One row comes back in any case, for
   * `considered`; where its delivery_id is null, all was owed before.
   *
   * Its commit waits for the disk. Not waiting brought a request 0.3 to 0.5 ms sooner, and a crash of the server then
   * left requests whose rows nobody had.
   */
  const place = (owed: string) => `
    WITH owed AS (${owed}), ${ranked}, inserted AS (
      INSERT INTO ${delivery} (delivery_id, scope, endpoint_id, formed_through, stored_through, formed_turns,
                               parked_turns, occurred_at, superseded_at, attempts, lease, lease_until,
                               carried_attempts, next_attempt_at)
      SELECT ${newRow}, CASE WHEN r.outdated THEN now() END,
             r.mine::integer, r.mine::integer, CASE WHEN r.mine THEN ${leaseEnd} END,
             COALESCE(r.carried, 0),
             CASE WHEN r.outdated THEN 'infinity' ELSE GREATEST(now(), r.due) END
      FROM ranked r
      ORDER BY r.endpoint_id, r.formed_through
      ON CONFLICT (endpoint_id, formed_through) DO NOTHING
      RETURNING *
    ), superseded AS (
      -- For 'latest' only: what waited for its turn is overtaken. Endpoint by endpoint (OFFSET 0 keeps it so) along
      -- notification_delivery_endpoint_due_idx.
      UPDATE ${delivery} d SET superseded_at = now(), next_attempt_at = 'infinity'
      FROM (SELECT i.endpoint_id, max(i.formed_through) AS newest FROM inserted i
            WHERE i.endpoint_id IN (SELECT o.endpoint_id FROM owed o WHERE o.deliver = 'latest')
            GROUP BY i.endpoint_id) fresh
      CROSS JOIN LATERAL (
        SELECT x.delivery_id FROM ${delivery} x
        WHERE x.endpoint_id = fresh.endpoint_id AND x.formed_through < fresh.newest
          AND x.lease_until IS NULL AND ${pending("x")}
        OFFSET 0
      ) old
      WHERE d.delivery_id = old.delivery_id AND d.lease_until IS NULL AND ${pending("d")}
      RETURNING d.delivery_id
    )
    SELECT ${claimed}, d.lease_until IS NOT NULL AS claimed, d.next_attempt_at <= now() AS due, total.considered, total.superseded
    FROM (SELECT (SELECT count(*) FROM owed)::integer AS considered,
                 (SELECT count(*) FROM superseded)::integer AS superseded) total
    LEFT JOIN (inserted d JOIN ${endpoint} e USING (endpoint_id)) ON d.superseded_at IS NULL`;

  /**
   * The signals $5…$9. Indexes notification_endpoint_scope_idx and watermark_pkey. Anyone in the
   * database may NOTIFY: a signal of more than the watermark says is not believed.
   */
  const signalled = `
    SELECT e.endpoint_id, e.deliver, e.url, n.scope, n.formed_through, n.stored_through, n.formed_turns,
           n.parked_turns, w.advanced_at
    FROM unnest($5::text[], $6::bigint[], $7::bigint[], $8::integer[], $9::integer[])
           AS n(scope, formed_through, stored_through, formed_turns, parked_turns)
    JOIN ${endpoint} e ON e.scope = n.scope AND e.disabled_at IS NULL AND e.group_target IS NULL
    JOIN ${watermark} w ON w.scope = n.scope
    WHERE n.formed_through > COALESCE(e.registered_from, -1) AND n.formed_through <= w.formed_through`;

  return {
    owe: statement("owe", place(signalled)),

    // What nearly every advance meets, as little as it takes: no two signals of one project, and only the endpoints
    // that want every advance. `wanting_latest` says how many others there are, for which `owe_latest` is then run.
    oweEach: statement(
      "owe_each",
      `WITH owed AS (${signalled}), ranked AS (
         SELECT p.*, p.has_room AND count(*) FILTER (WHERE p.has_room) OVER (ORDER BY p.endpoint_id) <= $1 AS mine
         FROM (SELECT o.*, ${roomOf("o.endpoint_id", "o.url")} > 0 AS has_room FROM owed o WHERE o.deliver = 'every') p
       ), inserted AS (
         INSERT INTO ${delivery} (delivery_id, scope, endpoint_id, formed_through, stored_through, formed_turns,
                                  parked_turns, occurred_at, attempts, lease, lease_until)
         SELECT ${newRow}, r.mine::integer, r.mine::integer, CASE WHEN r.mine THEN ${leaseEnd} END
         FROM ranked r
         ORDER BY r.endpoint_id
         ON CONFLICT (endpoint_id, formed_through) DO NOTHING
         RETURNING *
       )
       SELECT ${claimed}, d.lease_until IS NOT NULL AS claimed, d.lease_until IS NULL AS due, 0 AS superseded, total.*
       FROM (SELECT count(*)::integer AS considered,
                    count(*) FILTER (WHERE o.deliver = 'latest')::integer AS wanting_latest FROM owed o) total
       LEFT JOIN (inserted d JOIN ${endpoint} e USING (endpoint_id)) ON true`,
    ),

    oweLatest: statement("owe_latest", place(`${signalled} AND e.deliver = 'latest'`)),

    // Says what came of a row to the one that took its place meanwhile, of the endpoints $1 and newer than $2: how often
    // $3 it has failed, and in how many ms $4 it may be tried. And where the statement that recorded a retry did not see
    // yet that newer news was being owed, ends it. Index notification_delivery_endpoint_due_idx. SKIP LOCKED: what is
    // being claimed is judged there.
    passOn: statement(
      "pass_on",
      `WITH told AS (
         SELECT p.*, ${newest("p.endpoint_id")} AS newest
         FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::float8[])
                AS p(endpoint_id, formed_through, carried, wait_ms)
       ), overtaken AS (
         UPDATE ${delivery} d SET superseded_at = now(), next_attempt_at = 'infinity'
         FROM (SELECT x.delivery_id
               FROM told p
               CROSS JOIN LATERAL (
                 SELECT x.delivery_id FROM ${delivery} x
                 WHERE x.endpoint_id = p.endpoint_id AND x.formed_through <= p.formed_through
                   AND p.formed_through < p.newest AND x.lease_until IS NULL AND ${pending("x")}
                 OFFSET 0
                 FOR UPDATE SKIP LOCKED
               ) x) old
         WHERE d.delivery_id = old.delivery_id
       )
       UPDATE ${delivery} d
       SET carried_attempts = heir.carried, next_attempt_at = now() + heir.wait_ms * interval '1 ms'
       FROM (SELECT p.carried, p.wait_ms, x.delivery_id
             FROM told p
             CROSS JOIN LATERAL (
               SELECT x.delivery_id FROM ${delivery} x
               WHERE x.endpoint_id = p.endpoint_id AND x.formed_through > p.formed_through
                 AND x.attempts = 0 AND x.lease_until IS NULL AND ${pending("x")}
               OFFSET 0
               FOR UPDATE SKIP LOCKED
             ) x) heir
       WHERE d.delivery_id = heir.delivery_id`,
    ),

    // At most $5 endpoints whose project has formed past what they were owed; one index probe each.
    reconcile: statement(
      "reconcile",
      place(
        `
        SELECT b.endpoint_id, b.deliver, b.url, b.scope, b.formed_through, b.stored_through,
               LEAST(b.formed_through::numeric - b.told_through, 2147483647)::integer AS formed_turns,
               b.parked_turns, b.advanced_at
        FROM (
          SELECT e.endpoint_id, e.deliver, e.url, w.*,
                 GREATEST(e.registered_from, ${newest("e.endpoint_id")}) AS told_through
          FROM ${endpoint} e JOIN ${watermark} w USING (scope)
          WHERE e.disabled_at IS NULL AND e.group_target IS NULL
        ) b
        WHERE b.formed_through > b.told_through
        ORDER BY b.endpoint_id
        LIMIT $5`,
      ),
    ),

    // Takes what is due, a little from each endpoint after $5: $1 rows in all, $2 an endpoint or what $3 says of it;
    // lease $4 ms, at most $6 attempts. `waiting` hops from endpoint to endpoint along
    // notification_delivery_endpoint_due_idx and stops as soon as $1 rows are found; where only the endpoints of $3 have
    // room, it takes those instead.
    // MATERIALIZED: PostgreSQL may otherwise run the LIMIT again and take more (bug 15715).
    // Each row taken is sent, or ends here: superseded where its endpoint was disabled, or has been
    // registered anew since, or newer news is owed to one that wants the latest; parked where its attempts
    // are spent, which only a claim that never came back can have left behind. One row comes back in any case, for `looked_at`, the instant
    // by which "due" was judged.
    claim: statement(
      "claim",
      `WITH RECURSIVE waiting(endpoint_id) AS (
         (SELECT d.endpoint_id FROM ${delivery} d WHERE ${pending("d")} AND d.endpoint_id > $5 AND $2 > 0
          ORDER BY d.endpoint_id LIMIT 1)
         UNION ALL
         SELECT (SELECT d.endpoint_id FROM ${delivery} d
                 WHERE ${pending("d")} AND d.endpoint_id > w.endpoint_id
                 ORDER BY d.endpoint_id LIMIT 1)
         FROM waiting w WHERE w.endpoint_id IS NOT NULL
       ), due AS MATERIALIZED (
         SELECT one.*
         FROM (SELECT endpoint_id FROM waiting WHERE endpoint_id IS NOT NULL
               UNION ALL
               (SELECT key::uuid FROM jsonb_each_text($3) WHERE $2 = 0 AND value <> '0' AND key::uuid > $5
                ORDER BY key)) w
         CROSS JOIN LATERAL (
           SELECT d.delivery_id, d.endpoint_id, d.formed_through, d.attempts + d.carried_attempts AS attempts, d.lease_until
           FROM ${delivery} d
           WHERE d.endpoint_id = w.endpoint_id AND ${pending("d")} AND d.next_attempt_at <= now()
             AND (d.lease_until IS NULL OR d.lease_until <= now())
           ORDER BY d.next_attempt_at
           LIMIT ${roomOf("w.endpoint_id", urlOf("w.endpoint_id"))}
           FOR UPDATE SKIP LOCKED
         ) one
         LIMIT $1
       ), judged AS MATERIALIZED (
         SELECT due.*, e.url, e.secret, e.deliver,
                CASE WHEN e.disabled_at IS NOT NULL OR due.formed_through <= e.registered_from THEN 'superseded'
                     WHEN e.deliver = 'latest'
                          AND due.formed_through < ${newest("due.endpoint_id")} THEN 'superseded'
                     WHEN due.attempts >= $6 THEN 'parked'
                     ELSE 'claimed' END AS verdict
         FROM due JOIN ${endpoint} e USING (endpoint_id)
       ), ended AS (
         UPDATE ${delivery} d
         SET attempts = d.attempts + (e.verdict = 'claimed')::integer,
             lease = d.lease + 1,
             lease_until = CASE e.verdict WHEN 'claimed' THEN now() + $4 * interval '1 ms' END,
             superseded_at = CASE e.verdict WHEN 'superseded' THEN now() END,
             parked_at = CASE e.verdict WHEN 'parked' THEN now() END,
             next_attempt_at = CASE e.verdict WHEN 'superseded' THEN 'infinity' ELSE d.next_attempt_at END,
             last_error = CASE WHEN e.verdict <> 'parked' THEN d.last_error
                               WHEN e.lease_until IS NULL THEN COALESCE(d.last_error, 'unrecorded')
                               ELSE 'unrecorded' END
         FROM judged e
         WHERE d.delivery_id = e.delivery_id
         RETURNING ${claimed}, e.verdict
       )
       SELECT ended.*, now()::text AS looked_at
       FROM (SELECT) one LEFT JOIN ended ON true
       ORDER BY ended.endpoint_id, ended.formed_through`,
    ),

    // Writes the outcomes $1…$6, each only where the claim it belongs to still holds the row: after a
    // lease ran out, or the endpoint was disabled, it changes nothing. A retry that newer news has
    // overtaken is superseded instead. Index notification_delivery_pkey, row by row. SKIP LOCKED: a row
    // that somebody holds must not keep the others waiting; it comes back as `locked`. What an earlier statement
    // recorded, whose answer a broken connection swallowed, comes back as `recorded` again.
    // With the ledger, what was delivered is entered there as well, by run $7 and with the hashes $8, under the
    // delivery's own id, which its receiver knows. Index deliveries_target_scope_idempotency_key.
    record: statement(
      "record",
      `WITH outcome AS MATERIALIZED (
         SELECT * FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::integer[], $5::text[],
                              $6::float8[]${ledger ? ", $8::text[]" : ""})
                  AS o(delivery_id, lease, verdict, status, error, wait_ms${ledger ? ", variables_hash" : ""})
       ), held AS MATERIALIZED (
         SELECT o.* FROM outcome o
         CROSS JOIN LATERAL (
           SELECT FROM ${delivery} d
           WHERE d.delivery_id = o.delivery_id AND d.lease = o.lease AND d.lease_until IS NOT NULL
           FOR UPDATE SKIP LOCKED
         ) mine
       ), recorded AS (
         UPDATE ${delivery} d
         SET delivered_at = CASE o.verdict WHEN 'delivered' THEN now() END,
             parked_at = CASE o.verdict WHEN 'parked' THEN now() END,
             superseded_at = CASE WHEN ${overtaken} THEN now() END,
             next_attempt_at = CASE WHEN ${overtaken} THEN 'infinity'
                                    WHEN o.verdict = 'retry' THEN now() + o.wait_ms * interval '1 ms'
                                    ELSE d.next_attempt_at END,
             attempts = d.attempts - (o.verdict = 'released')::integer,
             last_status = CASE o.verdict WHEN 'released' THEN d.last_status ELSE o.status END,
             last_error = CASE o.verdict WHEN 'released' THEN d.last_error ELSE o.error END,
             lease_until = NULL
         FROM held o
         WHERE d.delivery_id = o.delivery_id
         RETURNING d.delivery_id${ledger ? ", o.verdict, o.variables_hash, d.scope, d.endpoint_id, d.formed_through" : ""}
       )${ledger ? entered : ""}
       SELECT o.delivery_id,
              CASE WHEN o.delivery_id IN (SELECT r.delivery_id FROM recorded r) THEN 'recorded'
                   WHEN EXISTS (SELECT FROM ${delivery} d
                                WHERE d.delivery_id = o.delivery_id AND d.lease = o.lease
                                  AND d.lease_until IS NOT NULL) THEN 'locked'
                   WHEN EXISTS (SELECT FROM ${delivery} d
                                WHERE d.delivery_id = o.delivery_id AND d.lease = o.lease
                                  AND CASE o.verdict WHEN 'delivered' THEN d.delivered_at IS NOT NULL
                                                     WHEN 'parked' THEN d.parked_at IS NOT NULL
                                                     WHEN 'retry' THEN d.superseded_at IS NOT NULL OR ${pending("d")}
                                                     ELSE ${pending("d")} END) THEN 'recorded'
                   ELSE 'stale' END AS fate
       FROM outcome o`,
    ),

    // Milliseconds until what was not yet due at $1 becomes due, below 0 where it has meanwhile; null:
    // nothing is waiting. Index notification_delivery_due_idx; what was superseded lies at infinity.
    nextDue: statement(
      "next_due",
      `SELECT (extract(epoch FROM min(d.next_attempt_at) - now()) * 1000)::float8 AS wait_ms
       FROM ${delivery} d
       WHERE d.delivered_at IS NULL AND d.parked_at IS NULL
         AND d.next_attempt_at > $1::timestamptz AND d.next_attempt_at < 'infinity'`,
    ),

    // Deletes up to $2 deliveries that ended more than $1 ms ago, oldest first: ids are time-ordered, so
    // the scan of notification_delivery_pkey starts at the oldest and ends at that age. The newest of
    // each endpoint stays: it says what was already owed. SKIP LOCKED: two replicas do not wait for each
    // other.
    expire: statement(
      "expire",
      `WITH old AS MATERIALIZED (
         SELECT d.delivery_id FROM ${delivery} d
         WHERE d.delivery_id < encode(substring(int8send(
                   (extract(epoch FROM now() - $1 * interval '1 ms') * 1000)::bigint) FROM 3)
                   || '\\x00000000000000000000'::bytea, 'hex')::uuid
           AND COALESCE(d.delivered_at, d.parked_at, d.superseded_at) < now() - $1 * interval '1 ms'
           AND d.formed_through < ${newest("d.endpoint_id")}
         ORDER BY d.delivery_id
         LIMIT $2
         FOR UPDATE SKIP LOCKED
       )
       DELETE FROM ${delivery} d USING old WHERE d.delivery_id = old.delivery_id
       RETURNING d.delivery_id`,
    ),
  };
}
