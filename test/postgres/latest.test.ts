// Endpoints that want the latest only: what is superseded, and how their back-off is kept, statement by statement.
import { describe, expect, it } from "vitest";
import { engineBench, room, signal } from "../support/engine.ts";
import { until } from "../support/until.ts";

describe("deliver: latest", () => {
  it("supersedes older pending deliveries as soon as a newer watermark is owed", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    await bench.endpoint("/latest", "latest");
    await bench.endpoint("/every");
    await bench.owe([signal(1n)], room(0));
    await bench.owe([signal(2n)], room(0));
    await bench.owe([signal(3n), signal(4n)], room(0));
    const rows = await bench.db.query<{ url: string; state: string }>(
      `SELECT e.url, CASE WHEN d.superseded_at IS NULL THEN 'pending' ELSE 'superseded' END AS state
       FROM ${bench.namespace.sql}.notification_delivery d JOIN ${bench.namespace.sql}.notification_endpoint e USING (endpoint_id)
       ORDER BY e.url, d.formed_through`,
    );
    const of = (path: string) => rows.filter(({ url }) => url.endsWith(path)).map(({ state }) => state);
    expect(of("/latest")).toEqual(["superseded", "superseded", "superseded", "pending"]);
    expect(of("/every")).toEqual(["pending", "pending", "pending", "pending"]);
  });

  it("is owed by a statement of its own, after the endpoints that want every advance", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    const latest = await bench.endpoint("/latest", "latest");
    const every = await bench.endpoint("/every");
    await bench.formation.advance("p1", { formedThrough: 1n });
    const owed = await bench.deliveries.owe([signal(1n)], room());
    expect(owed).toMatchObject({ claims: [{ endpointId: every }], written: 1, more: true });
    const rest = await bench.deliveries.oweLatest([signal(1n)], room());
    expect(rest).toMatchObject({ claims: [{ endpointId: latest, latest: true }], written: 1, more: false });
    expect(await bench.deliveries.owe([signal(1n)], room())).toMatchObject({ written: 0, more: true });
  });

  it("lets what is under way finish, and does not retry it once newer news is owed", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    await bench.endpoint("/latest", "latest");
    const [old] = (await bench.owe([signal(1n)], room())).claims;
    await bench.owe([signal(2n)], room(0));
    expect((await bench.states()).map(({ state }) => state)).toEqual(["claimed", "pending"]);
    await bench.record([
      {
        deliveryId: old?.deliveryId ?? "",
        lease: old?.lease ?? 0,
        verdict: "retry",
        error: "timeout",
        waitMs: 0,
      },
    ]);
    expect((await bench.states())[0]).toMatchObject({
      state: "superseded",
      attempts: 1,
      last_error: "timeout",
    });
    const due = await bench.deliveries.claim(room());
    expect(due.claims.map(({ news }) => news.formedThrough)).toEqual([2n]);
  });

  it("does not try again what a dead process left under way once newer news is owed", async () => {
    const bench = await engineBench({ leaseMs: 1 });
    await bench.endpoint("/latest", "latest");
    await bench.owe([signal(1n)], room());
    await bench.owe([signal(2n)], room(0));
    const due = await until("the lease to run out", async () => {
      const claimed = await bench.deliveries.claim(room());
      return claimed.superseded > 0 && claimed;
    });
    expect(due.superseded).toBe(1);
    expect((await bench.states())[0]).toMatchObject({ state: "superseded", attempts: 1 });
  });

  it("keeps a late signal for an older watermark as superseded", async () => {
    const bench = await engineBench();
    await bench.endpoint("/latest", "latest");
    await bench.owe([signal(9n)], room());
    expect((await bench.owe([signal(8n)], room())).claims).toEqual([]);
    expect((await bench.states()).map(({ state }) => state)).toEqual(["superseded", "claimed"]);
  });
});

