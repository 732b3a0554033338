// The engine's statements with plans from when the table was empty, and statistics from before a backlog.
import { describe, expect, it, onTestFinished } from "vitest";
import { Database } from "../../src/database/database.ts";
import { deliveryStatements } from "../../src/notifications/queries.ts";
import { engineBench } from "../support/engine.ts";

const ENDPOINTS = 100;
const HISTORY = 20_000;
const BACKLOG = 20_000;

interface Plan {
  "Shared Hit Blocks": number;
  "Shared Read Blocks": number;
}

describe("with plans from before there was anything, and statistics from before the backlog", () => {
  it("each statement still touches only what it works on", async () => {
    const bench = await engineBench();
    const { db, namespace, url } = bench;
    // A connection as the engine's are, on which everything was planned while there was nothing.
    const engine = new Database({ url, max: 1, applicationName: "plans", probesOnly: true });
    onTestFinished(() => engine.close());
    const statements = deliveryStatements(namespace, true);
    for (const [name, { text }] of Object.entries(statements))
      await engine.query(`PREPARE "${name}" AS ${text}`);
    const room = "64, 4, '{}', 15000";
    const first = "'00000000-0000-0000-0000-000000000000'";
    const touched = async (name: keyof typeof statements, values: string) => {
      const [found] = await engine.query<{ "QUERY PLAN": { Plan: Plan }[] }>(
        `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE "${name}"(${values})`,
      );
      const plan = found?.["QUERY PLAN"][0]?.Plan;
      return (plan?.["Shared Hit Blocks"] ?? 0) + (plan?.["Shared Read Blocks"] ?? 0);
    };
    await touched("claim", `${room}, ${first}, 6`);
    await touched("owe", `${room}, '{p1}', '{0}', '{0}', '{1}', '{0}'`);
    await touched("oweEach", `${room}, '{p1}', '{0}', '{0}', '{1}', '{0}'`);
    await touched("passOn", "'{}', '{}', '{}', '{}'");
    await touched("record", `'{}', '{}', '{}', '{}', '{}', '{}', 'r', '{}'`);
    await touched("nextDue", "now()");

    const table = `${namespace.sql}.notification_delivery`;
    await db.query(
      `INSERT INTO ${namespace.sql}.notification_endpoint (endpoint_id, scope, url, secret)
       SELECT gen_random_uuid(), 'p1', 'https://localhost/' || n, decode(repeat('00', 32), 'hex')
       FROM generate_series(1, ${ENDPOINTS}) n`,
    );
    const rows = (from: number, count: number, columns: string, values: string) =>
      db.query(
        `INSERT INTO ${table} (delivery_id, scope, endpoint_id, formed_through, stored_through${columns})
         SELECT ${namespace.sql}.new_delivery_id(), 'p1', e.endpoint_id, n, n${values}
         FROM ${namespace.sql}.notification_endpoint e, generate_series(${from}, ${from + count / ENDPOINTS - 1}) n`,
      );
    await rows(0, HISTORY, ", delivered_at", ", now()");
    await db.query(`ANALYZE ${table}`);
    await rows(100_000, BACKLOG, "", "");

    // 64 rows claimed, each with its index entries; a scan of the backlog alone would be 10 times as much.
    expect(await touched("claim", `${room}, ${first}, 6`)).toBeLessThan(4_000);
    await bench.formation.advance("p1", { formedThrough: 200_000n });
    // A hundred rows inserted.
    expect(await touched("owe", `${room}, '{p1}', '{200000}', '{200000}', '{1}', '{0}'`)).toBeLessThan(8_000);
    const claimed = await db.query<{ id: string; lease: number }>(
      `SELECT delivery_id AS id, lease FROM ${table} WHERE lease_until IS NOT NULL LIMIT 64`,
    );
    const list = (values: (string | number)[]) => `'{${values.join(",")}}'`;
    const same = (value: string | number) => list(claimed.map(() => value));
    expect(
      await touched(
        "record",
        [
          list(claimed.map(({ id }) => id)),
          list(claimed.map(({ lease }) => lease)),
          same("delivered"),
          same(200),
          same("NULL"),
          same(0),
          "'r'",
          same("''"),
        ].join(", "),
      ),
    ).toBeLessThan(4_000);
    expect(await touched("nextDue", "now()")).toBeLessThan(200);

    // One endpoint among thousands of others': reading all of those would be more than a thousand blocks.
    await db.query(`INSERT INTO ${namespace.sql}.project (scope) VALUES ('p2'), ('p3')`);
    const [lone] = await db.query<{ endpoint_id: string }>(
      `INSERT INTO ${namespace.sql}.notification_endpoint (endpoint_id, scope, url, secret, deliver)
       SELECT gen_random_uuid(), CASE n WHEN 0 THEN 'p2' ELSE 'p3' END, 'https://localhost/of/' || n,
              decode(repeat('00', 32), 'hex'), CASE n WHEN 0 THEN 'latest' ELSE 'every' END
       FROM generate_series(0, 5000) n RETURNING endpoint_id`,
    );
    for (const formedThrough of [1n, 2n]) await bench.formation.advance("p2", { formedThrough });
    const owed = (offset: number) => `'{p2}', '{${offset}}', '{${offset}}', '{1}', '{0}'`;
    expect(await touched("oweEach", `${room}, ${owed(1)}`)).toBeLessThan(200);
    expect(await touched("owe", `0, 0, '{}', 15000, ${owed(1)}`)).toBeLessThan(200);
    expect(await touched("owe", `${room}, ${owed(2)}`)).toBeLessThan(200);
    expect(await touched("passOn", `'{${lone?.endpoint_id}}', '{1}', '{0}', '{0}'`)).toBeLessThan(200);
    const ends = await db.query(
      `SELECT formed_through, superseded_at IS NOT NULL AS superseded FROM ${table} WHERE scope = 'p2' ORDER BY 1`,
    );
    expect(ends).toEqual([
      { formed_through: 1n, superseded: true },
      { formed_through: 2n, superseded: false },
    ]);
  });
});
