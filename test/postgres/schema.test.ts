// The tables: true to the DDL the contract fixes, and closed to what must never get into them.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type pg from "pg";
import { describe, expect, it } from "vitest";
import { type Namespace, namespace } from "../../src/database/namespace.ts";
import { outcomeOfStatus } from "../../src/egress/failure.ts";
import { freshName, testNamespace, track } from "../support/namespaces.ts";
import { session, testRole } from "../support/roles.ts";

const SEED = readFileSync(fileURLToPath(new URL("fixtures/seed.sql", import.meta.url)), "utf8");

/** Everything the contract fixes about a table, in words that are the same in every schema. */
async function described(client: pg.Client, where: Namespace, table: string) {
  // Names are printed with their schema where it is not on the search_path.
  await client.query("SET search_path = pg_catalog");
  const lines = async (sql: string) => {
    const { rows } = await client.query<{ line: string }>(sql, [where.name, table]);
    return rows.map(({ line }) => line.replaceAll(`${where.name}.`, "{schema}."));
  };
  return {
    columns: await lines(
      `SELECT concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
                        CASE WHEN a.attnotnull THEN 'not null' END, 'default ' || pg_get_expr(d.adbin, d.adrelid)) AS line
       FROM pg_attribute a
       JOIN pg_class c ON c.oid = a.attrelid
       LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
       WHERE c.relnamespace = $1::regnamespace AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
       ORDER BY a.attnum`,
    ),
    constraints: await lines(
      `SELECT conname || ' ' || pg_get_constraintdef(k.oid) AS line
       FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
       WHERE c.relnamespace = $1::regnamespace AND c.relname = $2 ORDER BY conname`,
    ),
    indexes: await lines(
      `SELECT indexdef AS line FROM pg_indexes WHERE schemaname = $1 AND tablename = $2 ORDER BY indexname`,
    ),
  };
}

describe("the contract's DDL", () => {
  it.each(["notification_endpoint", "notification_delivery", "deliveries"])(
    "is in %s whole: columns, constraints, indexes",
    async (table) => {
      const { namespace: ours } = await testNamespace();
      const seed = namespace(freshName());
      track(seed, "");
      const client = await session();
      await client.query(`CREATE SCHEMA ${seed.sql}`);
      await client.query(`CREATE TABLE ${seed.sql}.project (scope text PRIMARY KEY)`);
      await client.query(SEED.replaceAll("{schema}", seed.sql));
      const wanted = await described(client, seed, table);
      const found = await described(client, ours, table);
      expect(wanted.columns.length).toBeGreaterThan(5);
      expect(wanted.constraints.length).toBeGreaterThan(1);
      expect(found).toEqual({
        columns: expect.arrayContaining(wanted.columns),
        constraints: expect.arrayContaining(wanted.constraints),
        indexes: expect.arrayContaining(wanted.indexes),
      });
    },
  );
});

/** A namespace with one project, one endpoint and one pending delivery. */
async function oneDelivery() {
  const test = await testNamespace();
  const schema = test.namespace.sql;
  await test.db.query(`INSERT INTO ${schema}.project (scope) VALUES ('p1')`);
  await test.db.query(
    `INSERT INTO ${schema}.notification_endpoint (endpoint_id, scope, url, secret)
     VALUES ('00000000-0000-4000-8000-000000000001', 'p1', 'https://localhost/', $1)`,
    [Buffer.alloc(32)],
  );
  await test.db.query(
    `INSERT INTO ${schema}.notification_delivery (delivery_id, scope, endpoint_id, formed_through, stored_through)
     VALUES (${schema}.new_delivery_id(), 'p1', '00000000-0000-4000-8000-000000000001', 1, 1)`,
  );
  return { ...test, schema };
}

