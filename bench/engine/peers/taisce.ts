// This product, run as anybody runs it: `serve` with settings from the environment.
import { setTimeout as sleep } from "node:timers/promises";
import { runCli, startService } from "./child.ts";
import { type Peer, SECRET, type Setup } from "./peer.ts";

const environment = ({ database, caFile, concurrency }: Setup): Record<string, string> => ({
  DATABASE_URL: database.url,
  TAISCE_ROLE: "worker",
  TAISCE_PORT: "0",
  TAISCE_NOTIFY_DESTINATIONS: "localhost",
  TAISCE_NOTIFY_PERMIT_PRIVATE: "true",
  TAISCE_NOTIFY_CA_FILE: caFile,
  TAISCE_NOTIFY_CONCURRENCY: String(concurrency),
  TAISCE_LOG_LEVEL: "warn",
});

export const taisce: Peer = {
  name: "taisce",
  tuning:
    "defaults; where one endpoint is drained, TAISCE_NOTIFY_ENDPOINT_CONCURRENCY as high as CONCURRENCY",

  async prepare(setup) {
    const { client } = setup.database;
    await runCli(["migrate"], { DATABASE_URL: setup.database.url });
    const scopes = [...new Set(setup.endpoints.map(({ scope }) => scope))];
    await client.query("INSERT INTO taisce.project (scope) SELECT unnest($1::text[])", [scopes]);
    await client.query(
      `INSERT INTO taisce.notification_endpoint (endpoint_id, scope, url, secret)
       SELECT gen_random_uuid(), scope, url, decode($3, 'hex') FROM unnest($1::text[], $2::text[]) AS e(scope, url)`,
      [setup.endpoints.map(({ scope }) => scope), setup.endpoints.map(({ url }) => url), SECRET],
    );
    await client.query("ANALYZE taisce.project, taisce.watermark, taisce.notification_endpoint");
  },

  async owe({ database: { client } }, each) {
    await client.query(OWE, [each]);
    await client.query("UPDATE taisce.watermark SET formed_through = $1, stored_through = $1", [each - 1]);
    // As autovacuum would have, minutes after the backlog began.
    await client.query("VACUUM (ANALYZE) taisce.notification_delivery, taisce.watermark");
  },

  async start(setup, options) {
    // An endpoint of its own process gets all the room; many share it, each with the default.
    const alone: Record<string, string> =
      setup.endpoints.length === 1 ? { TAISCE_NOTIFY_ENDPOINT_CONCURRENCY: String(setup.concurrency) } : {};
    const worker = await startService({ ...environment(setup), ...alone, ...options?.environment });
    return worker;
  },

  async owed({ database: { client } }) {
    const { rows } = await client.query<{ endpoint: number; formed: number }>(
      `SELECT substring(e.url FROM '[0-9]+$')::integer AS endpoint, d.formed_through::float8 AS formed
       FROM taisce.notification_delivery d JOIN taisce.notification_endpoint e USING (endpoint_id)`,
    );
    return rows.map(({ endpoint, formed }) => [endpoint, formed] as const);
  },

  async claimsEach({ database: { client } }) {
    const { rows } = await client.query(
      "SELECT avg(lease)::float8 AS mean FROM taisce.notification_delivery WHERE formed_through >= 0",
    );
    return rows[0].mean;
  },

  advance: (_setup, scope, offset) => ({
    name: "advance",
    text: "UPDATE taisce.watermark SET formed_through = $2, stored_through = $2 WHERE scope = $1",
    values: [scope, offset],
  }),
};

/** The rows that the engine's own statement writes, one an offset and endpoint, with nobody holding them. */
export const OWE = `
  INSERT INTO taisce.notification_delivery (delivery_id, scope, endpoint_id, formed_through, stored_through,
                                            formed_turns, parked_turns, occurred_at, attempts, lease,
                                            next_attempt_at)
  SELECT taisce.new_delivery_id(), e.scope, e.endpoint_id, n, n, 1, 0, now(), 0, 0, now()
  FROM generate_series(0, $1::integer - 1) n CROSS JOIN taisce.notification_endpoint e
  ORDER BY n, e.endpoint_id`;

/** Waits until a service hears signals: without LISTEN it would be measured polling. */
export async function hearing(url: string): Promise<void> {
  for (let tries = 0; tries < 200; tries++) {
    const answer = await fetch(`${url}/ready`);
    if (((await answer.json()) as { listener?: string }).listener === "up") return;
    await sleep(50);
  }
  throw new Error("the service does not listen");
}
