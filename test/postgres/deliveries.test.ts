// The statements of the delivery engine: owed once, claimed under a lease, ended exactly once.
import { describe, expect, it } from "vitest";
import { type Claim, Deliveries } from "../../src/notifications/deliveries.ts";
import { originOf } from "../../src/notifications/origins.ts";
import { engineBench, room, signal } from "../support/engine.ts";
import { until } from "../support/until.ts";

describe("owing", () => {
  it("writes one delivery an endpoint and watermark, claimed as far as there is room", async () => {
    const bench = await engineBench();
    for (const path of ["/a", "/b", "/c"]) await bench.endpoint(path);
    const first = await bench.owe([signal(5n)], room(2));
    expect(first.claims.map(({ attempts, lease, news }) => [attempts, lease, news.formedThrough])).toEqual([
      [1, 1, 5n],
      [1, 1, 5n],
    ]);
    expect(first).toMatchObject({ left: 1, written: 3 });
    expect(await bench.owe([signal(5n)], room())).toMatchObject({
      claims: [],
      left: 0,
      written: 0,
    });
    expect((await bench.deliveries.claim(room())).claims.length).toBe(1);
  });

  it("holds to the room of each endpoint", async () => {
    const bench = await engineBench();
    const busy = await bench.endpoint("/busy");
    const free = await bench.endpoint("/free");
    const signals = [1n, 2n, 3n, 4n].map((offset) => signal(offset));
    const owed = await bench.owe(signals, room(100, 2, [{ endpointId: busy, room: 0 }]));
    expect(owed.claims.map(({ endpointId }) => endpointId)).toEqual([free, free]);
    expect(owed).toMatchObject({ left: 6, written: 8 });
  });

  it("leaves alone the endpoints of a full origin but those that have room of their own", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    const known = await bench.endpoint(":8443/known");
    const other = await bench.endpoint(":8443/other");
    const elsewhere = await bench.endpoint("/other");
    const given = {
      ...room(10, 1, [{ endpointId: known, room: 3 }]),
      fullOrigins: [originOf("https://localhost:8443/any")],
    };
    const by = (claims: Claim[]) => claims.map(({ endpointId }) => endpointId).sort();
    expect(by((await bench.owe([signal(1n)], given)).claims)).toEqual([known, elsewhere].sort());
    await bench.owe([signal(2n), signal(3n)], room(0));
    expect(by((await bench.deliveries.claim(given)).claims)).toEqual([known, known, elsewhere].sort());
    expect((await bench.deliveries.claim({ ...given, busy: [], perEndpoint: 0 })).claims).toEqual([]);
    const { claims } = await bench.deliveries.claim({ ...given, fullOrigins: [] });
    expect(by(claims)).toEqual([elsewhere, other].sort());
    // Also where its room is no more than that of those not known.
    const one = { ...given, busy: [{ endpointId: known, room: 1 }] };
    expect(by((await bench.owe([signal(4n)], one)).claims)).toEqual([known, elsewhere].sort());
    await bench.owe([signal(5n)], room(0));
    expect(by((await bench.deliveries.claim(one)).claims)).toContain(known);
  });

  it("goes on, where all are named, behind where the last such claim stopped, whatever others took since", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    const [a = "", b = ""] = [await bench.endpoint("/a"), await bench.endpoint("/b")].sort();
    await bench.owe([signal(1n), signal(2n)], room(0));
    const busy = [a, b].map((endpointId) => ({ endpointId, room: 1 }));
    const claim = async (total: number, namesAll: boolean) => {
      const { claims, looked } = await bench.deliveries.claim({ total, perEndpoint: 0, busy, namesAll });
      return { by: claims.map(({ endpointId }) => endpointId), after: looked.after, before: looked.before };
    };
    expect(await claim(1, true)).toMatchObject({ by: [a], before: a });
    expect(await claim(9, false)).toMatchObject({ by: [a, b], before: undefined });
    expect(await claim(9, true)).toEqual({ by: [b], after: a, before: undefined });
  });

  it("says of each row whose it was, also where it ended", async () => {
    const bench = await engineBench({ leaseMs: 1, maxAttempts: 1 });
    const endpointId = await bench.endpoint("/a");
    expect((await bench.owe([signal(1n)], room())).claims).toHaveLength(1);
    const ended = await until("the lease to run out", async () => {
      const due = await bench.deliveries.claim(room());
      return due.parked > 0 && due;
    });
    expect(ended).toMatchObject({ claims: [], looked: { took: [endpointId] } });
  });

  it("by several replicas that hear every signal writes each once and never deadlocks", async () => {
    const bench = await engineBench();
    for (let n = 0; n < 20; n++) await bench.endpoint(`/e${n}`);
    const replicas = [0, 1, 2, 3].map(
      () => new Deliveries(bench.db, bench.namespace, { leaseMs: 9_000, maxAttempts: 3 }),
    );
    await bench.formation.advance("p1", { formedThrough: 99n });
    const rounds = Array.from({ length: 25 }, (_, n) => BigInt(n * 4));
    const owed = await Promise.all(
      replicas.map(async (replica) => {
        const claims: string[] = [];
        for (const base of rounds) {
          const batch = [0n, 1n, 2n, 3n].map((step) => signal(base + step)).sort(() => Math.random() - 0.5);
          for (const { deliveryId } of (await replica.owe(batch, room(1_000))).claims)
            claims.push(deliveryId);
        }
        return claims;
      }),
    );
    expect(new Set(owed.flat()).size).toBe(2_000);
    expect(owed.flat().length).toBe(2_000);
  });

  it("does not believe a signal of more than the watermark says", async () => {
    const bench = await engineBench();
    await bench.endpoint("/a");
    await bench.formation.advance("p1", { formedThrough: 5n });
    expect(await bench.deliveries.owe([signal(1_000n), signal(6n)], room())).toMatchObject({ written: 0 });
    expect((await bench.deliveries.reconcile(room())).claims.map(({ news }) => news.formedThrough)).toEqual([
      5n,
    ]);
  });

  it("finds what no signal brought, once, and nothing from before the registration", async () => {
    const bench = await engineBench();
    await bench.formation.advance("p1", { formedThrough: 10n });
    await bench.endpoint("/late");
    expect(await bench.deliveries.reconcile(room())).toMatchObject({ written: 0 });
    expect(await bench.owe([signal(9n), signal(10n)], room())).toMatchObject({ written: 0 });
    await bench.formation.advance("p1", { formedThrough: 17n, storedThrough: 20n, parkedTurns: 1 });
    const [claim] = (await bench.deliveries.reconcile(room())).claims;
    expect(claim?.news).toMatchObject({ formedThrough: 17n, storedThrough: 20n, parkedTurns: 1 });
    const [row] = await bench.db.query<{ formed_turns: number }>(
      `SELECT formed_turns FROM ${bench.namespace.sql}.notification_delivery`,
    );
    expect(row?.formed_turns).toBe(7);
    expect(await bench.deliveries.reconcile(room())).toMatchObject({ written: 0 });
  });

  it("stamps when the watermark advanced, not when it was found", async () => {
    const bench = await engineBench();
    await bench.endpoint("/a");
    await bench.formation.advance("p1", { formedThrough: 1n });
    await bench.db.query(
      `UPDATE ${bench.namespace.sql}.watermark SET advanced_at = '2026-09-11T09:44:20.987Z' WHERE scope = 'p1'`,
    );
    const [claim] = (await bench.deliveries.reconcile(room())).claims;
    expect(claim?.news.occurredAt).toBe("2026-09-11T09:44:20Z");
  });
});

