// How signals are gathered, with the owing statement's timing under the test's control.
import { describe, expect, it } from "vitest";
import type { Owed } from "../../../src/notifications/deliveries.ts";
import { Intake } from "../../../src/signals/intake.ts";
import type { Signal } from "../../../src/signals/signal.ts";
import { quiet } from "../../support/quiet.ts";
import { until } from "../../support/until.ts";

const payload = (scope: string, formed: number) =>
  `{"scope":"${scope}","formed_through":${formed},"stored_through":${formed},"formed_turns":1,"parked_turns":0}`;
const OWED: Owed = { claims: [], superseded: 0, left: 0, leftTo: [], written: 1, more: false };

function controlled(options: { coalesceMs?: number; owed?: Owed } = {}) {
  const batches: { signals: Signal[]; end: (error?: Error) => void }[] = [];
  const asked = { reconcile: 0, left: 0 };
  const intake = new Intake({
    owe: (signals) =>
      new Promise((resolve, reject) => {
        batches.push({ signals, end: (error) => (error ? reject(error) : resolve(options.owed ?? OWED)) });
      }),
    onLeft: () => asked.left++,
    reconcile: () => asked.reconcile++,
    coalesceMs: options.coalesceMs ?? 0,
    ...quiet(),
  });
  const batch = (index: number) => until(`batch ${index}`, () => batches[index]);
  const offsets = ({ signals }: { signals: Signal[] }) =>
    signals.map(({ formedThrough }) => Number(formedThrough));
  return { intake, batch, batches, asked, offsets };
}

describe("the intake", () => {
  it("owes the first signal at once and what arrives meanwhile together", async () => {
    const { intake, batch, batches, offsets } = controlled();
    intake.take(payload("p1", 1));
    expect(batches.length).toBe(1);
    for (const formed of [2, 3, 4]) intake.take(payload("p1", formed));
    (await batch(0)).end();
    expect(offsets(await batch(1))).toEqual([2, 3, 4]);
    (await batch(1)).end();
    await intake.stop();
  });

  it("asks the reconciler where signals could not be owed, and goes on", async () => {
    const { intake, batch, asked, offsets } = controlled();
    intake.take(payload("p1", 1));
    (await batch(0)).end(new Error("no connection"));
    await until("the reconciler to be asked", () => asked.reconcile === 1);
    intake.take(payload("p1", 2));
    expect(offsets(await batch(1))).toEqual([2]);
    (await batch(1)).end();
    await intake.stop();
  });

  it("says when rows were left for want of room", async () => {
    const { intake, batch, asked } = controlled({
      owed: { claims: [], superseded: 0, left: 2, leftTo: ["e1", "e2"], written: 2, more: false },
    });
    intake.take(payload("p1", 1));
    (await batch(0)).end();
    await until("the word", () => asked.left === 1);
  });

  it("drops what is no signal, and asks the reconciler instead of queueing without end", async () => {
    const { intake, batch, batches, asked } = controlled();
    for (const text of ["", "{}", "x", '{"scope":"p1"}']) intake.take(text);
    expect(batches.length).toBe(0);
    for (let formed = 0; formed < 10_300; formed++) intake.take(payload("p1", formed));
    expect(asked.reconcile).toBeGreaterThan(0);
    (await batch(0)).end();
    expect((await batch(1)).signals.length).toBeLessThanOrEqual(256);
  });

  it("while coalescing owes only the newest of each project", async () => {
    const { intake, batch, batches } = controlled({ coalesceMs: 30 });
    for (const formed of [1, 3, 2]) intake.take(payload("p1", formed));
    intake.take(payload("p2", 9));
    expect(batches.length).toBe(0);
    (await batch(0)).end();
    (await batch(1)).end();
    const owed = batches.flatMap(({ signals }) => signals);
    expect(owed.map(({ scope, formedThrough, formedTurns }) => [scope, formedThrough, formedTurns])).toEqual([
      ["p1", 3n, 3],
      ["p2", 9n, 1],
    ]);
  });
});
