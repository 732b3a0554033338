// The watermark at its edges: numbers at both ends of their range, logs with holes, plain UPDATEs, and
// transactions that cannot see each other.
import { describe, expect, it } from "vitest";
import { Formation } from "../../src/formation/formation.ts";
import { Projects } from "../../src/projects/projects.ts";
import { testNamespace } from "../support/namespaces.ts";
import { session } from "../support/roles.ts";
import { until } from "../support/until.ts";

const LARGEST = 9_223_372_036_854_775_807n;

async function project() {
  const { db, namespace } = await testNamespace();
  await new Projects(db, namespace).create("p1");
  const formation = new Formation(db, namespace);
  return {
    db,
    schema: namespace.sql,
    formation,
    async numbers() {
      const { stored, formed, parked } = await formation.freshness("p1");
      return { stored, formed, parked };
    },
  };
}

describe("advance_watermark", () => {
  it("takes -1, like null, for none yet", async () => {
    const { formation, numbers } = await project();
    expect(await formation.advance("p1", { formedThrough: -1n })).toBe(false);
    expect(await formation.advance("p1", { formedThrough: -1n, storedThrough: -1n })).toBe(false);
    expect(await numbers()).toEqual({ stored: null, formed: null, parked: 0 });
    expect(await formation.advance("p1", { formedThrough: -1n, storedThrough: -1n, parkedTurns: 1 })).toBe(
      true,
    );
    expect(await numbers()).toEqual({ stored: null, formed: null, parked: 1 });
    expect(await formation.advance("p1", { formedThrough: -1n, storedThrough: 4n })).toBe(true);
    expect(await numbers()).toEqual({ stored: 4n, formed: null, parked: 1 });
    expect(await formation.advance("p1", { formedThrough: 2n, storedThrough: -1n })).toBe(true);
    expect(await numbers()).toEqual({ stored: 4n, formed: 2n, parked: 1 });
  });

  it("moves one number and leaves the others", async () => {
    const { formation, numbers, db, schema } = await project();
    await formation.advance("p1", { formedThrough: 5n, storedThrough: 9n, parkedTurns: 1 });
    await db.query(`SELECT ${schema}.advance_watermark('p1', NULL, 12)`);
    await db.query(`SELECT ${schema}.advance_watermark('p1', NULL, parked_turns => 3)`);
    expect(await numbers()).toEqual({ stored: 12n, formed: 5n, parked: 3 });
    const [none] = await db.query(`SELECT ${schema}.advance_watermark('p1', NULL) AS moved`);
    expect(none).toEqual({ moved: false });
  });

  it("from many sessions at once ends at the highest of each", async () => {
    const { formation, numbers } = await project();
    const moved = await Promise.all(
      Array.from({ length: 60 }, (_, n) =>
        formation.advance("p1", {
          formedThrough: BigInt((n * 7) % 60),
          storedThrough: BigInt(100 + n),
          parkedTurns: n % 9,
        }),
      ),
    );
    expect(moved).toContain(true);
    expect(await numbers()).toEqual({ stored: 159n, formed: 59n, parked: 8 });
  });
});

describe("a plain UPDATE of the watermark", () => {
  it("that says only what formed has it stored too, and stamps the time", async () => {
    const { db, schema, numbers } = await project();
    await db.query(`UPDATE ${schema}.watermark SET formed_through = 7`);
    expect(await numbers()).toEqual({ stored: 7n, formed: 7n, parked: 0 });
    const [row] = await db.query<{ fresh: boolean }>(
      `SELECT now() - advanced_at < interval '1 minute' AS fresh FROM ${schema}.watermark`,
    );
    expect(row).toEqual({ fresh: true });
  });

  it("that would leave more formed than stored, or less than none, is refused", async () => {
    const { db, schema, numbers } = await project();
    await db.query(`UPDATE ${schema}.watermark SET formed_through = 7, stored_through = 9`);
    for (const change of [
      "stored_through = 6",
      "stored_through = NULL",
      "formed_through = -1",
      "parked_turns = -1",
    ]) {
      await expect(db.query(`UPDATE ${schema}.watermark SET ${change}`), change).rejects.toThrow(
        /check constraint/,
      );
    }
    expect(await numbers()).toEqual({ stored: 9n, formed: 7n, parked: 0 });
  });
});

