// The least that could do the job, for scale: hears a NOTIFY, takes what is due in large batches, posts it, and
// records it in one statement. It retries nothing, recovers nothing, and checks no address.
import pg from "pg";
import { config, type Job, ready, stopWith } from "./config.ts";
import { createPoster } from "./post.ts";

const BATCH = 512;

const poster = createPoster(config);
const listener = new pg.Client({ connectionString: config.databaseUrl });
const pool = new pg.Pool({ connectionString: config.databaseUrl, max: 4 });
let heard = 0;
const waiting: (() => void)[] = [];
let stopped = false;
const wake = () => {
  for (const resolve of waiting.splice(0)) resolve();
};
listener.on("notification", () => {
  heard++;
  wake();
});
await listener.connect();
await listener.query("LISTEN reference");

async function work(): Promise<void> {
  while (!stopped) {
    const before = heard;
    const { rows } = await pool.query<Job & { id: string }>({
      name: "claim",
      text: `WITH due AS MATERIALIZED (
               SELECT id FROM reference.delivery WHERE claimed_at IS NULL ORDER BY id LIMIT ${BATCH}
               FOR UPDATE SKIP LOCKED)
             UPDATE reference.delivery d SET claimed_at = now() FROM due, bench.endpoint e
             WHERE d.id = due.id AND e.number = d.endpoint
             RETURNING d.id::text, e.path, e.scope, d.formed_through::float8 AS "formedThrough",
               d.formed_through::float8 AS "storedThrough", 0 AS "parkedTurns",
               to_char(d.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS "occurredAt"`,
    });
    const done = Promise.all(rows.map((row) => poster.post(row.id, row))).then(() =>
      pool.query({
        name: "record",
        text: "UPDATE reference.delivery SET delivered_at = now() WHERE id = ANY ($1::bigint[])",
        values: [rows.map(({ id }) => id)],
      }),
    );
    if (rows.length === BATCH) await done;
    // What is recorded late is recorded all the same; a failure ends the process.
    else if (rows.length === 0 && heard === before)
      await new Promise<void>((resolve) => waiting.push(resolve));
  }
}

ready();
// Two, so that one fetches while the other sends.
const working = Promise.all([work(), work()]);
stopWith(async () => {
  stopped = true;
  wake();
  await Promise.race([working, new Promise((resolve) => setTimeout(resolve, 1_000))]);
});
