// The producer's functions and the watermark they keep (contract section 5).
import { describe, expect, it } from "vitest";
import { Formation, FormationError } from "../../src/formation/formation.ts";
import { Projects } from "../../src/projects/projects.ts";
import { testNamespace } from "../support/namespaces.ts";

async function project() {
  const { db, namespace } = await testNamespace();
  await new Projects(db, namespace).create("p1");
  return { db, schema: namespace.sql, formation: new Formation(db, namespace) };
}

describe("the log of turns", () => {
  it("gives contiguous offsets from 0, also to appends at once", async () => {
    const { formation } = await project();
    expect(await formation.freshness("p1")).toEqual({ scope: "p1", stored: null, formed: null, parked: 0 });
    const offsets = (await Promise.all(Array.from({ length: 20 }, () => formation.append("p1", 5)))).flat();
    expect(offsets.toSorted((a, b) => Number(a - b))).toEqual(
      Array.from({ length: 100 }, (_, n) => BigInt(n)),
    );
    expect((await formation.freshness("p1")).stored).toBe(99n);
  });

  it("never runs formed_through past a turn that has not formed", async () => {
    const { formation } = await project();
    await formation.append("p1", 4);
    expect(await formation.form("p1", 1n)).toBeNull();
    expect(await formation.form("p1", 3n)).toBeNull();
    expect(await formation.form("p1", 0n)).toBe(1n);
    expect(await formation.form("p1", 0n)).toBe(1n);
    expect(await formation.form("p1", 2n)).toBe(3n);
  });

  it("forms turns out of order from many sessions at once and ends exact", async () => {
    const { formation, db, schema } = await project();
    await formation.append("p1", 200);
    const order = Array.from({ length: 200 }, (_, n) => BigInt(n)).sort(() => Math.random() - 0.5);
    const seen = await Promise.all(order.map((turn) => formation.form("p1", turn)));
    expect((await formation.freshness("p1")).formed).toBe(199n);
    expect(seen.filter((through) => through !== null && through > 199n)).toEqual([]);
    const rows = await db.query(`SELECT FROM ${schema}.turn WHERE formed_at IS NULL`);
    expect(rows).toEqual([]);
  });

  it("lets a parked turn hold nothing back, and counts it until it forms after all", async () => {
    const { formation } = await project();
    await formation.append("p1", 3);
    await formation.form("p1", 0n);
    expect(await formation.park("p1", 1n)).toBe(1n);
    expect(await formation.form("p1", 2n)).toBe(2n);
    expect(await formation.freshness("p1")).toEqual({ scope: "p1", stored: 2n, formed: 2n, parked: 1 });
    expect(await formation.park("p1", 2n)).toBe(2n);
    expect((await formation.freshness("p1")).parked).toBe(1);
    expect(await formation.form("p1", 1n)).toBe(2n);
    expect((await formation.freshness("p1")).parked).toBe(0);
  });

  it("names what does not exist", async () => {
    const { formation } = await project();
    await expect(formation.form("p1", 7n)).rejects.toThrow(new FormationError('project "p1" has no turn 7'));
    await expect(formation.append("ghost")).rejects.toThrow(
      new FormationError('project "ghost" does not exist'),
    );
    await expect(formation.advance("ghost", { formedThrough: 1n })).rejects.toThrow(FormationError);
  });
});

describe("advance_watermark", () => {
  it("moves every number forward only and says whether anything moved", async () => {
    const { formation } = await project();
    const advance = (formedThrough: bigint, storedThrough?: bigint, parkedTurns?: number) =>
      formation.advance("p1", { formedThrough, storedThrough, parkedTurns });
    expect(await advance(412n, 418n, 2)).toBe(true);
    expect(await advance(412n, 418n, 2)).toBe(false);
    expect(await advance(400n, 410n, 1)).toBe(false);
    expect(await formation.freshness("p1")).toEqual({ scope: "p1", stored: 418n, formed: 412n, parked: 2 });
    expect(await advance(412n, 420n)).toBe(true);
    expect(await advance(500n)).toBe(true);
    expect(await formation.freshness("p1")).toEqual({ scope: "p1", stored: 500n, formed: 500n, parked: 2 });
  });

  it("is exact over the whole bigint range, and no advance overflows", async () => {
    const { formation } = await project();
    const largest = 9_223_372_036_854_775_807n;
    expect(await formation.advance("p1", { formedThrough: largest })).toBe(true);
    expect((await formation.freshness("p1")).formed).toBe(largest);
  });
});
