// Bringing a namespace to this version's schema: at once from many processes, and from every earlier state.
import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Database } from "../../src/database/database.ts";
import { SchemaMismatch } from "../../src/database/migrate.ts";
import type { Namespace } from "../../src/database/namespace.ts";
import { cli } from "../support/cli.ts";
import { databaseUrl } from "../support/namespaces.ts";
import { urlWith } from "../support/roles.ts";
import {
  copyOfFiles,
  currentNamespace,
  emptyNamespace,
  FILES,
  MIGRATIONS,
  TRIGGERS,
} from "../support/schema-files.ts";

async function recorded(db: Database, where: Namespace): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    `SELECT name FROM ${where.sql}.schema_file ORDER BY kind, name`,
  );
  return rows.map(({ name }) => name);
}

async function triggersOf(db: Database, where: Namespace): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    `SELECT tgname AS name FROM pg_trigger WHERE tgrelid = '${where.sql}.watermark'::regclass
       AND tgname LIKE 'watermark_notify%' ORDER BY tgname`,
  );
  return rows.map(({ name }) => name);
}

const signalSource = async (db: Database, where: Namespace): Promise<string> =>
  (
    await db.query<{ source: string }>(
      `SELECT prosrc AS source FROM pg_proc WHERE oid = '${where.sql}.watermark_notify'::regproc`,
    )
  )[0]?.source ?? "";

describe("several processes at once", () => {
  it("apply each file exactly once between them, and a later one applies nothing", async () => {
    const { where, db } = emptyNamespace();
    const environment = { DATABASE_URL: databaseUrl(), TAISCE_NAMESPACE: where.name };
    const results = await Promise.all(
      Array.from({ length: 5 }, () => cli(["migrate", "--json"], environment)),
    );
    expect(results.map(({ code, stderr }) => ({ code, stderr }))).toEqual(
      Array.from({ length: 5 }, () => ({ code: 0, stderr: "" })),
    );
    expect(results.flatMap(({ stdout }) => JSON.parse(stdout).applied)).toEqual(FILES);
    expect(await recorded(db, where)).toEqual(FILES);

    const later = await cli(["migrate", "--json"], environment);
    expect(JSON.parse(later.stdout)).toEqual({ namespace: where.name, applied: [], removed: [] });
  });

  it("do so also where the role's default isolation is repeatable read", async () => {
    const { run } = emptyNamespace();
    const url = urlWith({ default_transaction_isolation: "repeatable read" });
    const results = await Promise.all(Array.from({ length: 5 }, () => run({ url })));
    expect(results.flatMap(({ applied }) => applied)).toEqual(FILES);
  });
});

describe("files that do not fit what was applied", () => {
  it("an edited migration stops it with its name", async () => {
    const { run } = await currentNamespace();
    const root = copyOfFiles();
    writeFileSync(join(root, "migrations/0002_formation.sql"), "-- edited\n", { flag: "a" });
    await expect(run({ root })).rejects.toThrow(
      new SchemaMismatch(
        "migrations/0002_formation.sql was edited after it was applied; restore it and put the change into a new migration",
      ),
    );
  });

  it("a migration that was applied and is missing stops it with its name", async () => {
    const { run } = await currentNamespace();
    const root = copyOfFiles();
    rmSync(join(root, "migrations/0002_formation.sql"));
    await expect(run({ root })).rejects.toThrow(
      new SchemaMismatch("migrations/0002_formation.sql was applied and is missing; restore the file"),
    );
  });

  it("a migration from a newer version stops it with its name", async () => {
    const { run, db, where } = await currentNamespace();
    const root = copyOfFiles();
    writeFileSync(join(root, "migrations/9000_later.sql"), "CREATE TABLE {schema}.later ();");
    expect(await run({ root })).toEqual({ applied: ["9000_later.sql"], removed: [] });
    for (const triggers of ["install", "keep", "remove"] as const) {
      await expect(run({ triggers })).rejects.toThrow(
        new SchemaMismatch(
          "the schema is newer than this version: 9000_later.sql was applied and is not known here; run the newer version",
        ),
      );
    }
    expect(await triggersOf(db, where)).not.toEqual([]);
  });

  it("a file whose name says no order is refused before anything is applied", async () => {
    const { run } = emptyNamespace();
    const root = copyOfFiles();
    renameSync(join(root, "migrations/0001_projects.sql"), join(root, "migrations/projects.sql"));
    await expect(run({ root })).rejects.toThrow(/migrations\/projects\.sql is not named like/);
  });
});

