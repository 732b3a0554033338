// The recorder's batching, with the statement's timing under the test's control.
import pg from "pg";
import { describe, expect, it } from "vitest";
import { DatabaseUnavailable } from "../../../src/database/database.ts";
import type { Heir, Outcome } from "../../../src/notifications/deliveries.ts";
import { Recorder } from "../../../src/notifications/recorder.ts";
import { quiet } from "../../support/quiet.ts";
import { until } from "../../support/until.ts";

const outcome = (deliveryId: string, more: Partial<Outcome> = {}): Outcome => ({
  deliveryId,
  lease: 1,
  verdict: "delivered",
  ...more,
});

/** An error as PostgreSQL reports it, with its SQLSTATE. */
const refused = (code: string) => Object.assign(new pg.DatabaseError("refused", 0, "error"), { code });

/** A recorder whose statements end when the test says so. */
function controlled() {
  const batches: { ids: string[]; end: (error?: Error) => void }[] = [];
  const retries: number[] = [];
  const passedOn: Heir[] = [];
  const recorder = new Recorder({
    deliveries: {
      record: (outcomes) =>
        new Promise((resolve, reject) => {
          batches.push({
            ids: outcomes.map(({ deliveryId }) => deliveryId),
            end: (error) =>
              error === undefined
                ? resolve({
                    recorded: new Set(outcomes.map(({ deliveryId }) => deliveryId)),
                    locked: new Set(),
                  })
                : reject(error),
          });
        }),
      passOn: async (heirs) => void passedOn.push(...heirs),
    },
    onRetry: (waitMs) => retries.push(waitMs),
    ...quiet(),
  });
  const batch = (index: number) => until(`batch ${index}`, () => batches[index]);
  return { recorder, batch, batches, retries, passedOn };
}

/** A recorder whose database cannot be had. */
function unavailable() {
  const seen = { tries: 0 };
  const recorder = new Recorder({
    deliveries: {
      record: async () => {
        seen.tries++;
        throw new DatabaseUnavailable(new Error("no connection"));
      },
      passOn: async () => {},
    },
    onRetry: () => {},
    ...quiet(),
  });
  return { recorder, seen };
}

