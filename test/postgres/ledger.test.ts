// The ledger's table as SQL meets it: what it takes, what may follow what, and the rows of notifications.
import { describe, expect, it } from "vitest";
import { variablesHash } from "../../src/ledger/hash.ts";
import { LEDGER_STATUSES, newLedgerId } from "../../src/ledger/ledger.ts";
import { Deliveries } from "../../src/notifications/deliveries.ts";
import { engineBench, room, signal } from "../support/engine.ts";
import { testNamespace } from "../support/namespaces.ts";

/** A table to write to; `put` enters a row, with all that has no default. */
async function ledgerTable() {
  const test = await testNamespace();
  const table = `${test.namespace.sql}.deliveries`;
  const query = (text: string, values: unknown[] = []) =>
    test.db.query<Record<string, unknown>>(text.replaceAll("{table}", table), values);
  let made = 0;
  const put = (more: Record<string, unknown> = {}) => {
    const row = {
      id: newLedgerId(),
      identity_id: "someone",
      target: "https/deliver",
      idempotency: `k${++made}`,
      run_id: "r",
      created_at: "2026-09-11T09:44:20.000Z",
      project: "p1",
      ...more,
    };
    const names = Object.keys(row);
    return query(
      `INSERT INTO {table} (${names.join(", ")}) VALUES (${names.map((_, n) => `$${n + 1}`).join(", ")}) RETURNING *`,
      Object.values(row),
    );
  };
  return { ...test, query, put };
}

describe("deliveries", () => {
  it("has every column, default and constraint that it was specified with", async () => {
    const { query, put, namespace } = await ledgerTable();
    const columns = await query(
      `SELECT column_name AS name, data_type AS type, is_nullable AS nullable, column_default AS standard
       FROM information_schema.columns WHERE table_schema = $1 AND table_name = 'deliveries'
       ORDER BY ordinal_position`,
      [namespace.name],
    );
    const text = (name: string, standard: string | null = null, nullable = "NO") => ({
      ...{ name, type: "text", nullable, standard },
    });
    expect(columns).toEqual([
      ...["id", "identity_id", "target"].map((name) => text(name)),
      text("scope", "''::text"),
      ...["idempotency", "run_id", "created_at"].map((name) => text(name)),
      text("status", "'accepted'::text"),
      text("sent_at", null, "YES"),
      text("variables_hash", "''::text"),
      text("project"),
    ]);
    const [row] = await put();
    expect(row).toMatchObject({ scope: "", status: "accepted", sent_at: null, variables_hash: "" });
    await expect(put({ id: row?.id })).rejects.toThrow(/deliveries_pkey/);
    await expect(put({ idempotency: row?.idempotency })).rejects.toThrow(
      /deliveries_target_scope_idempotency_key/,
    );
    await put({ idempotency: row?.idempotency, scope: "elsewhere" });
  });

  it("takes the six status words, and times in RFC 3339 UTC only", async () => {
    const { put } = await ledgerTable();
    for (const status of LEDGER_STATUSES) await put({ status });
    await expect(put({ status: "done" })).rejects.toThrow(/deliveries_status_check/);
    for (const created_at of ["2026-09-11T09:44:20Z", "2026-12-31T23:59:59.123456Z"])
      await put({ created_at });
    for (const created_at of [
      "2026-09-11 09:44:20Z",
      "2026-09-11T09:44:20",
      "2026-09-11T09:44:20+02:00",
      "2026-13-11T09:44:20Z",
      "2026-09-11T24:44:20Z",
      "2026-09-11T09:44:20.Z",
      "yesterday",
      "",
    ]) {
      await expect(put({ created_at }), created_at).rejects.toThrow(/deliveries_created_at_rfc3339/);
      await expect(put({ status: "sent", sent_at: created_at }), created_at).rejects.toThrow(
        /deliveries_sent_at_rfc3339/,
      );
    }
    for (const status of ["accepted", "unconfirmed", "settled"]) {
      await expect(put({ status, sent_at: "2026-09-11T09:44:20Z" })).rejects.toThrow(
        /deliveries_sent_at_attested/,
      );
    }
  });

  it("lets a status follow another where the documentation's table says so", async () => {
    const { query, put } = await ledgerTable();
    const follows: Record<string, string[]> = {
      accepted: ["sent", "confirmed", "contradicted"],
      sent: ["confirmed", "contradicted"],
      confirmed: ["contradicted"],
      contradicted: ["confirmed"],
      unconfirmed: ["accepted", "settled"],
      settled: ["sent", "confirmed", "contradicted"],
    };
    for (const before of LEDGER_STATUSES) {
      for (const after of LEDGER_STATUSES) {
        const [row] = await put({ status: before });
        const move = query("UPDATE {table} SET status = $2 WHERE id = $1", [row?.id, after]);
        if (before === after || follows[before]?.includes(after)) await move;
        else {
          await expect(move, `${before} to ${after}`).rejects.toMatchObject({
            code: "23514",
            constraint: "deliveries_status_follows",
            message: `a delivery that is ${before} cannot become ${after}`,
          });
        }
      }
    }
    const [attested] = await put({ status: "sent", sent_at: "2026-09-11T09:44:21Z" });
    // A new send of other variables, be the clock behind by then.
    await query(
      `UPDATE {table} SET id = 'another', status = 'accepted', sent_at = NULL, created_at = '2026-09-10T00:00:00.000Z'
       WHERE id = $1`,
      [attested?.id],
    );
  });
});

