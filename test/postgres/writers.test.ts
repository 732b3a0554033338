// Whoever may write the watermark can advance it, whatever else it may or may not do, and the signal's
// trigger never makes that fail (contract section 5).
import type pg from "pg";
import { describe, expect, it } from "vitest";
import { freshName } from "../support/namespaces.ts";
import { session, type TestRole, testRole } from "../support/roles.ts";
import { type Signalling, signalling } from "../support/signalling.ts";
import { until } from "../support/until.ts";

/** A role that may read and write the watermark, reach its schema, and nothing else. */
async function writerOf({ client, schema }: Signalling): Promise<TestRole> {
  return testRole(client, [`USAGE ON SCHEMA ${schema}`, `SELECT, UPDATE ON ${schema}.watermark`]);
}

const advance = (writer: pg.Client, schema: string, formed: number) =>
  writer.query(`UPDATE ${schema}.watermark SET formed_through = $1 WHERE scope = 'p1'`, [formed]);

const signal = (formed: number, turns: number) =>
  `{"scope":"p1","formed_through":${formed},"stored_through":${formed},"formed_turns":${turns},"parked_turns":0}`;

async function formedThrough({ client, schema }: Signalling): Promise<string | null> {
  const { rows } = await client.query(`SELECT formed_through FROM ${schema}.watermark WHERE scope = 'p1'`);
  return rows[0].formed_through;
}

/** A schema whose functions and operators take the place of the usual ones, and fail. */
async function hostileSchema(client: pg.Client, reader: TestRole): Promise<string> {
  const name = freshName();
  await client.query(`CREATE SCHEMA ${name}; GRANT USAGE ON SCHEMA ${name} TO ${reader.name};`);
  const fail = (signature: string, returns: string) =>
    client.query(`CREATE FUNCTION ${name}.${signature} RETURNS ${returns} LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'the hostile ${signature.split("(")[0]} was called'; END $$`);
  await fail("pg_notify(text, text)", "void");
  await fail("format(text, VARIADIC text[])", "text");
  await fail("now()", "timestamptz");
  await fail("max(bigint)", "bigint");
  for (const [operator, type, result] of [
    ["=", "text", "boolean"],
    ["=", "bigint", "boolean"],
    ["<", "bigint", "boolean"],
    [">", "bigint", "boolean"],
    ["-", "bigint", "bigint"],
    ["-", "numeric", "numeric"],
    ["+", "bigint", "bigint"],
  ] as const) {
    const called = `of_${type}_${freshName()}`;
    await fail(`${called}(${type}, ${type})`, result);
    await client.query(
      `CREATE OPERATOR ${name}.${operator} (LEFTARG = ${type}, RIGHTARG = ${type}, FUNCTION = ${name}.${called})`,
    );
  }
  return name;
}

