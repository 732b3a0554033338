// Statements a database was asked to run. Where the server's log can be read they are counted in it, one by one;
// elsewhere by transactions, which every statement outside a transaction block is, and to which the server adds
// its own: one for each NOTIFY that a session hears, and autovacuum's.
import { readFileSync, statSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Databases, FreshDatabase } from "./database.ts";

/** Backends report what they did at most once a second, when idle. */
const REPORTED_AFTER_MS = 1_500;

/** Has the statements of sessions that begin from now on logged: not for a measure of speed. */
export async function logStatements({ server, admin }: Databases, { name }: FreshDatabase): Promise<void> {
  if (server.log !== undefined) await admin(`ALTER DATABASE ${name} SET log_statement = 'all'`);
}

/** How many statements a second reach the database while time goes by. */
export async function statementRate(
  databases: Databases,
  database: FreshDatabase,
  seconds: number,
): Promise<number> {
  const { log } = databases.server;
  if (log === undefined) {
    const before = await transactions(databases, database);
    const startedAt = performance.now();
    await sleep(seconds * 1_000);
    const count = (await transactions(databases, database)) - before;
    return (count * 1_000) / (performance.now() - startedAt);
  }
  const { size } = statSync(log);
  await sleep(seconds * 1_000);
  const written = readFileSync(log).subarray(size).toString();
  const line = new RegExp(`^${database.name}\\|LOG: +(statement|execute [^:]*): `, "gm");
  return (written.match(line)?.length ?? 0) / seconds;
}

/** Transactions in all. They are read from another database, so reading them adds none. */
export async function transactions({ admin }: Databases, { name }: FreshDatabase): Promise<number> {
  await sleep(REPORTED_AFTER_MS);
  const [row] = await admin(
    "SELECT (xact_commit + xact_rollback)::float8 AS count FROM pg_stat_database WHERE datname = $1",
    [name],
  );
  return Number(row?.count);
}
