// When the sweeper wakes, with every statement's timing under the test's control.
import { afterEach, describe, expect, it } from "vitest";
import type { Claim, Due, Room } from "../../../src/notifications/deliveries.ts";
import { Sweeper } from "../../../src/notifications/sweeper.ts";
import { quiet } from "../../support/quiet.ts";
import { until } from "../../support/until.ts";

const NOTHING: Due = {
  claims: [],
  looked: { after: "", before: undefined, took: [] },
  parked: 0,
  superseded: 0,
  more: false,
  lookedAt: "infinity",
};
const claimOf = (endpointId: string) => ({ endpointId }) as Claim;

let stop: (() => Promise<void>) | undefined;
afterEach(async () => {
  await stop?.();
  stop = undefined;
});

/** A sweeper over a scripted room and scripted claims; `claims` counts the statements. */
function scripted(script: {
  room: () => Room;
  claim?: () => Promise<Due>;
  nextDueMs?: () => Promise<number | undefined>;
}) {
  const seen = { claims: 0 };
  const sweeper = new Sweeper({
    deliveries: {
      claim: () => {
        seen.claims++;
        return script.claim?.() ?? Promise.resolve(NOTHING);
      },
      nextDueMs: script.nextDueMs ?? (async () => undefined),
    },
    dispatcher: {
      get hungry() {
        return script.room().total > 0;
      },
      isHungry: () => true,
      takesUnproven: true,
      fill: (claim) => claim(script.room()) as never,
    },
    ...quiet(),
  });
  stop = () => sweeper.stop();
  sweeper.start();
  return { sweeper, seen };
}

const free: Room = { total: 10, perEndpoint: 4, busy: [] };

describe("the sweeper", () => {
  it("sleeps until the next delivery is due", async () => {
    let due: number | undefined = 60;
    const { seen } = scripted({
      room: () => free,
      nextDueMs: async () => {
        const wait = due;
        due = undefined;
        return wait;
      },
    });
    await until("the first claim", () => seen.claims === 1);
    await until("the claim when it is due", () => seen.claims === 2, 1_000);
  });

  it("wakes for a retry that was written while it was looking", async () => {
    const look = Promise.withResolvers<Due>();
    let looks = 0;
    const { sweeper, seen } = scripted({
      room: () => free,
      claim: () => (looks++ === 0 ? look.promise : Promise.resolve(NOTHING)),
    });
    await until("the first claim", () => seen.claims === 1);
    sweeper.wakeIn(30);
    look.resolve(NOTHING);
    await until("the claim for the retry", () => seen.claims === 2, 1_000);
  });

  it("is not put off by a retry that is due later than what it sleeps for", async () => {
    let due: number | undefined = 80;
    const { sweeper, seen } = scripted({
      room: () => free,
      nextDueMs: async () => {
        const wait = due;
        due = undefined;
        return wait;
      },
    });
    await until("the first claim", () => seen.claims === 1);
    await new Promise((resolve) => setTimeout(resolve, 10));
    sweeper.wakeIn(3_000);
    await until("the claim when it is due", () => seen.claims === 2, 1_000);
  });

  it("does not oversleep a delivery that falls due while it is looking", async () => {
    const dueAt = performance.now() + 60;
    const { seen } = scripted({
      room: () => free,
      // Nothing is due when the statement looks, and it answers only after the delivery fell due.
      claim: async () => {
        await new Promise((resolve) => setTimeout(resolve, 80));
        return NOTHING;
      },
      // It was not due when the statement looked, so it is what to wait for, also where it is due by now.
      nextDueMs: async () => dueAt - performance.now(),
    });
    await until("the claim for it", () => seen.claims === 2, 1_000);
  });

  it("claims at once when room comes free after it found none", async () => {
    let total = 0;
    const { sweeper, seen } = scripted({ room: () => ({ ...free, total }) });
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(seen.claims).toBe(0);
    total = 5;
    sweeper.onRoom("e1");
    await until("a claim", () => seen.claims === 1, 1_000);
  });

  it("claims again when a saturated endpoint's room came free during the statement", async () => {
    let busy = true;
    const claiming = Promise.withResolvers<Due>();
    const { sweeper, seen } = scripted({
      room: () => ({ ...free, busy: busy ? [{ endpointId: "e1", room: 0 }] : [] }),
      claim: () => (busy ? claiming.promise : Promise.resolve(NOTHING)),
    });
    await until("the first claim", () => seen.claims === 1);
    busy = false;
    sweeper.onRoom("e1");
    claiming.resolve(NOTHING);
    await until("the next claim", () => seen.claims === 2, 1_000);
  });

  it("does not look again for room that was set aside and that it had no want of", async () => {
    const claiming = Promise.withResolvers<Due>();
    const { sweeper, seen } = scripted({ room: () => free, claim: () => claiming.promise });
    await until("the first claim", () => seen.claims === 1);
    sweeper.onRoom();
    claiming.resolve(NOTHING);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(seen.claims).toBe(1);
  });

  it("does not spin while an endpoint stays saturated and others come and go", async () => {
    const { sweeper, seen } = scripted({
      room: () => ({ ...free, busy: [{ endpointId: "hung", room: 0 }] }),
      claim: async () => ({ ...NOTHING, claims: [claimOf("other")] }),
    });
    await until("the first claim", () => seen.claims === 1);
    for (let n = 0; n < 20; n++) {
      sweeper.onRoom("other");
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    expect(seen.claims).toBe(1);
  });

  it("asks a database that is down no faster, however much room comes free", async () => {
    const { sweeper, seen } = scripted({
      room: () => ({ ...free, busy: [{ endpointId: "e1", room: 0 }] }),
      claim: async () => {
        throw new Error("no connection");
      },
    });
    await until("the first claim", () => seen.claims === 1);
    for (let n = 0; n < 50; n++) {
      sweeper.onRoom("e1");
      sweeper.wake();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect(seen.claims).toBe(1);
  });

  it("goes on after an error", async () => {
    let fail = true;
    const { seen } = scripted({
      room: () => free,
      claim: async () => {
        if (!fail) return NOTHING;
        fail = false;
        throw new Error("no connection");
      },
    });
    await until("another claim", () => seen.claims === 2, 3_000);
  });
});