describe("claiming", () => {
  it("takes a little from every endpoint rather than the oldest overall, and all get their turn", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    const crowded = await bench.endpoint("/crowded");
    await bench.owe(
      Array.from({ length: 50 }, (_, n) => signal(BigInt(n))),
      room(0),
    );
    const others = [await bench.endpoint("/x"), await bench.endpoint("/y"), await bench.endpoint("/z")];
    await bench.owe([signal(100n)], room(0));
    const { claims, more } = await bench.deliveries.claim(room(10, 4));
    const counts = new Map<string, number>();
    for (const { endpointId } of claims) counts.set(endpointId, (counts.get(endpointId) ?? 0) + 1);
    expect(counts.get(crowded)).toBe(4);
    for (const other of others) expect(counts.get(other)).toBe(1);
    expect(more).toBe(false);
  });

  it("starts behind where the last claim ended, so that a small room starves nobody", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    for (let n = 0; n < 6; n++) await bench.endpoint(`/e${n}`);
    await bench.owe(
      Array.from({ length: 5 }, (_, n) => signal(BigInt(n))),
      room(0),
    );
    const seen: string[] = [];
    for (let n = 0; n < 6; n++) {
      for (const { endpointId } of (await bench.deliveries.claim(room(1, 1))).claims) seen.push(endpointId);
    }
    expect(new Set(seen).size).toBe(6);
  });

  it("never takes more than it has room for, nor one row twice, with several at it", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    for (let n = 0; n < 10; n++) await bench.endpoint(`/e${n}`);
    await bench.owe(
      Array.from({ length: 30 }, (_, n) => signal(BigInt(n))),
      room(0),
    );
    const replicas = [0, 1, 2, 3].map(
      () => new Deliveries(bench.db, bench.namespace, { leaseMs: 60_000, maxAttempts: 3 }),
    );
    const taken: string[] = [];
    await until("all 300 to be claimed", async () => {
      const dues = await Promise.all(replicas.map((replica) => replica.claim(room(7, 3))));
      for (const { claims } of dues) {
        expect(claims.length).toBeLessThanOrEqual(7);
        taken.push(...claims.map(({ deliveryId }) => deliveryId));
      }
      return taken.length >= 300;
    });
    expect(new Set(taken).size).toBe(300);
    expect(taken.length).toBe(300);
  });

  it("finds a claim whose lease ran out, and parks it as unrecorded once its attempts are spent", async () => {
    const bench = await engineBench({ leaseMs: 1, maxAttempts: 2 });
    await bench.endpoint("/a");
    await bench.owe([signal(1n)], room());
    const again = await until(
      "the lease to run out",
      async () => (await bench.deliveries.claim(room())).claims[0],
    );
    expect(again).toMatchObject({ attempts: 2, lease: 2 });
    await until("parking", async () => (await bench.deliveries.claim(room())).parked === 1);
    expect(await bench.states()).toEqual([
      { formed_through: 1n, state: "parked", attempts: 2, last_error: "unrecorded", last_status: null },
    ]);
  });

  it("says how long until something is due", async () => {
    const bench = await engineBench();
    expect(await bench.deliveries.nextDueMs("-infinity")).toBeUndefined();
    await bench.endpoint("/a");
    const [claim] = (await bench.owe([signal(1n)], room())).claims;
    if (claim === undefined) throw new Error("nothing was claimed");
    const { deliveryId, lease } = claim;
    await bench.record([{ deliveryId, lease, verdict: "retry", error: "timeout", waitMs: 60_000 }]);
    const wait = (await bench.deliveries.nextDueMs("-infinity")) ?? 0;
    expect(wait).toBeGreaterThan(50_000);
    expect(wait).toBeLessThanOrEqual(60_000);
  });
});