describe("a writer", () => {
  it("needs no right but on the watermark's own columns", async () => {
    const test = await signalling();
    await test.project("p1");
    const role = await testRole(test.client, [
      `USAGE ON SCHEMA ${test.schema}`,
      `SELECT (scope), UPDATE (formed_through) ON ${test.schema}.watermark`,
    ]);
    const writer = await session(role.url);
    await expect(writer.query(`SELECT FROM ${test.schema}.notification_endpoint`)).rejects.toThrow(/denied/);
    await advance(writer, test.schema, 1);
    expect(await test.ear.heard()).toEqual([signal(1, 2)]);
  });

  it("writes from a namespace of its own with a hostile search_path", async () => {
    const test = await signalling();
    await test.project("p1");
    const role = await writerOf(test);
    const hostile = await hostileSchema(test.client, role);
    const writer = await session(role.url);
    const own = freshName();
    await test.client.query(`CREATE SCHEMA ${own} AUTHORIZATION ${role.name}`);
    await writer.query(`SET search_path = ${hostile}, ${own}, pg_catalog`);
    await expect(writer.query("SELECT pg_notify('x'::text, 'y'::text)")).rejects.toThrow(/hostile pg_notify/);
    await expect(writer.query("SELECT 'a'::text = 'a'::text")).rejects.toThrow(/hostile of_text/);
    await writer.query(`UPDATE ${test.schema}.watermark SET formed_through = 1`);
    expect(await test.ear.heard()).toEqual([signal(1, 2)]);
    await test.client.query(`DROP SCHEMA ${hostile}, ${own} CASCADE`);
  });

  it("may call every function with a hostile search_path", async () => {
    const test = await signalling();
    await test.project("p1");
    const role = await writerOf(test);
    await test.client.query(`GRANT SELECT, INSERT, UPDATE ON ${test.schema}.turn TO ${role.name}`);
    const hostile = await hostileSchema(test.client, role);
    const writer = await session(role.url);
    await writer.query(`SET search_path = ${hostile}, pg_catalog`);
    const { schema } = test;
    const call = async (sql: string) =>
      (await writer.query(`SELECT ${schema}.${sql} AS result`)).rows[0].result;
    expect(await call("append_turn('p1')")).toBe("0");
    expect(await call("append_turn('p1')")).toBe("1");
    expect(await call("form_turn('p1', 0)")).toBe("0");
    expect(await call("park_turn('p1', 1)")).toBe("1");
    expect(await call("advance_watermark('p1', 5)")).toBe(true);
    expect(await call("new_delivery_id()")).toMatch(/^[0-9a-f-]{36}$/);
    expect(await test.ear.heard()).toHaveLength(3);
    await test.client.query(`DROP SCHEMA ${hostile} CASCADE`);
  });

  it.each(["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])(
    "commits and signals at %s",
    async (level) => {
      const test = await signalling();
      await test.project("p1");
      const writer = await session((await writerOf(test)).url);
      await writer.query(`BEGIN ISOLATION LEVEL ${level}`);
      await writer.query(`SELECT count(*) FROM ${test.schema}.watermark`);
      await advance(writer, test.schema, 1);
      await writer.query("COMMIT");
      expect(await test.ear.heard()).toEqual([signal(1, 2)]);
    },
  );

  it("whose transaction rolls back sends nothing", async () => {
    const test = await signalling();
    await test.project("p1");
    const writer = await session((await writerOf(test)).url);
    await writer.query("BEGIN");
    await advance(writer, test.schema, 1);
    await writer.query("ROLLBACK");
    expect(await test.ear.heard()).toEqual([]);
  });
});

describe("a trigger that cannot do its work", () => {
  it.each([
    ["cannot read the endpoints", "REVOKE ALL ON {schema}.notification_endpoint FROM {owner}"],
    ["does not find the endpoints", "DROP TABLE {schema}.notification_endpoint CASCADE"],
    [
      "meets endpoints of another shape",
      "ALTER TABLE {schema}.notification_endpoint RENAME disabled_at TO gone",
    ],
    ["cannot enter its own schema", "REVOKE ALL ON SCHEMA {schema} FROM {owner}"],
  ])("because it %s lets the writer commit", async (_why, harm) => {
    const test = await signalling();
    await test.project("p1");
    const { client, schema } = test;
    // Owned by an ordinary role: a superuser could not be kept from reading.
    const owner = await testRole(client, [`USAGE, CREATE ON SCHEMA ${schema}`]);
    await client.query(`ALTER FUNCTION ${schema}.watermark_notify() OWNER TO ${owner.name}`);
    await client.query(`GRANT SELECT ON ${schema}.notification_endpoint TO ${owner.name}`);
    const writer = await session((await writerOf(test)).url);
    const warnings: string[] = [];
    writer.on("notice", ({ severity, message }) => warnings.push(`${severity}: ${message}`));

    await advance(writer, schema, 1);
    expect(await test.ear.heard()).toEqual([signal(1, 2)]);

    await client.query(harm.replaceAll("{schema}", schema).replaceAll("{owner}", owner.name));
    await advance(writer, schema, 2);
    expect(await formedThrough(test)).toBe("2");
    expect(await test.ear.heard()).toEqual([]);
    expect(warnings).toEqual([
      expect.stringMatching(/^WARNING: signal not sent, the reconciler will find the advance: /),
    ]);
  });

  it("because another session keeps the endpoints locked lets a writer with a time limit commit", async () => {
    const test = await signalling();
    await test.project("p1");
    const { client, schema } = test;
    const writer = await session((await writerOf(test)).url);
    await writer.query("SET lock_timeout = '50ms'");
    await client.query("BEGIN");
    await client.query(`LOCK TABLE ${schema}.notification_endpoint IN ACCESS EXCLUSIVE MODE`);
    await advance(writer, schema, 1);
    await client.query("ROLLBACK");
    expect(await formedThrough(test)).toBe("1");
    expect(await test.ear.heard()).toEqual([]);
  });
});

describe("writers and registrations at once", () => {
  it("do not wait for each other", async () => {
    const test = await signalling();
    await test.project("p1");
    const { client, schema } = test;
    const writer = await session((await writerOf(test)).url);
    await writer.query("SET lock_timeout = '2s'");
    // What registering and disabling do, not committed yet.
    await client.query("BEGIN");
    await client.query(`SELECT FROM ${schema}.project WHERE scope = 'p1' FOR NO KEY UPDATE`);
    await client.query(`UPDATE ${schema}.notification_endpoint SET disabled_at = now() WHERE scope = 'p1'`);
    await advance(writer, schema, 1);
    await client.query("COMMIT");
    // Live as the writer saw it.
    expect(await test.ear.heard()).toEqual([signal(1, 2)]);
  });

  it("two writers of one project take turns, and each advance is told once", async () => {
    const test = await signalling();
    await test.project("p1");
    const { schema } = test;
    const [first, second] = await Promise.all([session(), session()]);
    await first.query("BEGIN");
    await first.query(`SELECT ${schema}.advance_watermark('p1', 5)`);
    const { rows: pids } = await second.query("SELECT pg_backend_pid() AS pid");
    const waiting = second.query(`SELECT ${schema}.advance_watermark('p1', 3) AS moved`);
    await until("the second to wait", async () => {
      const { rows: locks } = await test.client.query(
        "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'",
        [pids[0].pid],
      );
      return locks.length === 1;
    });
    await first.query("COMMIT");
    // The row it waited for has moved past what it brings.
    expect((await waiting).rows).toEqual([{ moved: false }]);
    expect(await test.ear.heard()).toEqual([signal(5, 6)]);
  });
});
