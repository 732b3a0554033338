// Once a run: a PostgreSQL for every test file that wants one.

import pg from "pg";
import type { TestProject } from "vitest/node";
import { startDatabaseServer } from "./database-server.ts";

declare module "vitest" {
  export interface ProvidedContext {
    databaseUrl: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startDatabaseServer();
  const client = new pg.Client({ connectionString: server.url });
  await client.connect();
  const { rows } = await client.query<{ server_version: string }>("SHOW server_version");
  await client.end();
  console.log(`tests: PostgreSQL ${rows[0]?.server_version}, ${server.kind}`);
  project.provide("databaseUrl", server.url);
  return () => server.stop();
}
