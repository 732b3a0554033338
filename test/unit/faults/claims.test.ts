// The fault campaign's reading of a row's history: that it takes what docs/states.md allows, and nothing else.
import { describe, expect, it } from "vitest";
import { stories } from "../../faults/claims.ts";
import type { Change } from "../../faults/history.ts";

const change = (more: Partial<Change>): Change => ({
  delivery_id: "d1",
  endpoint_id: "e1",
  formed_through: 1n,
  op: "UPDATE",
  at: 0,
  who: "r1",
  lease: 1,
  attempts: 1,
  claimed: false,
  ended: null,
  last_error: null,
  was_ended: false,
  told: false,
  ...more,
});
const unclaimed = change({ op: "INSERT", lease: 0, attempts: 0 });
const claimed = change({ op: "INSERT", claimed: true });
const wrongs = (...changes: Change[]) => stories(changes).get("d1")?.wrong;

describe("a delivery's history", () => {
  it("may be a claim and its outcome, or a lost claim and another's", () => {
    expect(wrongs(claimed, change({ ended: "delivered" }))).toEqual([]);
    const second = change({ who: "r2", lease: 2, attempts: 2 });
    expect(wrongs(claimed, { ...second, claimed: true }, { ...second, ended: "delivered" })).toEqual([]);
  });

  it("may be superseded, and told what came of the row it follows, while nobody has it", () => {
    const told = change({ lease: 0, attempts: 0, told: true });
    expect(wrongs(unclaimed, told, change({ lease: 0, attempts: 0, ended: "superseded" }))).toEqual([]);
    expect(wrongs(claimed, change({}), change({ told: true }))).toEqual(["changed without a claim, by r1"]);
  });

  it("is wrong where an outcome came without its claim, after another's, or after the end", () => {
    expect(wrongs(unclaimed, change({ lease: 0, attempts: 0, ended: "delivered" }))).toEqual([
      "changed without a claim, by r1",
    ]);
    expect(wrongs(claimed, change({ who: "r2", ended: "delivered" }))).toEqual([
      "r2 recorded an outcome while r1 held the claim",
    ]);
    const ended = change({ ended: "delivered" });
    expect(wrongs(claimed, ended, { ...ended, was_ended: true })).toEqual(["changed after its end, by r1"]);
    expect(wrongs(claimed, change({ op: "DELETE" }))).toEqual(["the row vanished"]);
  });
});
