// Database roles for a test, and connection strings that act as one or bring settings of their own.
import pg from "pg";
import { afterAll } from "vitest";
import { databaseUrl, freshName } from "./namespaces.ts";

const made: string[] = [];

/** The tests' database with other settings from the first moment on, such as `search_path` or `role`. */
export function urlWith(settings: Record<string, string>): string {
  const url = new URL(databaseUrl());
  const options = Object.entries(settings).map(
    ([name, value]) => `-c ${name}=${value.replace(/[\\ ]/g, "\\$&")}`,
  );
  url.searchParams.set("options", options.join(" "));
  return url.href;
}

export interface TestRole {
  name: string;
  /** Connects as this role and nothing more. */
  url: string;
}

/** A role without any right but those that `grants` give it, such as `SELECT ON table`. */
export async function testRole(client: Pick<pg.Client, "query">, grants: string[] = []): Promise<TestRole> {
  const name = freshName();
  await client.query(`CREATE ROLE ${name}`);
  made.push(name);
  for (const grant of grants) await client.query(`GRANT ${grant} TO ${name}`);
  return { name, url: urlWith({ role: name }) };
}

/** One session, closed with the file at the latest. */
export async function session(url = databaseUrl()): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  sessions.push(client);
  return client;
}

const sessions: pg.Client[] = [];

afterAll(async () => {
  for (const client of sessions) await client.end().catch(() => {});
  if (made.length === 0) return;
  const client = new pg.Client({ connectionString: databaseUrl() });
  await client.connect();
  for (const name of made) {
    await client.query(`REASSIGN OWNED BY ${name} TO CURRENT_USER`);
    await client.query(`DROP OWNED BY ${name}`);
    await client.query(`DROP ROLE ${name}`);
  }
  await client.end();
});