describe("last_error", () => {
  it("holds the contract's categories and nothing else", async () => {
    const { db, schema } = await oneDelivery();
    const statuses = Array.from({ length: 1_200 }, (_, status) => status);
    const categories = [
      "destination not permitted",
      "address not permitted",
      "redirect not followed",
      "timeout",
      "connection refused",
      "tls failure",
      "network error",
      "unrecorded",
      // What the sender makes of a status line, which is never longer than three digits.
      ...statuses
        .slice(100, 1_000)
        .map((status) => outcomeOfStatus(status))
        .flatMap((outcome) => (outcome.kind === "failed" ? [outcome.category] : [])),
    ];
    const impostors = [
      "",
      " ",
      "Timeout",
      "timeout ",
      "timeout\n",
      " timeout",
      "timeout connecting to 10.0.0.1",
      "connect ECONNREFUSED 10.0.0.1:443",
      "getaddrinfo ENOTFOUND db.internal",
      "destination answered",
      "destination answered 5033",
      "destination answered 503 ",
      "destination answered 503\n10.0.0.1",
      "10.0.0.1\ndestination answered 503",
      "destination refused with 4040",
      "x".repeat(512),
      "x".repeat(513),
      ...statuses.flatMap((status) => [
        `destination answered ${status}`,
        `destination refused with ${status}`,
      ]),
    ];
    const candidates = [...new Set([...categories, ...impostors])];
    // Each candidate in a subtransaction of its own, all in one round trip.
    await db.query(`CREATE FUNCTION ${schema}.refusal(candidate text) RETURNS text LANGUAGE plpgsql AS $$
      BEGIN
        UPDATE ${schema}.notification_delivery SET last_error = candidate;
        RETURN NULL;
      EXCEPTION WHEN check_violation THEN
        RETURN SQLERRM;
      END $$`);
    const rows = await db.query<{ text: string; error: string | null }>(
      `SELECT text, ${schema}.refusal(text) AS error FROM unnest($1::text[]) AS text`,
      [candidates],
    );
    const accepted = rows.filter(({ error }) => error === null).map(({ text }) => text);
    expect(accepted.toSorted()).toEqual([...new Set(categories)].toSorted());
    expect(accepted).toContain("destination answered 429");
    expect(accepted).toContain("destination answered 503");
    expect(accepted).toContain("destination refused with 404");
    expect(accepted).not.toContain("destination answered 404");
    expect(accepted).not.toContain("destination refused with 429");
    expect(accepted).not.toContain("destination refused with 503");
  });
});

describe("a delivery", () => {
  it("has no index of what a claim changes, so that claims are made in place", async () => {
    const { db, schema } = await oneDelivery();
    const { hot, updated } = await db.transaction(async (transaction) => {
      await transaction.query(
        `UPDATE ${schema}.notification_delivery SET attempts = 1, lease = 1, lease_until = now()`,
      );
      const [counts] = await transaction.query<{ hot: bigint; updated: bigint }>(
        `SELECT n_tup_hot_upd AS hot, n_tup_upd AS updated FROM pg_stat_xact_user_tables
         WHERE relid = '${schema}.notification_delivery'::regclass`,
      );
      return counts ?? { hot: 0n, updated: 0n };
    });
    expect({ hot, updated }).toEqual({ hot: 1n, updated: 1n });
  });

  it("has at most one end", async () => {
    const { db, schema } = await oneDelivery();
    const ends = ["delivered_at", "parked_at", "superseded_at"];
    for (const end of ends) {
      await db.query(`UPDATE ${schema}.notification_delivery SET ${end} = now()`);
      for (const other of ends.filter((name) => name !== end)) {
        await expect(db.query(`UPDATE ${schema}.notification_delivery SET ${other} = now()`)).rejects.toThrow(
          /notification_delivery_one_end/,
        );
      }
      await db.query(`UPDATE ${schema}.notification_delivery SET ${end} = NULL`);
    }
  });

  it("has an id that sorts by time and is a UUID of version 7", async () => {
    const { db, schema } = await oneDelivery();
    const before = Date.now();
    const [row] = await db.query<{ ids: string[] }>(
      `SELECT array_agg(${schema}.new_delivery_id()::text) AS ids FROM generate_series(1, 500)`,
    );
    const ids = row?.ids ?? [];
    for (const id of ids) {
      expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      const madeAt = Number.parseInt(id.slice(0, 13).replace("-", ""), 16);
      expect(Math.abs(madeAt - before)).toBeLessThan(10_000);
    }
    expect(new Set(ids).size).toBe(500);
    const times = ids.map((id) => id.slice(0, 13));
    expect(times.toSorted()).toEqual(times);
  });
});

