// Whether a delivery costs the same whatever surrounds it: the drain's rate with 1 to 10,000 endpoints, and with
// a table that holds millions of delivered rows.
import type { Setup } from "../peers/peer.ts";
import { taisce } from "../peers/taisce.ts";
import { drainOnce } from "./drain.ts";
import type { Measure } from "./measure.ts";

const BASE = "100 endpoints";

export const scale: Measure = {
  name: "scale",
  title: "cost of a delivery as things grow",
  yardstick: BASE,
  columns: [
    { figure: "perSecond", title: "deliveries/s", digits: 0, better: "more" },
    { figure: "microsEach", title: "µs each", digits: 0, better: "less" },
    { figure: "workerMicros", title: "worker CPU µs each", digits: 0 },
    { figure: "claimsEach", title: "claims each", digits: 2 },
  ],
  async *run(context) {
    const { fullRows } = context.options;
    const conditions: [number, string, ((setup: Setup) => Promise<void>)?][] = [
      [1, "1 endpoint"],
      [100, BASE],
      [1_000, "1,000 endpoints"],
      [10_000, "10,000 endpoints"],
      [
        100,
        `100 endpoints, ${fullRows.toLocaleString("en")} rows delivered`,
        (setup) => fill(setup, fullRows),
      ],
    ];
    for (const [count, name, before] of conditions) {
      const sample = await drainOnce(context, taisce, count, name, before);
      const { perSecond = Number.NaN } = sample.figures;
      // Conditions are compared with each other here, so they stand where contenders do elsewhere.
      yield {
        ...sample,
        measure: "scale",
        condition: "taisce",
        peer: name,
        figures: { ...sample.figures, microsEach: 1e6 / perSecond },
      };
    }
  },
};

/** Rows of a past that went well. Offsets below zero, so that what the drain owes comes after them. */
async function fill({ database: { client } }: Setup, rows: number): Promise<void> {
  const { rows: found } = await client.query(
    "SELECT count(*)::integer AS count FROM taisce.notification_endpoint",
  );
  const each = Math.ceil(rows / found[0].count);
  await client.query("SET synchronous_commit = off");
  await client.query(
    `INSERT INTO taisce.notification_delivery (delivery_id, scope, endpoint_id, formed_through, stored_through,
       formed_turns, attempts, lease, next_attempt_at, delivered_at, last_status, created_at, occurred_at)
     SELECT taisce.new_delivery_id(), e.scope, e.endpoint_id, n, n, 1, 1, 1, at, at, 204, at, at
     FROM generate_series(-$1::integer, -1) n
     CROSS JOIN taisce.notification_endpoint e
     CROSS JOIN LATERAL (SELECT now() + n * interval '1 second' AS at) t`,
    [each],
  );
  await client.query("RESET synchronous_commit");
  await client.query("VACUUM (ANALYZE) taisce.notification_delivery");
}
