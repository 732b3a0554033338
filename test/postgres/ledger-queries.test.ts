// The queries in docs/ledger.md, run as they stand by a role with the rights that page gives it, and the
// indexes it says they use.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Audit } from "../../src/audit/audit.ts";
import { type LedgerFilter, LedgerRows } from "../../src/ledger/rows.ts";
import { testNamespace } from "../support/namespaces.ts";
import { session, testRole } from "../support/roles.ts";

const PAGE = readFileSync(new URL("../../docs/ledger.md", import.meta.url), "utf8");
const SECTION = /^## Reading it with SQL$(.*?)^## /ms.exec(PAGE)?.[1] ?? "";
const GRANTS = /^```sql\n(.*?)^```/ms.exec(SECTION)?.[1] ?? "";
const QUERIES = Array.from(
  SECTION.matchAll(/Index `(\w+)`\.\n\n```sql\n(.*?)^```/gms),
  ([, index = "", query = ""]) => ({ index, query }),
);

/** A ledger with mostly notifications, and what the page's queries ask for. */
async function filledLedger() {
  const test = await testNamespace();
  const table = `${test.namespace.sql}.deliveries`;
  const now = `to_char(now() AT TIME ZONE 'UTC' - n * interval '1 hour', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
  await test.db.query(
    `INSERT INTO ${table} (id, identity_id, target, scope, idempotency, run_id, created_at, status, project)
     SELECT gen_random_uuid()::text, 'p' || n % 3, 'https/notification', 'e' || n % 7, n::text,
            'taisce-notify/1', ${now}, 'accepted', 'p' || n % 3
     FROM generate_series(1, 6000) n
     UNION ALL
     SELECT gen_random_uuid()::text, CASE WHEN n % 2 = 0 THEN 'ann' ELSE 'bob' END, 'https/deliver',
            '01a22d9f-dd18-7e20-b310-5e9880b3800d', 'invoice-' || n, 'nightly-2026-11-' || 20 + n % 20, ${now},
            CASE n % 10 WHEN 3 THEN 'unconfirmed' ELSE 'accepted' END, 'p1'
     FROM generate_series(1, 200) n`,
  );
  await test.db.query(`ANALYZE ${table}`);
  return test;
}

describe("docs/ledger.md", () => {
  it("has five queries that a reader may run, and that find what they ask for by their index", async () => {
    const { namespace: where } = await filledLedger();
    const here = (text: string) => text.replaceAll("taisce.", `${where.sql}.`);
    expect(QUERIES.length).toBe(5);
    const owner = await session();
    const reader = await testRole(owner, []);
    const granted = here(GRANTS).replaceAll("SCHEMA taisce", `SCHEMA ${where.sql}`);
    await owner.query(granted.replaceAll("ledger_reader", reader.name));
    const client = await session(reader.url);
    const found = [];
    for (const { index, query } of QUERIES) {
      found.push((await client.query(here(query))).rowCount);
      const { rows } = await client.query<{ "QUERY PLAN": string }>(`EXPLAIN ${here(query)}`);
      const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
      expect(plan).toContain(index);
    }
    expect(found.slice(0, 4)).toEqual([1, 20, 10, 20]);
    expect(found[4]).toBeGreaterThan(1);
    await expect(client.query(here("DELETE FROM taisce.deliveries"))).rejects.toThrow(/permission denied/);
  });
});

describe("the list's statement", () => {
  it.each<[string, Partial<LedgerFilter>]>([
    ["deliveries_project_idx", {}],
    ["deliveries_status_idx", { status: "unconfirmed" }],
    ["deliveries_run_idx", { runId: "nightly-2026-11-30" }],
    ["deliveries_identity_idx", { identityId: "ann" }],
  ])("uses %s", async (index, filter) => {
    const { db, namespace } = await filledLedger();
    let plan = "";
    const explaining = {
      query: async (text: string, values: unknown[]) => {
        const rows = await db.query<{ "QUERY PLAN": string }>(`EXPLAIN ${text}`, values);
        plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
        return [];
      },
    } as unknown as typeof db;
    await new LedgerRows(explaining, namespace, new Audit(namespace)).list({
      ...{ project: "p1", limit: 50, ...filter },
    });
    expect(plan).toContain(index);
  });
});
