// Brings a namespace to this version's schema: under an advisory lock, so that any number of processes
// may start at once, and only after checking that what was applied before is what these files say.
import pg from "pg";
import type { Namespace } from "./namespace.ts";
import { readSchemaFiles, type SchemaFile } from "./schema-files.ts";
import { SQLSTATE, sqlState } from "./sqlstate.ts";

/** Any fixed number, distinct from other programs' first advisory lock key; the second is the namespace. */
const LOCK_CLASS = 1_952_541_539;

/**
 * A migration waits this long for a table in use, then lets those pass who have queued up behind it, and
 * tries again. Half a minute in all.
 */
const LOCK_TIMEOUT_MS = 5_000;
const LOCK_TRIES = 6;

/** The schema cannot be brought to this version; the message names the file and what to do. */
export class SchemaMismatch extends Error {
  override readonly name = "SchemaMismatch";
}

export interface MigrateOptions {
  url: string;
  namespace: Namespace;
  channel: string;
  /** `install` puts triggers up to date, `keep` leaves them as they are, `remove` drops them. */
  triggers: "install" | "keep" | "remove";
  applicationName: string;
  /** For tests: another set of files, and a shorter wait for a table in use. */
  root?: string;
  lockTimeoutMs?: number;
}

export interface MigrateResult {
  /** Names of the files applied by this call, in order. */
  applied: string[];
  removed: string[];
}

interface Recorded {
  kind: SchemaFile["kind"];
  name: string;
  checksum: string;
}

/**
 * Applies what is missing, all of it or nothing. Where everything is current it only reads, so a role
 * without rights to change the schema can start the service.
 *
 * @throws SchemaMismatch where an applied file was edited or is missing, the schema is newer, or a table
 * stays in use.
 */
export async function migrate(options: MigrateOptions): Promise<MigrateResult> {
  const files = readSchemaFiles(options.namespace, options.channel, options.root);
  const client = new pg.Client({
    connectionString: options.url,
    application_name: options.applicationName,
    connectionTimeoutMillis: 10_000,
  });
  // The query under way rejects too; this only keeps a vanished server from ending the process.
  client.on("error", () => {});
  await client.connect();
  try {
    await checkServerVersion(client);
    const recorded = await readRecord(client, options.namespace);
    const plan = planFor(files, recorded ?? [], options.triggers);
    if (recorded !== undefined && plan.apply.length === 0 && plan.remove.length === 0) {
      return { applied: [], removed: [] };
    }
    return await applyUnderLock(client, options, files);
  } finally {
    await client.end();
  }
}

async function checkServerVersion(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ server_version_num: string; server_version: string }>(
    "SELECT current_setting('server_version_num') AS server_version_num, current_setting('server_version') AS server_version",
  );
  if (Number(rows[0]?.server_version_num) < 140_000) {
    throw new SchemaMismatch(
      `PostgreSQL ${rows[0]?.server_version} is too old; version 14 or newer is needed`,
    );
  }
}