describe("claims of known endpoints only", () => {
  it("do not set those of all endpoints back to the start", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    const ids: string[] = [];
    for (let n = 0; n < 6; n++) ids.push(await bench.endpoint(`/${n}`));
    ids.sort();
    for (let n = 1n; n <= 4n; n++) await bench.owe([signal(n)], room(0));
    const seen = new Set<string>();
    for (let n = 0; n < 4; n++) {
      const { claims } = await bench.deliveries.claim(room(2, 1));
      for (const { endpointId } of claims) seen.add(endpointId);
      await bench.deliveries.claim(room(2, 0, [{ endpointId: ids[0] ?? "", room: 1 }]));
    }
    expect([...seen].sort()).toEqual(ids);
  });
});

describe("recording", () => {
  it("says again that it recorded what it did, where nobody heard it say so", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    await bench.endpoint("/a");
    const { claims } = await bench.owe([signal(1n)], room());
    const { claims: more } = await bench.owe([signal(2n)], room());
    const [delivered, retried] = [...claims, ...more].map(({ deliveryId, lease }) => ({ deliveryId, lease }));
    if (delivered === undefined || retried === undefined) throw new Error("nothing was claimed");
    const outcomes = [
      { ...delivered, verdict: "delivered" as const, status: 204 },
      { ...retried, verdict: "retry" as const, error: "timeout", waitMs: 60_000 },
    ];
    expect(await bench.record(outcomes)).toBe(2);
    const before = await bench.states();
    expect(await bench.record(outcomes)).toBe(2);
    expect(await bench.record([{ ...delivered, verdict: "parked", error: "timeout" }])).toBe(0);
    expect(await bench.states()).toEqual(before);
  });

  it("changes nothing for a claim that lost its lease", async () => {
    const bench = await engineBench({ leaseMs: 1 });
    await bench.endpoint("/a");
    const [stale] = (await bench.owe([signal(1n)], room())).claims;
    const held = await until(
      "the lease to run out",
      async () => (await bench.deliveries.claim(room())).claims[0],
    );
    const { deliveryId } = held;
    expect(
      await bench.record([{ deliveryId, lease: stale?.lease ?? 0, verdict: "delivered", status: 200 }]),
    ).toBe(0);
    expect((await bench.states())[0]).toMatchObject({ state: "claimed" });
    expect(await bench.record([{ deliveryId, lease: held.lease, verdict: "delivered", status: 204 }])).toBe(
      1,
    );
    expect(await bench.record([{ deliveryId, lease: held.lease, verdict: "parked", error: "timeout" }])).toBe(
      0,
    );
    expect((await bench.states())[0]).toMatchObject({ state: "delivered", last_status: 204, attempts: 2 });
  });

  it("leaves out a row that somebody holds, says so, and does not wait for it", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    await bench.endpoint("/a");
    const { claims } = await bench.owe([signal(1n), signal(2n)], room());
    const outcomes = claims.map(({ deliveryId, lease }) => ({
      deliveryId,
      lease,
      verdict: "delivered" as const,
      status: 200,
    }));
    await bench.db.transaction(async (holder) => {
      await holder.query(
        `SELECT FROM ${bench.namespace.sql}.notification_delivery WHERE delivery_id = $1 FOR UPDATE`,
        [claims[0]?.deliveryId],
      );
      const { recorded, locked } = await bench.deliveries.record(outcomes);
      expect([...recorded]).toEqual([claims[1]?.deliveryId]);
      expect([...locked]).toEqual([claims[0]?.deliveryId]);
    });
    expect((await bench.deliveries.record(outcomes.slice(0, 1))).recorded.size).toBe(1);
    expect((await bench.states()).map(({ state }) => state)).toEqual(["delivered", "delivered"]);
  });

  it("gives a released claim back, due at once and uncounted, under a new lease", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    await bench.endpoint("/a");
    const [claim] = (await bench.owe([signal(1n)], room())).claims;
    if (claim === undefined) throw new Error("nothing was claimed");
    const released = { deliveryId: claim.deliveryId, lease: claim.lease, verdict: "released" as const };
    for (const _ of ["once", "and again"]) expect(await bench.record([released])).toBe(1);
    expect((await bench.deliveries.claim(room())).claims[0]).toMatchObject({ attempts: 1, lease: 2 });
  });

  it("puts a retry off by the wait it is given, on the database's clock", async () => {
    const bench = await engineBench();
    await bench.endpoint("/a");
    const [claim] = (await bench.owe([signal(1n)], room())).claims;
    if (claim === undefined) throw new Error("nothing was claimed");
    const { deliveryId, lease } = claim;
    await bench.record([
      { deliveryId, lease, verdict: "retry", status: 503, error: "destination answered 503", waitMs: 80_000 },
    ]);
    expect(await bench.deliveries.claim(room())).toMatchObject({ claims: [], more: false });
    const wait = (await bench.deliveries.nextDueMs("-infinity")) ?? 0;
    expect(wait).toBeGreaterThan(70_000);
    expect(wait).toBeLessThanOrEqual(80_000);
    expect((await bench.states())[0]).toMatchObject({
      state: "pending",
      last_error: "destination answered 503",
    });
  });
});

