// The statements of groups over a long history, with plans from when there was none.
import { expect, it, onTestFinished } from "vitest";
import { Database } from "../../src/database/database.ts";
import { formationStatements, groupStatements } from "../../src/ledger/group-queries.ts";
import { groupBench } from "../support/groups.ts";

const HISTORY = 50_000;

interface Plan {
  "Shared Hit Blocks": number;
  "Shared Read Blocks": number;
}

it.each(["the engine's connections", "the API's connections"])(
  "each statement touches only what it works on, on %s",
  async (which) => {
    const bench = await groupBench();
    const { db, namespace, url } = bench;
    const { sql, name } = namespace;
    const engines = which.startsWith("the engine");
    const planned = new Database({ url, max: 1, applicationName: "plans", probesOnly: engines });
    onTestFinished(() => planned.close());
    const { list: _, ...reading } = groupStatements(namespace, `${name}_handoff`);
    const { owe, reconcile } = formationStatements(namespace, `${name}_handoff`);
    const statements = { ...reading, owe, reconcile };
    for (const [key, { text }] of Object.entries(statements))
      await planned.query(`PREPARE "${key}" AS ${text}`);
    const touched = async (key: keyof typeof statements, values: string) => {
      const [found] = await planned.query<{ "QUERY PLAN": { Plan: Plan }[] }>(
        `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE "${key}"(${values})`,
      );
      const plan = found?.["QUERY PLAN"][0]?.Plan;
      return (plan?.["Shared Hit Blocks"] ?? 0) + (plan?.["Shared Read Blocks"] ?? 0);
    };
    // Plans are kept from the sixth use on.
    for (let n = 0; n < 6; n++) {
      await touched("page", "'p1', 'group:jobs', 0, '', 50, 4000000");
      await touched("handOff", `'group:jobs', 'p1', 'k${n}', 'p1', 'id${n}', 'x', 'r', '', NULL`);
    }

    await db.query(
      `INSERT INTO ${sql}.deliveries (id, identity_id, target, scope, idempotency, run_id, created_at, project)
       SELECT 'h' || n, 'x', 'group:jobs', 'p1', n, 'r', '2026-01-01T00:00:00Z', 'p1'
       FROM generate_series(1, ${HISTORY}) n`,
    );
    await db.query(
      `INSERT INTO ${sql}.handoff (project, target, position, delivery_id)
       SELECT 'p1', 'group:jobs', n + 10, 'h' || n FROM generate_series(1, ${HISTORY}) n`,
    );
    await db.query(`UPDATE ${sql}.handoff_group SET last_position = ${HISTORY} + 10`);
    await bench.endpoint("group:jobs");
    for (let n = 0; n < 200; n++) {
      await db.query(`INSERT INTO ${sql}.project (scope) VALUES ('q${n}')`);
      await db.query(
        `INSERT INTO ${sql}.notification_endpoint (endpoint_id, scope, url, secret)
         VALUES (gen_random_uuid(), 'q${n}', 'https://localhost/', decode(repeat('00', 32), 'hex'))`,
      );
    }

    expect(await touched("page", `'p1', 'group:jobs', 40010, 'h40000', 50, 4000000`)).toBeLessThan(600);
    expect(await touched("page", `'p1', 'group:jobs', 0, '', 50, 4000000`)).toBeLessThan(600);
    expect(
      await touched("handOff", `'group:jobs', 'p1', 'new', 'p1', 'new', 'x', 'r', '', NULL`),
    ).toBeLessThan(300);
    expect(
      await touched("handOff", `'group:jobs', 'p1', '77', 'p1', 'again', 'x', 'r', '', NULL`),
    ).toBeLessThan(300);
    expect(await touched("lastPositions", `'{p1,p2}', '{group:jobs,group:jobs}'`)).toBeLessThan(50);
    await bench.formation.advance("p1", { formedThrough: 200_000n });
    expect(await touched("owe", `'r', NULL, '{p1}', '{199999}', '{199999}', '{1}', '{0}'`)).toBeLessThan(500);
    expect(await touched("reconcile", `'r', NULL, 1000`)).toBeLessThan(600);
    expect(await touched("reconcile", `'r', NULL, 1000`)).toBeLessThan(100);
  },
);