async function applyUnderLock(
  client: pg.Client,
  options: MigrateOptions,
  files: SchemaFile[],
): Promise<MigrateResult> {
  const { namespace, triggers, lockTimeoutMs = LOCK_TIMEOUT_MS } = options;
  for (let attempt = 1; ; attempt++) {
    try {
      // The role's or the database's own defaults must not decide: a snapshot older than the lock would
      // miss what its last holder applied, a time limit would cut long work off, and a schema in front
      // of pg_catalog could put its own functions into what is created here.
      await client.query("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
      await client.query(
        "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SET LOCAL search_path = pg_catalog, pg_temp",
      );
      await client.query("SELECT pg_advisory_xact_lock($1, hashtext($2))", [LOCK_CLASS, namespace.name]);
      await client.query(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
      await createRecord(client, namespace);
      const plan = planFor(files, (await readRecord(client, namespace)) ?? [], triggers);
      for (const file of plan.apply) await apply(client, namespace, file);
      for (const file of plan.remove) await remove(client, namespace, file);
      await client.query("COMMIT");
      return { applied: plan.apply.map(({ name }) => name), removed: plan.remove.map(({ name }) => name) };
    } catch (error) {
      await client.query("ROLLBACK").catch(() => {});
      const state = sqlState(error);
      const busy = state === SQLSTATE.lockNotAvailable || state === SQLSTATE.deadlockDetected;
      if (!busy) throw error;
      if (attempt === LOCK_TRIES) {
        throw new SchemaMismatch(
          `${(error as Error).message}; other sessions kept a table in use for too long: end them and migrate again`,
          { cause: error },
        );
      }
    }
  }
}

function planFor(files: SchemaFile[], recorded: Recorded[], triggers: MigrateOptions["triggers"]) {
  checkRecord(files, recorded);
  const checksums = new Map(recorded.map(({ kind, name, checksum }) => [`${kind}/${name}`, checksum]));
  const wanted = (file: SchemaFile) => file.kind === "migration" || triggers === "install";
  return {
    apply: files.filter((file) => wanted(file) && checksums.get(keyOf(file)) !== file.checksum),
    remove: files.filter(
      (file) => file.kind === "trigger" && triggers === "remove" && checksums.has(keyOf(file)),
    ),
  };
}

const keyOf = ({ kind, name }: { kind: string; name: string }) => `${kind}/${name}`;

/** @throws SchemaMismatch; edited triggers are no mismatch, they are replaced. */
function checkRecord(files: SchemaFile[], recorded: Recorded[]): void {
  const byKey = new Map(files.map((file) => [keyOf(file), file]));
  const newest =
    files
      .filter(({ kind }) => kind === "migration")
      .map(({ name }) => name)
      .sort()
      .at(-1) ?? "";
  for (const row of recorded) {
    const file = byKey.get(keyOf(row));
    if (file === undefined) {
      throw new SchemaMismatch(
        row.kind === "migration" && row.name > newest
          ? `the schema is newer than this version: ${row.name} was applied and is not known here; run the newer version`
          : `${row.kind}s/${row.name} was applied and is missing; restore the file`,
      );
    }
    if (row.kind === "migration" && file.checksum !== row.checksum) {
      throw new SchemaMismatch(
        `migrations/${row.name} was edited after it was applied; restore it and put the change into a new migration`,
      );
    }
  }
}

/** The record, or undefined where there is none yet. */
async function readRecord(client: pg.Client, namespace: Namespace): Promise<Recorded[] | undefined> {
  try {
    const { rows } = await client.query<Recorded>(
      `SELECT kind, name, checksum FROM ${namespace.sql}.schema_file ORDER BY kind, name`,
    );
    return rows;
  } catch (error) {
    const state = sqlState(error);
    if (state === SQLSTATE.undefinedTable || state === SQLSTATE.undefinedSchema) return undefined;
    throw error;
  }
}

async function createRecord(client: pg.Client, namespace: Namespace): Promise<void> {
  // Asked first: IF NOT EXISTS would still demand the right to create schemas.
  const { rowCount } = await client.query("SELECT FROM pg_namespace WHERE nspname = $1", [namespace.name]);
  if (rowCount === 0) await client.query(`CREATE SCHEMA ${namespace.sql}`);
  await client.query(`
    CREATE TABLE IF NOT EXISTS ${namespace.sql}.schema_file (
      kind       text        NOT NULL CHECK (kind IN ('migration', 'trigger')),
      name       text        NOT NULL,
      checksum   text        NOT NULL,
      applied_at timestamptz NOT NULL DEFAULT now(),
      PRIMARY KEY (kind, name)
    )`);
}

async function apply(client: pg.Client, namespace: Namespace, file: SchemaFile): Promise<void> {
  try {
    await client.query(file.sql);
  } catch (error) {
    if (error instanceof Error) error.message = `${file.kind}s/${file.name}: ${error.message}`;
    throw error;
  }
  await client.query(
    `INSERT INTO ${namespace.sql}.schema_file (kind, name, checksum) VALUES ($1, $2, $3)
     ON CONFLICT (kind, name) DO UPDATE SET checksum = EXCLUDED.checksum, applied_at = now()`,
    [file.kind, file.name, file.checksum],
  );
}

/** Drops a trigger file's function with the triggers that call it; both carry the file's name. */
async function remove(client: pg.Client, namespace: Namespace, file: SchemaFile): Promise<void> {
  const name = file.name.replace(/\.sql$/, "");
  await client.query(`DROP FUNCTION IF EXISTS ${namespace.sql}.${pg.escapeIdentifier(name)}() CASCADE`);
  await client.query(`DELETE FROM ${namespace.sql}.schema_file WHERE kind = $1 AND name = $2`, [
    file.kind,
    file.name,
  ]);
}
