// A namespace with projects that have a live endpoint, a writer's session on it, and an ear on its channel.
import type pg from "pg";
import { type Ear, listen } from "./hear.ts";
import { testNamespace } from "./namespaces.ts";
import { session } from "./roles.ts";

export interface Signalling {
  /** The quoted schema name. */
  schema: string;
  channel: string;
  /** A session of the tests' own user, which may do everything. */
  client: pg.Client;
  ear: Ear;
  /** Creates a project, with a live endpoint unless told otherwise. */
  project(scope: string, endpoint?: "live" | "none"): Promise<void>;
}

export async function signalling(): Promise<Signalling> {
  const { namespace, channel } = await testNamespace();
  return on(namespace.sql, channel);
}

/** The same on a namespace that exists already. */
export async function on(schema: string, channel: string): Promise<Signalling> {
  const client = await session();
  return {
    schema,
    channel,
    client,
    ear: await listen(channel),
    async project(scope, endpoint = "live") {
      await client.query(`INSERT INTO ${schema}.project (scope) VALUES ($1)`, [scope]);
      if (endpoint === "none") return;
      await client.query(
        `INSERT INTO ${schema}.notification_endpoint (endpoint_id, scope, url, secret)
         VALUES (gen_random_uuid(), $1, 'https://localhost/', $2)`,
        [scope, Buffer.alloc(32)],
      );
    },
  };
}