describe("an endpoint that wants the latest and fails", () => {
  const due = (bench: Awaited<ReturnType<typeof engineBench>>) =>
    bench.db.query<{ offset: bigint; carried: number; wait: number; state: string }>(
      `SELECT formed_through AS offset, carried_attempts AS carried,
              round(extract(epoch FROM next_attempt_at - now()))::integer AS wait,
              CASE WHEN superseded_at IS NOT NULL THEN 'superseded' WHEN lease_until IS NOT NULL THEN 'claimed'
                   ELSE 'pending' END AS state
       FROM ${bench.namespace.sql}.notification_delivery WHERE superseded_at IS NULL ORDER BY formed_through`,
    );

  it("is tried no sooner for an advance, which takes over how often it failed", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    const endpointId = await bench.endpoint("/a", "latest");
    const [first] = (await bench.owe([signal(1n)], room())).claims;
    if (first === undefined) throw new Error("nothing was claimed");
    const { deliveryId, lease } = first;
    await bench.record([{ deliveryId, lease, verdict: "retry", error: "timeout", waitMs: 80_000 }]);
    // Nothing is left that a sweep would find now, either.
    for (const offset of [2n, 3n])
      expect(await bench.owe([signal(offset)], room())).toMatchObject({ claims: [], left: 0, written: 1 });
    // Two of one project together go by the other statement.
    expect((await bench.owe([signal(4n), signal(5n)], room())).claims).toEqual([]);
    expect(await due(bench)).toEqual([{ offset: 5n, carried: 1, wait: 80, state: "pending" }]);
    expect(await bench.deliveries.claim(room())).toMatchObject({ claims: [] });
    await bench.deliveries.passOn([{ endpointId, formedThrough: 4n, carried: 0, waitMs: 0 }]);
    expect((await bench.deliveries.claim(room())).claims).toMatchObject([{ carried: 0, latest: true }]);
  });

  it("has an advance wait for the attempt under way, and go by what comes of it", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    const endpointId = await bench.endpoint("/a", "latest");
    const [first] = (await bench.owe([signal(1n)], room())).claims;
    await bench.record([
      { deliveryId: first?.deliveryId ?? "", lease: 1, verdict: "retry", error: "timeout", waitMs: 0 },
    ]);
    const [again] = (await bench.deliveries.claim(room())).claims;
    if (again === undefined) throw new Error("nothing was claimed");
    expect((await bench.owe([signal(2n)], room())).claims).toEqual([]);
    expect(await due(bench)).toMatchObject([
      { offset: 1n, state: "claimed" },
      { offset: 2n, carried: 1, wait: 60, state: "pending" },
    ]);
    const { deliveryId, lease } = again;
    await bench.record([{ deliveryId, lease, verdict: "retry", error: "timeout", waitMs: 160_000 }]);
    await bench.deliveries.passOn([{ endpointId, formedThrough: 1n, carried: 2, waitMs: 160_000 }]);
    expect(await due(bench)).toEqual([{ offset: 2n, carried: 2, wait: 160, state: "pending" }]);
  });

  it("has one row waiting also where a retry is recorded while newer news is being owed", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    const endpointId = await bench.endpoint("/a", "latest");
    const [first] = (await bench.owe([signal(1n)], room())).claims;
    await bench.owe([signal(2n)], room(0));
    // As if the second had come after the look of the statement that recorded the first.
    await bench.db.query(
      `UPDATE ${bench.namespace.sql}.notification_delivery SET lease_until = NULL, next_attempt_at = now() + interval '5 s'
       WHERE delivery_id = '${first?.deliveryId}'`,
    );
    await bench.deliveries.passOn([{ endpointId, formedThrough: 1n, carried: 1, waitMs: 5_000 }]);
    expect(await due(bench)).toEqual([{ offset: 2n, carried: 1, wait: 5, state: "pending" }]);
  });

  it("is parked after as many requests in all", async () => {
    const bench = await engineBench({ leaseMs: 1 });
    await bench.endpoint("/a", "latest");
    await bench.owe([signal(1n)], room());
    await bench.db.query(`UPDATE ${bench.namespace.sql}.notification_delivery SET carried_attempts = 2`);
    // Its process died: by now it has had its three.
    const parked = await until("the lease to run out", async () => {
      const claimed = await bench.deliveries.claim(room());
      return claimed.parked > 0 && claimed;
    });
    expect(parked.claims).toEqual([]);
  });
});