describe("the recorder", () => {
  it("tells the rows that take others' place what came of those, and has them looked at in time", async () => {
    const { recorder, batch, retries, passedOn } = controlled();
    const heir = (endpointId: string, carried: number, waitMs: number) => ({
      endpointId,
      formedThrough: 1n,
      carried,
      waitMs,
    });
    recorder.add(outcome("d1", { verdict: "retry", waitMs: 700, heir: heir("e1", 2, 700) }));
    recorder.add(outcome("d2", { heir: heir("e2", 0, 0) }));
    recorder.add(outcome("d3"));
    (await batch(0)).end();
    await recorder.flush(1_000);
    expect(passedOn).toEqual([heir("e1", 2, 700), heir("e2", 0, 0)]);
    expect(retries).toEqual([0]);
  });

  it("says that an outcome is settled once what takes its row's place knows, or it cannot be recorded", async () => {
    const { recorder, batch, passedOn } = controlled();
    const settled: [string, number][] = [];
    const add = (id: string) =>
      recorder.add(
        outcome(id, {
          verdict: "retry",
          waitMs: 700,
          heir: { endpointId: id, formedThrough: 1n, carried: 1, waitMs: 700 },
          onSettled: () => settled.push([id, passedOn.length]),
        }),
      );
    add("recorded");
    (await batch(0)).end(new DatabaseUnavailable(new Error("no connection")));
    (await batch(1)).end();
    await until("the first", () => settled.length === 1);
    add("refused");
    (await batch(2)).end(refused("23514"));
    await until("the second", () => settled.length === 2);
    expect(settled).toEqual([
      ["recorded", 1],
      ["refused", 1],
    ]);
  });

  it("writes outcomes of a few milliseconds together, and 64 at once", async () => {
    const { recorder, batch } = controlled();
    for (let n = 0; n < 70; n++) recorder.add(outcome(`d${n}`));
    expect((await batch(0)).ids.length).toBe(64);
    (await batch(0)).end();
    expect((await batch(1)).ids).toEqual(["d64", "d65", "d66", "d67", "d68", "d69"]);
    (await batch(1)).end();
    expect(await recorder.flush(1_000)).toBe(0);
  });

  it("writes what arrived while a statement was under way, and what comes after it", async () => {
    const { recorder, batch } = controlled();
    recorder.add(outcome("first"));
    const first = await batch(0);
    recorder.add(outcome("second"));
    // Long enough for the second's own timer to fire while the first statement still runs.
    await new Promise((resolve) => setTimeout(resolve, 20));
    first.end();
    (await batch(1)).end();
    recorder.add(outcome("third"));
    expect((await batch(2)).ids).toEqual(["third"]);
    (await batch(2)).end();
  });

  it("keeps what could not be written and tries again", async () => {
    const { recorder, batch, retries } = controlled();
    recorder.add(outcome("d1", { verdict: "retry", waitMs: 40 }));
    (await batch(0)).end(new DatabaseUnavailable(new Error("no connection")));
    expect((await batch(1)).ids).toEqual(["d1"]);
    expect(retries).toEqual([]);
    (await batch(1)).end();
    await until("the retry", () => retries.length === 1);
    expect(retries).toEqual([40]);
  });

  it("does not let one outcome that PostgreSQL refuses hold up the others", async () => {
    const { recorder, batch, batches } = controlled();
    for (const id of ["good", "bad", "fine"]) recorder.add(outcome(id));
    (await batch(0)).end(refused("23514"));
    (await batch(1)).end();
    (await batch(2)).end(refused("23514"));
    (await batch(3)).end();
    expect(batches.slice(1).map(({ ids }) => ids)).toEqual([["good"], ["bad"], ["fine"]]);
    expect(await recorder.flush(1_000)).toBe(0);
  });

  it("keeps outcomes through errors that pass: disk full, read-only, cancelled, locked", async () => {
    for (const code of ["53100", "25006", "57014", "55P03", "40P01"]) {
      const { recorder, batch } = controlled();
      recorder.add(outcome("d1"));
      (await batch(0)).end(refused(code));
      expect((await batch(1)).ids, code).toEqual(["d1"]);
      (await batch(1)).end();
    }
  });

  it("keeps what somebody holds locked, and lets the others through", async () => {
    const batches: string[][] = [];
    let held = true;
    const recorder = new Recorder({
      deliveries: {
        record: async (outcomes) => {
          const ids = outcomes.map(({ deliveryId }) => deliveryId);
          batches.push(ids);
          const locked = new Set(ids.filter((id) => held && id === "held"));
          return { recorded: new Set(ids.filter((id) => !locked.has(id))), locked };
        },
        passOn: async () => {},
      },
      onRetry: () => {},
      ...quiet(),
    });
    for (const id of ["held", "free"]) recorder.add(outcome(id));
    await until("the first batch", () => batches.length === 1);
    held = false;
    await until("the locked one again", () => batches.length === 2);
    expect(batches).toEqual([["held", "free"], ["held"]]);
    expect(await recorder.flush(1_000)).toBe(0);
  });

  it("does nothing more once it was flushed, so that the process can end", async () => {
    const { recorder, seen } = unavailable();
    recorder.add(outcome("d1"));
    await recorder.flush(20);
    const before = seen.tries;
    recorder.add(outcome("d2"));
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(seen.tries).toBe(before);
  });

  it("does not hammer a database that refuses while it flushes", async () => {
    const { recorder, seen } = unavailable();
    recorder.add(outcome("d1"));
    expect(await recorder.flush(600)).toBe(1);
    expect(seen.tries).toBeGreaterThan(1);
    expect(seen.tries).toBeLessThan(12);
  });

  it("gives up flushing at its limit and says how much is unwritten", async () => {
    const { recorder } = controlled();
    recorder.add(outcome("d1"));
    expect(await recorder.flush(50)).toBe(1);
  });
});