describe("triggers", () => {
  it("an edited file replaces what it made before", async () => {
    const { run, db, where } = await currentNamespace();
    const root = copyOfFiles();
    const path = join(root, "triggers/watermark_notify.sql");
    writeFileSync(path, readFileSync(path, "utf8").replace("before bigint;", "before bigint; -- edited"));
    expect(await run({ root })).toEqual({ applied: ["watermark_notify.sql"], removed: [] });
    expect(await signalSource(db, where)).toContain("-- edited");
    expect(await triggersOf(db, where)).toEqual(["watermark_notify_insert", "watermark_notify_update"]);
    expect(await run({ root })).toEqual({ applied: [], removed: [] });
  });

  it("are rendered anew for another channel", async () => {
    const { run, db, where } = await currentNamespace();
    const channel = `${where.name}_other`;
    expect(await run({ channel })).toEqual({ applied: ["watermark_notify.sql"], removed: [] });
    expect(await signalSource(db, where)).toContain(`'${channel}'`);
    expect(await signalSource(db, where)).not.toContain(`'${where.name}_formed'`);
  });

  it("are left alone by a start that does not listen, and removed by migrate with listening off", async () => {
    const { run, db, where } = await currentNamespace();
    const root = copyOfFiles();
    writeFileSync(join(root, "triggers/watermark_notify.sql"), "-- edited\n", { flag: "a" });
    expect(await run({ root, triggers: "keep" })).toEqual({ applied: [], removed: [] });
    expect(await triggersOf(db, where)).toHaveLength(2);

    const environment = { DATABASE_URL: databaseUrl(), TAISCE_NAMESPACE: where.name };
    const off = await cli(["migrate", "--json"], { ...environment, TAISCE_NOTIFY_LISTEN: "off" });
    expect(JSON.parse(off.stdout)).toEqual({ namespace: where.name, applied: [], removed: TRIGGERS });
    expect(await triggersOf(db, where)).toEqual([]);
    expect(await recorded(db, where)).toEqual(MIGRATIONS);
    await db.query(`INSERT INTO ${where.sql}.project (scope) VALUES ('p1')`);
    await db.query(`SELECT ${where.sql}.advance_watermark('p1', 4)`);

    expect(await run()).toEqual({ applied: TRIGGERS, removed: [] });
    expect(await triggersOf(db, where)).toHaveLength(2);
  });
});

describe("a migration that fails", () => {
  const broken = "CREATE TABLE {schema}.half_done (); SELECT 1 / 0;";

  it("leaves an empty database empty", async () => {
    const { run, db, where } = emptyNamespace();
    const root = copyOfFiles();
    writeFileSync(join(root, "migrations/9000_broken.sql"), broken);
    await expect(run({ root })).rejects.toThrow("migrations/9000_broken.sql: division by zero");
    expect(await db.query("SELECT FROM pg_namespace WHERE nspname = $1", [where.name])).toEqual([]);
  });

  it("leaves a schema as it was, its other files included", async () => {
    const { run, db, where } = await currentNamespace();
    const root = copyOfFiles();
    writeFileSync(join(root, "migrations/9000_good.sql"), "CREATE TABLE {schema}.good ();");
    writeFileSync(join(root, "migrations/9001_broken.sql"), broken);
    await expect(run({ root })).rejects.toThrow("migrations/9001_broken.sql: division by zero");
    expect(await recorded(db, where)).toEqual(FILES);
    const tables = await db.query(
      "SELECT FROM pg_tables WHERE schemaname = $1 AND tablename IN ('good', 'half_done')",
      [where.name],
    );
    expect(tables).toEqual([]);
  });
});