describe("a log that does not start with the watermark", () => {
  it("forms on from where another log was reported to have formed", async () => {
    const { formation, numbers } = await project();
    await formation.advance("p1", { formedThrough: 41n });
    expect(await formation.append("p1", 3)).toEqual([42n, 43n, 44n]);
    expect(await formation.form("p1", 43n)).toBe(41n);
    expect(await formation.form("p1", 42n)).toBe(43n);
    expect(await numbers()).toEqual({ stored: 44n, formed: 43n, parked: 0 });
  });

  it("never passes an offset that was only reported as stored", async () => {
    const { formation, numbers } = await project();
    await formation.advance("p1", { formedThrough: 41n, storedThrough: 44n });
    await formation.append("p1", 2);
    expect(await formation.form("p1", 45n)).toBe(41n);
    expect(await formation.park("p1", 46n)).toBe(41n);
    await formation.advance("p1", { formedThrough: 44n });
    await formation.append("p1", 1);
    expect(await formation.form("p1", 47n)).toBe(47n);
    expect(await numbers()).toEqual({ stored: 47n, formed: 47n, parked: 1 });
  });

  it("stops at a hole in the log, and goes on once it is filled", async () => {
    const { formation, db, schema } = await project();
    await formation.append("p1", 6);
    await db.query(`DELETE FROM ${schema}.turn WHERE log_offset = 3`);
    for (const turn of [5n, 4n, 2n, 1n]) await formation.form("p1", turn);
    expect(await formation.form("p1", 0n)).toBe(2n);
    await db.query(`INSERT INTO ${schema}.turn (scope, log_offset) VALUES ('p1', 3)`);
    expect(await formation.form("p1", 3n)).toBe(5n);
  });

  it("does not need the turns below a reported watermark to form, nor is held back by them", async () => {
    const { formation } = await project();
    await formation.append("p1", 5);
    await formation.advance("p1", { formedThrough: 2n });
    expect(await formation.form("p1", 3n)).toBe(3n);
    expect(await formation.form("p1", 0n)).toBe(3n);
  });
});

describe("the ends of the ranges", () => {
  it("turns still end where the watermark stands at the largest offset", async () => {
    const { formation } = await project();
    await formation.append("p1", 2);
    await formation.advance("p1", { formedThrough: LARGEST });
    expect(await formation.form("p1", 1n)).toBe(LARGEST);
    expect(await formation.park("p1", 0n)).toBe(LARGEST);
  });

  it("the last offset there is can be stored and formed, and then the log is full", async () => {
    const { formation, numbers } = await project();
    await formation.advance("p1", { formedThrough: LARGEST - 1n });
    expect(await formation.append("p1")).toEqual([LARGEST]);
    expect(await formation.form("p1", LARGEST)).toBe(LARGEST);
    await expect(formation.append("p1")).rejects.toThrow(/out of range/);
    expect(await numbers()).toEqual({ stored: LARGEST, formed: LARGEST, parked: 0 });
  });

  it("the count of parked turns stops at its largest, and a turn can be parked all the same", async () => {
    const { formation, numbers } = await project();
    await formation.append("p1", 2);
    await formation.advance("p1", { formedThrough: -1n, parkedTurns: 2_147_483_647 });
    expect(await formation.park("p1", 0n)).toBe(0n);
    expect(await numbers()).toEqual({ stored: 1n, formed: 0n, parked: 2_147_483_647 });
  });
});

describe("two enders of one project", () => {
  it("take turns, and the later one counts what the earlier one formed", async () => {
    const { formation, schema, numbers } = await project();
    await formation.append("p1", 2);
    const [first, second, watcher] = await Promise.all([session(), session(), session()]);
    await first.query("BEGIN");
    await first.query(`SELECT ${schema}.form_turn('p1', 0)`);
    const { rows } = await second.query("SELECT pg_backend_pid() AS pid");
    const waiting = second.query(`SELECT ${schema}.form_turn('p1', 1) AS through`);
    await until("the second to wait", async () => {
      const waits = await watcher.query(
        "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'",
        [rows[0].pid],
      );
      return waits.rowCount === 1;
    });
    await first.query("COMMIT");
    expect((await waiting).rows).toEqual([{ through: "1" }]);
    expect(await numbers()).toEqual({ stored: 1n, formed: 1n, parked: 0 });
  });
});

describe("transactions at REPEATABLE READ", () => {
  it("that end turns at once collide rather than leave the watermark behind", async () => {
    const { formation, schema, numbers } = await project();
    await formation.append("p1", 2);
    const [one, other] = await Promise.all([session(), session()]);
    for (const client of [one, other]) {
      await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
      await client.query(`SELECT count(*) FROM ${schema}.turn`);
    }
    // Moves nothing: turn 0 holds the watermark back.
    await one.query(`SELECT ${schema}.form_turn('p1', 1)`);
    await one.query("COMMIT");
    await expect(other.query(`SELECT ${schema}.form_turn('p1', 0)`)).rejects.toThrow(/could not serialize/);
    await other.query("ROLLBACK");
    await other.query(`SELECT ${schema}.form_turn('p1', 0)`);
    expect(await numbers()).toEqual({ stored: 1n, formed: 1n, parked: 0 });
  });

  it("that append at once collide rather than give one offset twice", async () => {
    const { formation, schema } = await project();
    const client = await session();
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await client.query(`SELECT count(*) FROM ${schema}.watermark`);
    expect(await formation.append("p1")).toEqual([0n]);
    await expect(client.query(`SELECT ${schema}.append_turn('p1')`)).rejects.toThrow(/could not serialize/);
    await client.query("ROLLBACK");
    expect(await formation.append("p1")).toEqual([1n]);
  });
});