describe("a notification that was accepted", () => {
  async function accepted(ledgerRun: string | undefined) {
    const bench = await engineBench({ leaseMs: 10_000, ledgerRun });
    const endpointId = await bench.endpoint("/");
    await bench.owe([signal(1n), signal(2n), signal(3n)], room(0));
    const { claims } = await bench.deliveries.claim(room());
    const outcomes = claims.map(({ deliveryId, lease, news }, n) => ({
      ...{ deliveryId, lease, news },
      verdict: n === 2 ? ("parked" as const) : ("delivered" as const),
      ...(n === 2 ? { status: 410, error: "destination refused with 410" } : { status: 204 }),
    }));
    const rows = () =>
      bench.db.query<Record<string, unknown>>(
        `SELECT * FROM ${bench.namespace.sql}.deliveries ORDER BY idempotency`,
      );
    return { bench, endpointId, claims, outcomes, rows };
  }

  it("is in the ledger with its outcome, once, and under the id its receiver knows", async () => {
    const { bench, endpointId, claims, outcomes, rows } = await accepted("run-7");
    // Recorded twice, where the first answer got lost.
    expect(await bench.record(outcomes)).toBe(3);
    expect(await bench.record(outcomes)).toBe(3);
    const expected = claims.slice(0, 2).map(({ deliveryId, news }) => ({
      id: deliveryId,
      identity_id: "p1",
      target: "https/notification",
      scope: endpointId,
      idempotency: String(news.formedThrough),
      run_id: "run-7",
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      status: "accepted",
      sent_at: null,
      variables_hash: variablesHash({
        version: "taisce-notification/v1",
        scope: "p1",
        formed_through: news.formedThrough,
        stored_through: news.storedThrough,
        parked_turns: 0,
        occurred_at: news.occurredAt,
      }),
      project: "p1",
    }));
    expect(await rows()).toEqual(expected);
  });

  it("is not where its claim had ended, and not where the setting is off", async () => {
    const late = await accepted("run-7");
    await late.bench.disable(late.endpointId);
    expect(await late.bench.record(late.outcomes)).toBe(0);
    expect(await late.rows()).toEqual([]);
    const off = await accepted(undefined);
    expect(await off.bench.record(off.outcomes)).toBe(3);
    expect(await off.rows()).toEqual([]);
  });

  it("costs no statement more", async () => {
    const { bench, outcomes } = await accepted(undefined);
    let statements = 0;
    const counting = {
      query: (...call: Parameters<typeof bench.db.query>) => {
        statements++;
        return bench.db.query(...call);
      },
    } as typeof bench.db;
    const deliveries = new Deliveries(counting, bench.namespace, {
      ...{ leaseMs: 1_000, maxAttempts: 3, ledgerRun: "run-8" },
    });
    await deliveries.record(outcomes);
    expect(statements).toBe(1);
  });
});