describe("an endpoint that is disabled", () => {
  it("ends what is pending as superseded, and an outcome on the way changes nothing", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    const id = await bench.endpoint("/a");
    const { claims } = await bench.owe([signal(1n), signal(2n)], room(1));
    expect(await bench.disable(id)).toBe(true);
    expect((await bench.states()).map(({ state }) => state)).toEqual(["superseded", "superseded"]);
    const [claim] = claims;
    expect(
      await bench.record([
        { deliveryId: claim?.deliveryId ?? "", lease: claim?.lease ?? 0, verdict: "delivered", status: 200 },
      ]),
    ).toBe(0);
    expect(await bench.owe([signal(3n)], room())).toMatchObject({ written: 0 });
    expect(await bench.deliveries.claim(room())).toMatchObject({ claims: [] });
    expect(await bench.deliveries.nextDueMs("-infinity")).toBeUndefined();
  });

  it("has a row superseded that was being owed in the same moment", async () => {
    const bench = await engineBench();
    const id = await bench.endpoint("/a");
    await bench.owe([signal(1n)], room(0));
    // As an owing statement leaves it that read the endpoint just before the disabling committed.
    await bench.db.query(
      `UPDATE ${bench.namespace.sql}.notification_endpoint SET disabled_at = now() WHERE endpoint_id = $1`,
      [id],
    );
    expect(await bench.deliveries.claim(room())).toMatchObject({ claims: [], superseded: 1 });
    expect((await bench.states())[0]).toMatchObject({ state: "superseded", attempts: 0 });
  });
});

