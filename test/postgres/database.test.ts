// The pool: what it turns into "try again later", and what state its connections are in afterwards.
import { describe, expect, it, onTestFinished } from "vitest";
import { Database, DatabaseUnavailable } from "../../src/database/database.ts";
import { Link } from "../faults/link.ts";
import { databaseUrl, testNamespace } from "../support/namespaces.ts";
import { session } from "../support/roles.ts";

describe("a transaction", () => {
  it("whose statement took too long gives its connection up at once and leaves nothing behind", async () => {
    const { db, namespace } = await testNamespace({ max: 1, queryTimeoutMs: 1_000 });
    await db.query(`CREATE TABLE ${namespace.sql}.note (text text)`);
    const began = performance.now();
    await expect(
      db.transaction(async (transaction) => {
        await transaction.query(`INSERT INTO ${namespace.sql}.note VALUES ('half done')`);
        await transaction.query("SELECT pg_sleep(5)");
      }),
    ).rejects.toThrow(DatabaseUnavailable);
    // One limit, not a second one for a ROLLBACK that would stand in line behind the statement.
    expect(performance.now() - began).toBeLessThan(1_900);
    expect(await db.query(`SELECT text FROM ${namespace.sql}.note`)).toEqual([]);
  });

  it("whose connection is cut fails as unavailable, and the next one works", async () => {
    const { db, namespace } = await testNamespace({ max: 1 });
    const killer = await session();
    await expect(
      db.transaction(async (transaction) => {
        const [row] = await transaction.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
        await killer.query("SELECT pg_terminate_backend($1)", [row?.pid]);
        await transaction.query("SELECT 1");
      }),
    ).rejects.toThrow(DatabaseUnavailable);
    expect(await db.query(`SELECT count(*) AS rows FROM ${namespace.sql}.project`)).toEqual([{ rows: 0n }]);
  });

  it("that fails is undone and its connection used again", async () => {
    const { db, namespace } = await testNamespace({ max: 1 });
    const pid = () => db.query("SELECT pg_backend_pid() AS pid");
    const before = await pid();
    await expect(
      db.transaction(async (transaction) => {
        await transaction.query(`INSERT INTO ${namespace.sql}.project (scope) VALUES ('p1')`);
        await transaction.query("SELECT 1 / 0");
      }),
    ).rejects.toThrow("division by zero");
    expect(await db.query(`SELECT FROM ${namespace.sql}.project`)).toEqual([]);
    expect(await pid()).toEqual(before);
  });
});

describe("a pool without a free connection", () => {
  it("fails as unavailable after its time, and serves again once one is free", async () => {
    const { db } = await testNamespace({ max: 1 });
    const { promise, resolve } = Promise.withResolvers<void>();
    const holding = db.transaction(() => promise);
    await expect(db.query("SELECT 1")).rejects.toThrow(DatabaseUnavailable);
    resolve();
    await holding;
    expect(await db.query("SELECT 9007199254740993::bigint AS exact")).toEqual([
      { exact: 9007199254740993n },
    ]);
  });
});

describe("a statement that the server does not answer in time", () => {
  it("takes the idle connections with it, so that the next one does not meet the same silence", async () => {
    const link = await Link.open(databaseUrl());
    const db = new Database({ url: link.url({}), max: 4, applicationName: "test", queryTimeoutMs: 500 });
    onTestFinished(() => link.close());
    onTestFinished(() => db.close());
    const pids = async () => {
      const asked = Array.from({ length: 4 }, () =>
        db.query("SELECT pg_backend_pid() AS pid, pg_sleep(0.1)"),
      );
      return (await Promise.all(asked)).map(([row]) => row?.pid);
    };
    const before = await pids();
    link.silence({ newOnes: "pass" });
    await expect(db.query("SELECT 1")).rejects.toThrow(DatabaseUnavailable);
    expect((await pids()).filter((pid) => before.includes(pid))).toEqual([]);
  });
});
