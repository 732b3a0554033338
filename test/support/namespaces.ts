// A namespace a test: its own schema, migrated, dropped at the end of the file unless a test failed.
import { randomBytes } from "node:crypto";
import { afterAll, inject, onTestFailed } from "vitest";
import { Database, type DatabaseOptions } from "../../src/database/database.ts";
import { migrate } from "../../src/database/migrate.ts";
import { type Namespace, namespace } from "../../src/database/namespace.ts";

export interface TestNamespace {
  url: string;
  namespace: Namespace;
  channel: string;
  db: Database;
}

const made: TestNamespace[] = [];
let keep = false;

export const databaseUrl = (): string => inject("databaseUrl");

/** A name no other test uses. */
export function freshName(): string {
  return `t${randomBytes(6).toString("hex")}`;
}

/** An empty namespace with the whole schema, and a pool on it. Call it inside a test. */
export async function testNamespace(options: Partial<DatabaseOptions> = {}): Promise<TestNamespace> {
  const where = namespace(freshName());
  const channel = `${where.name}_formed`;
  await migrate({
    url: databaseUrl(),
    namespace: where,
    channel,
    triggers: "install",
    applicationName: "taisce-notify test",
  });
  return track(where, channel, options);
}

/** A pool on a namespace that something else migrates; dropped with the others. */
export function track(
  where: Namespace,
  channel: string,
  options: Partial<DatabaseOptions> = {},
): TestNamespace {
  const db = new Database({ url: databaseUrl(), max: 5, applicationName: "taisce-notify test", ...options });
  const one = { url: databaseUrl(), namespace: where, channel, db };
  made.push(one);
  onTestFailed(() => {
    keep = true;
    console.warn(`kept for a look: schema ${where.name}`);
  });
  return one;
}

afterAll(async () => {
  const sweeper = new Database({ url: databaseUrl(), max: 1, applicationName: "taisce-notify test" });
  for (const { db, namespace: where } of made) {
    await db.close();
    if (!keep) await sweeper.query(`DROP SCHEMA IF EXISTS ${where.sql} CASCADE`);
  }
  await sweeper.close();
});