describe("an endpoint that is registered anew", () => {
  it("is not sent what was owed to it before", async () => {
    const bench = await engineBench();
    const id = await bench.endpoint("/a");
    await bench.owe([signal(1n)], room(0));
    const { deliveries } = bench;
    await bench.disable(id);
    // As an owing statement leaves it that read the endpoint just before the disabling committed.
    await bench.db.query(
      `UPDATE ${bench.namespace.sql}.notification_delivery SET superseded_at = NULL, next_attempt_at = now()`,
    );
    expect(await bench.endpoint("/a")).toBe(id);
    await bench.db.query(
      `UPDATE ${bench.namespace.sql}.notification_delivery SET superseded_at = NULL, next_attempt_at = now()`,
    );
    expect(await deliveries.claim(room())).toMatchObject({ claims: [], superseded: 1 });
  });
});

describe("retention", () => {
  it("deletes what ended long ago, and never the newest of an endpoint, so that nothing is owed again", async () => {
    const bench = await engineBench({ leaseMs: 60_000 });
    await bench.endpoint("/a");
    const { claims } = await bench.owe([signal(1n), signal(2n), signal(3n)], room());
    await bench.record(
      claims.map(({ deliveryId, lease }) => ({
        deliveryId,
        lease,
        verdict: "delivered" as const,
        status: 200,
      })),
    );
    await bench.owe([signal(4n)], room(0));
    await bench.formation.advance("p1", { formedThrough: 4n });
    expect(await bench.deliveries.expire(60_000, 100)).toBe(0);
    expect(await until("three to be old", async () => bench.deliveries.expire(1, 100), 1_000)).toBe(3);
    expect((await bench.states()).map(({ formed_through: offset }) => offset)).toEqual([4n]);
    expect(await bench.deliveries.reconcile(room())).toMatchObject({ written: 0 });
  });
});
