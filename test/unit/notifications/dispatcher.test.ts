// The dispatcher's room: in all, for each endpoint, and for one that keeps failing.
import { createSecretKey } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { Outcome as SendOutcome } from "../../../src/egress/index.ts";
import type { Claim, Outcome, Room } from "../../../src/notifications/deliveries.ts";
import { Dispatcher } from "../../../src/notifications/dispatcher.ts";
import { quiet } from "../../support/quiet.ts";
import { until } from "../../support/until.ts";

const ACCEPTED: SendOutcome = { kind: "accepted", status: 200 };
const UNAVAILABLE: SendOutcome = {
  kind: "failed",
  category: "destination answered 503",
  status: 503,
  retryable: true,
};

let ids = 0;
const claimOf = (endpointId: string, attempts = 1, more: Partial<Claim> = {}): Claim => ({
  deliveryId: `00000000-0000-4000-8000-${String(ids++).padStart(12, "0")}`,
  endpointId,
  url: "https://localhost/",
  key: createSecretKey(Buffer.alloc(32)),
  attempts,
  carried: 0,
  latest: false,
  lease: 1,
  databaseMs: 1_789_128_260_000,
  claimedAt: performance.now(),
  news: {
    scope: "p1",
    formedThrough: 1n,
    storedThrough: 1n,
    parkedTurns: 0,
    occurredAt: "2026-09-11T09:44:20Z",
  },
  ...more,
});

/** A dispatcher whose attempts end when the test says so. */
function controlled(options: { concurrency?: number; maxAttempts?: number } = {}) {
  const sends: { end: (outcome: SendOutcome) => void }[] = [];
  const outcomes: Outcome[] = [];
  const freed: string[] = [];
  const dispatcher = new Dispatcher({
    sender: {
      post: () => new Promise((resolve) => sends.push({ end: resolve })),
      abort: () => {
        for (const { end } of sends) end({ kind: "aborted" });
      },
    },
    recorder: { add: (outcome) => outcomes.push(outcome) },
    concurrency: options.concurrency ?? 10,
    endpointConcurrency: 4,
    maxAttempts: options.maxAttempts ?? 6,
    backoffMs: 5_000,
    onRoom: (endpointId) => freed.push(endpointId),
    ...quiet(),
  });
  const fill = (...claims: Claim[]) => dispatcher.fill(async () => ({ claims }));
  /** The room that a claiming statement would be given now. */
  const room = () => {
    const given: Room[] = [];
    void dispatcher.fill(async (free) => {
      given.push(free);
      return { claims: [] };
    });
    return given[0] as Room;
  };
  return { dispatcher, sends, outcomes, freed, fill, room };
}

