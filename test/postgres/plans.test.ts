// The engine's statements on a table with a history, when a backlog appears that no statistics know of.
import { describe, expect, it } from "vitest";
import { deliveryStatements } from "../../src/notifications/queries.ts";
import { engineBench } from "../support/engine.ts";

const ENDPOINTS = 100;
const HISTORY = 20_000;
const BACKLOG = 20_000;

interface Plan {
  "Shared Hit Blocks": number;
  "Shared Read Blocks": number;
}

describe("with statistics from before the backlog", () => {
  it("each statement still touches only what it works on", async () => {
    const bench = await engineBench();
    const { db, namespace } = bench;
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

    const statements = deliveryStatements(namespace);
    const touched = async (name: keyof typeof statements, values: string) => {
      const found = await db.transaction(async (transaction) => {
        await transaction.query(`PREPARE tried AS ${statements[name].text}`);
        const answer = await transaction.query<{ "QUERY PLAN": { Plan: Plan }[] }>(
          `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE tried(${values})`,
        );
        await transaction.query("DEALLOCATE tried");
        return answer;
      });
      const plan = found[0]?.["QUERY PLAN"][0]?.Plan;
      return (plan?.["Shared Hit Blocks"] ?? 0) + (plan?.["Shared Read Blocks"] ?? 0);
    };
    const room = "64, 4, '{}', '{}', 15000";
    // 64 rows claimed, each with its index entries; a scan of the backlog alone would be 10 times as much.
    expect(await touched("claim", `${room}, '00000000-0000-0000-0000-000000000000', 6`)).toBeLessThan(4_000);
    await bench.formation.advance("p1", { formedThrough: 200_000n });
    // A hundred rows inserted.
    expect(await touched("owe", `${room}, '{p1}', '{200000}', '{200000}', '{1}', '{0}'`)).toBeLessThan(8_000);
    const claimed = await db.query<{ id: string; lease: number }>(
      `SELECT delivery_id AS id, lease FROM ${table} WHERE claimed_at IS NOT NULL LIMIT 64`,
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
        ].join(", "),
      ),
    ).toBeLessThan(4_000);
    expect(await touched("nextDue", "now()")).toBeLessThan(200);
  });
});
