// When the reconciler looks, with every statement's timing under the test's control.
import { afterEach, describe, expect, it } from "vitest";
import type { Owed } from "../../../src/notifications/deliveries.ts";
import { Reconciler } from "../../../src/signals/reconciler.ts";
import { quiet } from "../../support/quiet.ts";
import { until } from "../../support/until.ts";

const NOTHING: Owed = { claims: [], superseded: 0, left: 0, leftTo: [], written: 0, more: false };

let stop: (() => Promise<void>) | undefined;
afterEach(async () => {
  await stop?.();
  stop = undefined;
});

function scripted(look: () => Promise<Owed>, options: { hearing?: boolean; intervalMs?: number } = {}) {
  const seen = { looks: 0, left: 0 };
  const reconciler = new Reconciler({
    reconcile: () => {
      seen.looks++;
      return look();
    },
    onLeft: () => seen.left++,
    hearing: () => options.hearing ?? true,
    intervalMs: options.intervalMs ?? 3_600_000,
    ...quiet(),
  });
  stop = () => reconciler.stop();
  reconciler.start();
  return { reconciler, seen };
}

describe("the reconciler", () => {
  it("looks at once, again while it finds something, and then on its interval", async () => {
    const found = [
      { ...NOTHING, written: 5, left: 2 },
      { ...NOTHING, written: 1 },
    ];
    const { seen } = scripted(async () => found.shift() ?? NOTHING, { intervalMs: 100 });
    await until("the looks at the start", () => seen.looks === 3);
    expect(seen.left).toBe(1);
    await until("the look of the interval", () => seen.looks >= 4, 1_000);
  });

  it("polls every second while nobody hears, however long the interval", async () => {
    const { seen } = scripted(async () => NOTHING, { hearing: false });
    await until("the second look", () => seen.looks === 2, 2_000);
  });

  it("looks again when asked in mid-look: that one may have begun too early", async () => {
    const first = Promise.withResolvers<Owed>();
    let looks = 0;
    const { reconciler, seen } = scripted(() => (looks++ === 0 ? first.promise : Promise.resolve(NOTHING)));
    await until("the first look", () => seen.looks === 1);
    reconciler.ask();
    first.resolve(NOTHING);
    await until("the next look", () => seen.looks === 2, 1_000);
  });

  it("goes on after errors, with pauses", async () => {
    let failures = 2;
    const { seen } = scripted(async () => {
      if (failures-- > 0) throw new Error("no connection");
      return NOTHING;
    });
    await until("the look that works", () => seen.looks === 3, 5_000);
  });
});
