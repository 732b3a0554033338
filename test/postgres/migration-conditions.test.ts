// Migrating under conditions that are not its own: a role without rights, settings of the role or the
// database, names at their longest, and tables that other sessions are using.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type pg from "pg";
import { describe, expect, it } from "vitest";
import { SchemaMismatch } from "../../src/database/migrate.ts";
import { cli } from "../support/cli.ts";
import { listen } from "../support/hear.ts";
import { databaseUrl, freshName } from "../support/namespaces.ts";
import { session, testRole, urlWith } from "../support/roles.ts";
import { copyOfFiles, currentNamespace, emptyNamespace, FILES } from "../support/schema-files.ts";
import { until } from "../support/until.ts";

describe("a role that may not change the schema", () => {
  it("starts where the schema is current, and is told what to do where it is not", async () => {
    const { run, db, where } = await currentNamespace();
    const role = await testRole(await session(), [
      `USAGE ON SCHEMA ${where.sql}`,
      `SELECT ON ${where.sql}.schema_file`,
    ]);
    expect(await run({ url: role.url })).toEqual({ applied: [], removed: [] });
    expect(await run({ url: role.url, triggers: "keep" })).toEqual({ applied: [], removed: [] });

    await db.query(`UPDATE ${where.sql}.schema_file SET checksum = 'of before' WHERE kind = 'trigger'`);
    const { code, stdout, stderr } = await cli(["migrate"], {
      DATABASE_URL: role.url,
      TAISCE_NAMESPACE: where.name,
    });
    expect({ code, stdout, stderr }).toEqual({
      code: 1,
      stdout: "",
      stderr: `taisce-notify migrate: permission denied for schema ${where.name}: the user in DATABASE_URL lacks this right; run migrate as the schema's owner\n`,
    });
  });
});

describe("a role that owns nothing but what it creates", () => {
  it("migrates, and its trigger works for a writer with rights on the watermark only", async () => {
    const { run, where, channel } = emptyNamespace();
    const admin = await session();
    const owner = await testRole(admin, [`CREATE ON DATABASE ${await databaseName(admin)}`]);
    expect((await run({ url: owner.url })).applied).toEqual(FILES);
    expect(await run({ url: owner.url })).toEqual({ applied: [], removed: [] });

    const asOwner = await session(owner.url);
    await asOwner.query(`INSERT INTO ${where.sql}.project (scope) VALUES ('p1')`);
    await asOwner.query(
      `INSERT INTO ${where.sql}.notification_endpoint (endpoint_id, scope, url, secret)
       VALUES (gen_random_uuid(), 'p1', 'https://localhost/', $1)`,
      [Buffer.alloc(32)],
    );
    const writer = await testRole(admin);
    await asOwner.query(`GRANT USAGE ON SCHEMA ${where.sql} TO ${writer.name}`);
    await asOwner.query(`GRANT SELECT, UPDATE ON ${where.sql}.watermark TO ${writer.name}`);
    const ear = await listen(channel);
    const asWriter = await session(writer.url);
    await asWriter.query(`SELECT ${where.sql}.advance_watermark('p1', 4)`);
    expect(await ear.heard()).toEqual([
      `{"scope":"p1","formed_through":4,"stored_through":4,"formed_turns":5,"parked_turns":0}`,
    ]);
  });
});

const databaseName = async (client: pg.Client): Promise<string> =>
  (await client.query<{ name: string }>("SELECT quote_ident(current_database()) AS name")).rows[0]?.name ??
  "";

describe("settings that do not suit a migration", () => {
  it("a role's time limit does not cut a long one off", async () => {
    const { run } = emptyNamespace();
    const root = copyOfFiles();
    writeFileSync(join(root, "migrations/9000_long.sql"), "SELECT pg_sleep(1.2);");
    const url = urlWith({ statement_timeout: "1s" });
    expect((await run({ root, url })).applied).toContain("9000_long.sql");
  });

  it("a schema in front of pg_catalog puts nothing of its own into what is created", async () => {
    const { run } = emptyNamespace();
    const evil = freshName();
    const client = await session();
    await client.query(`CREATE SCHEMA ${evil};
      CREATE FUNCTION ${evil}.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
      CREATE FUNCTION ${evil}.octet_length(text) RETURNS integer LANGUAGE sql AS 'SELECT 0';
      CREATE FUNCTION ${evil}.set_bit(bytea, integer, integer) RETURNS bytea LANGUAGE sql AS 'SELECT $1';`);
    await run({ url: urlWith({ search_path: `${evil}, pg_catalog` }) });
    // Refused as long as anything depends on what is in it.
    for (const name of ["now()", "octet_length(text)", "set_bit(bytea, integer, integer)"]) {
      await client.query(`DROP FUNCTION ${evil}.${name}`);
    }
    await client.query(`DROP SCHEMA ${evil}`);
  });

  it("the longest namespace works, its channel included", async () => {
    const { where, db } = emptyNamespace(freshName().padEnd(40, "x"));
    const { code, stderr } = await cli(["migrate"], {
      DATABASE_URL: databaseUrl(),
      TAISCE_NAMESPACE: where.name,
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const ear = await listen(`${where.name}_formed`);
    await db.query(`INSERT INTO ${where.sql}.project (scope) VALUES ('p1')`);
    await db.query(
      `INSERT INTO ${where.sql}.notification_endpoint (endpoint_id, scope, url, secret)
       VALUES (gen_random_uuid(), 'p1', 'https://localhost/', $1)`,
      [Buffer.alloc(32)],
    );
    await db.query(`SELECT ${where.sql}.advance_watermark('p1', 4)`);
    expect(await ear.heard()).toHaveLength(1);
  });
});

describe("a table in use", () => {
  async function contended() {
    const { run, where } = await currentNamespace();
    const root = copyOfFiles();
    writeFileSync(join(root, "triggers/watermark_notify.sql"), "-- edited\n", { flag: "a" });
    const holder = await session();
    await holder.query("BEGIN");
    await holder.query(`LOCK TABLE ${where.sql}.watermark IN ACCESS SHARE MODE`);
    await holder.query(`LOCK TABLE ${where.sql}.watermark IN ROW EXCLUSIVE MODE`);
    return { run, where, root, holder };
  }

  it("is waited for, more than once, and then changed", async () => {
    const { run, where, root, holder } = await contended();
    const migrating = run({ root, lockTimeoutMs: 400 });
    const watcher = await session();
    const tries = new Set<string>();
    await until("a second try", async () => {
      const { rows } = await watcher.query<{ started: string }>(
        `SELECT xact_start::text AS started FROM pg_stat_activity
         WHERE application_name = $1 AND wait_event_type = 'Lock'`,
        [`migrate ${where.name}`],
      );
      for (const { started } of rows) tries.add(started);
      return tries.size >= 2;
    });
    await holder.query("COMMIT");
    expect(await migrating).toEqual({ applied: ["watermark_notify.sql"], removed: [] });
  });

  it("that stays in use ends it with the file's name and what to do", async () => {
    const { run, root, holder } = await contended();
    await expect(run({ root, lockTimeoutMs: 10 })).rejects.toThrow(
      new SchemaMismatch(
        "triggers/watermark_notify.sql: canceling statement due to lock timeout; other sessions kept a table in use for too long: end them and migrate again",
      ),
    );
    await holder.query("COMMIT");
    expect(await run({ root })).toEqual({ applied: ["watermark_notify.sql"], removed: [] });
  });
});