describe("the dispatcher", () => {
  it("never makes more attempts to one endpoint than its cap, also where statements overlapped", async () => {
    const { dispatcher, sends, outcomes, fill, room } = controlled({ concurrency: 20 });
    // It has answered once, not quickly.
    await fill(claimOf("e1"));
    await new Promise((resolve) => setTimeout(resolve, 60));
    sends[0]?.end(ACCEPTED);
    await until("the outcome", () => outcomes.length === 1);
    const claims = () => Array.from({ length: 4 }, () => claimOf("e1"));
    const gate = Promise.withResolvers<void>();
    // Both statements looked while nothing was under way.
    const fills = [claims(), claims()].map((four) =>
      dispatcher.fill(async () => {
        await gate.promise;
        return { claims: four };
      }),
    );
    gate.resolve();
    await Promise.all(fills);
    expect(sends.length).toBe(5);
    expect(outcomes.slice(1).map(({ verdict }) => verdict)).toEqual(Array(4).fill("released"));
    expect(room()).toMatchObject({ total: 16, busy: [{ endpointId: "e1", room: 0 }] });
  });

  it("sets the total aside while a statement runs", async () => {
    const { dispatcher, room } = controlled();
    const gate = Promise.withResolvers<void>();
    const filling = dispatcher.fill(async () => {
      await gate.promise;
      return { claims: [] };
    });
    expect(room().total).toBe(0);
    gate.resolve();
    await filling;
    expect(room().total).toBe(10);
  });

  it("tries a failing endpoint with one attempt at a time until one lands", async () => {
    for (const maxAttempts of [6, 1]) {
      const { sends, outcomes, freed, fill, room } = controlled({ maxAttempts });
      await fill(claimOf("e1"));
      sends[0]?.end(UNAVAILABLE);
      await until("the outcome", () => outcomes.length === 1);
      expect(outcomes[0]?.verdict).toBe(maxAttempts === 1 ? "parked" : "retry");
      expect(room().busy).toEqual([{ endpointId: "e1", room: 1 }]);
      await fill(claimOf("e1"));
      expect(room().busy).toEqual([{ endpointId: "e1", room: 0 }]);
      sends[1]?.end(ACCEPTED);
      await until("the outcome", () => outcomes.length === 2);
      expect(room().busy).toEqual([{ endpointId: "e1", room: 4 }]);
      expect(freed).toEqual(["e1", "e1"]);
    }
  });

  it("counts what was carried over, and tells who takes a row's place, where the latest is wanted", async () => {
    const { sends, outcomes, fill } = controlled({ maxAttempts: 4 });
    const judged = async (claim: Claim, how: SendOutcome) => {
      await fill(claim);
      sends.at(-1)?.end(how);
      await until("the outcome", () => outcomes.length === sends.length);
      outcomes.at(-1)?.onSettled?.();
      return outcomes.at(-1);
    };
    const latest = { latest: true };
    const heir = { endpointId: "e1", formedThrough: 1n };
    const second = await judged(claimOf("e1", 1, { ...latest, carried: 1 }), UNAVAILABLE);
    expect(second).toMatchObject({ verdict: "retry", heir: { ...heir, carried: 2 } });
    expect(second?.waitMs).toBeGreaterThanOrEqual(10_000);
    expect(second?.heir?.waitMs).toBe(second?.waitMs);
    const last = await judged(claimOf("e1", 1, { ...latest, carried: 3 }), UNAVAILABLE);
    expect(last).toMatchObject({ verdict: "parked", heir: { ...heir, carried: 0, waitMs: 0 } });
    const landed = await judged(claimOf("e1", 1, { ...latest, carried: 3 }), ACCEPTED);
    expect(landed).toMatchObject({ verdict: "delivered", heir: { ...heir, carried: 0, waitMs: 0 } });
    expect((await judged(claimOf("e1", 1, latest), ACCEPTED))?.heir).toBeUndefined();
    expect((await judged(claimOf("e1", 2), UNAVAILABLE))?.heir).toBeUndefined();
  });

  it("gives an endpoint that wants the latest no attempt between a failure and its record", async () => {
    const { sends, outcomes, freed, fill, room } = controlled();
    await fill(claimOf("e1", 1, { latest: true }), claimOf("e2"));
    for (const { end } of sends) end(UNAVAILABLE);
    await until("the outcomes", () => outcomes.length === 2);
    expect(room().busy).toEqual(
      expect.arrayContaining([
        { endpointId: "e1", room: 0 },
        { endpointId: "e2", room: 1 },
      ]),
    );
    await fill(claimOf("e1", 1, { latest: true }));
    expect(sends.length).toBe(2);
    expect(outcomes[2]?.verdict).toBe("released");
    outcomes[0]?.onSettled?.();
    expect(freed).toEqual(["e1", "e2", "e1"]);
    await fill(claimOf("e1", 1, { latest: true }));
    expect(sends.length).toBe(3);
    expect(outcomes[1]?.onSettled).toBeUndefined();
  });

  it("while draining gives back what a late statement claims, and what does not end in time", async () => {
    const { dispatcher, sends, outcomes, fill } = controlled();
    await fill(claimOf("e1"));
    const drained = dispatcher.drain(20);
    await fill(claimOf("e2"));
    await drained;
    expect(sends.length).toBe(1);
    expect(outcomes.map(({ verdict }) => verdict)).toEqual(["released", "released"]);
  });
});