describe("audit_entry", () => {
  const CHANGES = [
    "UPDATE {table} SET magnitude = 7",
    "UPDATE {table} SET magnitude = 7 WHERE false",
    "DELETE FROM {table}",
    "DELETE FROM {table} WHERE false",
    "TRUNCATE {table}",
    "TRUNCATE {table} CASCADE",
    `INSERT INTO {table} AS a (entry_id, operation, outcome) OVERRIDING SYSTEM VALUE VALUES (1, 'x', 'allowed')
       ON CONFLICT (entry_id) DO UPDATE SET magnitude = 7`,
  ];

  async function audited() {
    const { namespace: where } = await testNamespace();
    const table = `${where.sql}.audit_entry`;
    const client = await session();
    await client.query(`INSERT INTO ${table} (operation, outcome) VALUES ('authenticate', 'refused')`);
    const refuseAll = async (by: pg.Client) => {
      for (const change of CHANGES) {
        await expect(by.query(change.replaceAll("{table}", table)), change).rejects.toThrow(
          /^audit_entry is append-only: (UPDATE|DELETE|TRUNCATE) is refused$/,
        );
      }
      const { rows } = await client.query(`SELECT operation, magnitude FROM ${table}`);
      expect(rows).toEqual([{ operation: "authenticate", magnitude: 0 }]);
    };
    return { where, table, client, refuseAll };
  }

  it("keeps what it has against a superuser, as a replica too", async () => {
    const { client, refuseAll } = await audited();
    await refuseAll(client);
    await client.query("SET session_replication_role = replica");
    await refuseAll(client);
  });

  it("keeps what it has against its owner, who may still add to it", async () => {
    const { where, table, client, refuseAll } = await audited();
    const owner = await testRole(client, [`USAGE, CREATE ON SCHEMA ${where.sql}`]);
    await client.query(`ALTER TABLE ${table} OWNER TO ${owner.name}`);
    const asOwner = await session(owner.url);
    await refuseAll(asOwner);
    await asOwner.query(`INSERT INTO ${table} (operation, outcome) VALUES ('authenticate', 'refused')`);
  });

  it("keeps what it has when it is reached through a parent table", async () => {
    const { where, table, client } = await audited();
    await client.query(`CREATE TABLE ${where.sql}.parent (LIKE ${table} INCLUDING ALL EXCLUDING IDENTITY)`);
    await client.query(`ALTER TABLE ${table} INHERIT ${where.sql}.parent`);
    const parent = `${where.sql}.parent`;
    for (const change of [
      `UPDATE ${parent} SET magnitude = 7`,
      `DELETE FROM ${parent}`,
      `TRUNCATE ${parent}`,
    ]) {
      await expect(client.query(change), change).rejects.toThrow(/audit_entry is append-only/);
    }
  });
});

describe("functions that run with the owner's rights", () => {
  it("cannot be put on a table of somebody else's", async () => {
    const { namespace: where } = await testNamespace();
    const client = await session();
    const attacker = await testRole(client, [`USAGE ON SCHEMA ${where.sql}`]);
    const attack = await session(attacker.url);
    await attack.query("CREATE TEMP TABLE bait (scope text, formed_through bigint)");
    const { rows } = await client.query<{ name: string }>(
      "SELECT proname AS name FROM pg_proc WHERE pronamespace = $1::regnamespace AND prosecdef ORDER BY proname",
      [where.name],
    );
    expect(rows.map(({ name }) => name)).toEqual(["project_gets_watermark", "watermark_notify"]);
    for (const { name } of rows) {
      await expect(
        attack.query(
          `CREATE TRIGGER ${name} AFTER INSERT ON bait FOR EACH ROW EXECUTE FUNCTION ${where.sql}.${name}()`,
        ),
      ).rejects.toThrow(/^permission denied for function /);
    }
  });
});
