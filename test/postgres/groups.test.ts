// Handing over and taking: once a key, in the order of the commits, and nothing missed behind a cursor.
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import { Database } from "../../src/database/database.ts";
import { handoffChannel } from "../../src/ledger/groups.ts";
import { signal } from "../support/engine.ts";
import { groupBench, handoff, keysOf } from "../support/groups.ts";
import { listen } from "../support/hear.ts";
import { session, urlWith } from "../support/roles.ts";

describe("handing over", () => {
  it("writes a row of the ledger that is accepted at once, and hands on what came with it, exactly", async () => {
    const bench = await groupBench();
    const variables = { big: 9_223_372_036_854_775_807n, text: "\u0001 ü", nested: { list: [1, null, 0.5] } };
    const { outcome, delivery } = await bench.hand("a", { variables, variablesHash: "ab".repeat(32) });
    expect(outcome).toBe("accepted");
    expect(delivery).toEqual({
      id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7/),
      identity_id: "someone",
      target: "group:jobs",
      scope: "p1",
      idempotency: "a",
      run_id: "run",
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      status: "accepted",
      sent_at: null,
      variables_hash: "ab".repeat(32),
    });
    const { sent_at: _, ...shown } = delivery;
    expect((await bench.page()).handoffs).toEqual([{ ...shown, variables }]);
    await bench.hand("b");
    expect((await bench.page()).handoffs[1]).not.toHaveProperty("variables");
  });

  it("is done once a key, however many try at the same time", async () => {
    const bench = await groupBench();
    for (const key of ["a", "b", "c"]) {
      const results = await Promise.all(Array.from({ length: 12 }, () => bench.hand(key)));
      expect(results.filter(({ outcome }) => outcome === "accepted").length).toBe(1);
      expect(new Set(results.map(({ delivery }) => delivery.id)).size).toBe(1);
    }
    expect((await bench.hand("a")).outcome).toBe("already_delivered");
    expect(await bench.keys()).toEqual(["a", "b", "c"]);
  });

  it("is that whatever isolation is the database's default", async () => {
    const bench = await groupBench();
    await bench.endpoint("group:jobs");
    await bench.formation.advance("p1", { formedThrough: 40n });
    for (const level of ["repeatable read", "serializable"]) {
      const url = urlWith({ default_transaction_isolation: level });
      const db = new Database({ url, max: 8, applicationName: "strict" });
      onTestFinished(() => db.close());
      const keys = Array.from({ length: 24 }, (_, n) => `${level} ${n % 12}`);
      const formations = [1, 2, 3].map(() => bench.formationOn(db));
      const results = await Promise.all([
        ...keys.map((key) => bench.hand(key, {}, db).then(({ outcome }) => outcome)),
        ...formations.map(async (formation) => {
          for (let n = 1n; n <= 40n; n++) await formation.owe([signal(n)]);
        }),
      ]);
      expect(results.filter((outcome) => outcome === "accepted").length).toBe(12);
    }
    const all = await bench.keys();
    expect([all.length, new Set(all).size]).toEqual([64, 64]);
    const formed = all.filter((key) => /^\d+$/.test(key));
    expect(formed).toEqual(Array.from({ length: 40 }, (_, n) => String(n + 1)));
  });

  it("tells who waited for the same key what became of it, also where that was rolled back", async () => {
    const bench = await groupBench();
    await bench.hand("first");
    for (const ending of ["committed", "rolled back"] as const) {
      const held = Promise.withResolvers<void>();
      const began = Promise.withResolvers<void>();
      const first = bench.db
        .transaction(async (transaction) => {
          await bench.hand(ending, { identityId: "one" }, transaction);
          began.resolve();
          await held.promise;
          if (ending === "rolled back") throw new Error("on purpose");
        })
        .catch(() => {});
      await began.promise;
      const second = bench.hand(ending, { identityId: "two" });
      await sleep(50);
      held.resolve();
      await first;
      const { outcome, delivery } = await second;
      expect([outcome, delivery.identity_id]).toEqual(
        ending === "committed" ? ["already_delivered", "one"] : ["accepted", "two"],
      );
    }
    expect(await bench.keys()).toEqual(["first", "committed", "rolled back"]);
  });

  it("keeps groups apart: by name, and by project", async () => {
    const bench = await groupBench();
    await bench.hand("a");
    await bench.hand("a", { group: "a" });
    await bench.hand("a", { project: "p2", scope: "p2" });
    const taken = async (project: string, group: string) =>
      (await bench.groups.page(bench.db, { project, group }, undefined, 50)).handoffs.map(
        ({ target, scope, idempotency }) => [target, scope, idempotency],
      );
    expect(await taken("p1", "jobs")).toEqual([["group:jobs", "p1", "a"]]);
    expect(await taken("p1", "a")).toEqual([["group:a", "p1", "a"]]);
    expect(await taken("p2", "jobs")).toEqual([["group:jobs", "p2", "a"]]);
    expect(await taken("p2", "a")).toEqual([]);
  });

  it("tells the channel at the commit, and only what was new", async () => {
    const bench = await groupBench();
    const ear = await listen(handoffChannel(bench.namespace));
    await bench.hand("a");
    await bench.hand("a");
    await bench.hand("a", { project: "p2", scope: "p2", group: "b-2_x" });
    await bench.db
      .transaction(async (transaction) => {
        await bench.hand("rolled back", {}, transaction);
        throw new Error("on purpose");
      })
      .catch(() => {});
    expect(await ear.heard()).toEqual(["p1 jobs", "p2 b-2_x"]);
  });
});

describe("a cursor", () => {
  it("pages through everything in order, and is where it was when there is nothing", async () => {
    const bench = await groupBench();
    const empty = await bench.page();
    expect(empty.handoffs).toEqual([]);
    expect((await bench.page(empty.next)).next).toBe(empty.next);
    const keys = Array.from({ length: 25 }, (_, n) => `k${n}`);
    for (const key of keys) await bench.hand(key);
    for (const limit of [1, 7, 24, 25, 200]) expect(await bench.keys(limit, empty.next)).toEqual(keys);
    const { next } = await bench.page();
    expect(await bench.page(next)).toEqual({ handoffs: [], next });
    await bench.hand("later");
    expect(keysOf((await bench.page(next)).handoffs)).toEqual(["later"]);
    // An old one gives the same again.
    expect(await bench.keys(200, empty.next)).toEqual([...keys, "later"]);
  });

  it("misses nothing and sees nothing twice while writers commit late, in any order", async () => {
    const bench = await groupBench();
    const writers = await Promise.all(Array.from({ length: 8 }, () => session()));
    let writing = writers.length;
    const written: string[] = [];
    const write = async (client: (typeof writers)[0], writer: number) => {
      const query = async (statement: { text: string } | string, values?: unknown[]) =>
        (await client.query(typeof statement === "string" ? statement : statement.text, values)).rows;
      for (let n = 0; n < 12; n++) {
        const key = `${writer}.${n}`;
        // The id is made before the wait for the group, as late commits would have it made long before.
        const id = handoff(key, { identityId: `w${writer}` });
        await client.query("BEGIN");
        // biome-ignore lint/suspicious/noExplicitAny: a client of pg in place of the pool
        await bench.groups.handOff({ query } as any, id);
        await sleep(Math.random() * 10);
        if (Math.random() < 0.2) {
          await client.query("ROLLBACK");
        } else {
          await client.query("COMMIT");
          written.push(key);
        }
      }
      writing--;
    };
    const read = async () => {
      const seen: string[] = [];
      let after: string | undefined;
      for (let last = false; ; ) {
        const { handoffs, next } = await bench.page(after, 3);
        seen.push(...keysOf(handoffs));
        after = next;
        if (last && handoffs.length === 0) return seen;
        last = writing === 0;
      }
    };
    const [first, second] = await Promise.all([read(), read(), ...writers.map((one, n) => write(one, n))]);
    expect(first).toEqual(second);
    expect(first).toEqual(await bench.keys());
    expect([...(first ?? [])].sort()).toEqual(written.sort());
    // Each writer's own are in its order.
    for (let writer = 0; writer < writers.length; writer++) {
      const own = first?.filter((key) => key.startsWith(`${writer}.`)) ?? [];
      expect(own).toEqual(own.toSorted((a, b) => Number(a.split(".")[1]) - Number(b.split(".")[1])));
    }
  });

  it("starts over where the database was set back and its positions were given out anew", async () => {
    const bench = await groupBench();
    for (const key of ["a", "b", "c", "d"]) await bench.hand(key);
    const lost = await bench.page();
    const kept = await bench.page(undefined, 2);
    const { sql } = bench.namespace;
    await bench.db.query(`DELETE FROM ${sql}.deliveries WHERE idempotency IN ('c', 'd')`);
    await bench.db.query(`UPDATE ${sql}.handoff_group SET last_position = 2`);
    for (const after of [lost.next, kept.next]) {
      expect(keysOf((await bench.page(after)).handoffs)).toEqual(after === lost.next ? ["a", "b"] : []);
    }
    for (const key of ["e", "f", "g"]) await bench.hand(key);
    expect(keysOf((await bench.page(lost.next)).handoffs)).toEqual(["a", "b", "e", "f", "g"]);
    expect(keysOf((await bench.page(kept.next)).handoffs)).toEqual(["e", "f", "g"]);
  });

  it("goes on where what lies before it was deleted from the ledger", async () => {
    const bench = await groupBench();
    for (const key of ["a", "b", "c", "d"]) await bench.hand(key);
    const [two, four] = [(await bench.page(undefined, 2)).next, (await bench.page()).next];
    const purge = (...keys: string[]) =>
      bench.db.query(`DELETE FROM ${bench.namespace.sql}.deliveries WHERE idempotency = ANY ($1)`, [keys]);
    await purge("a", "b", "c");
    for (const after of [undefined, two]) expect(keysOf((await bench.page(after)).handoffs)).toEqual(["d"]);
    expect((await bench.page(four)).handoffs).toEqual([]);
    await purge("d");
    await bench.hand("e");
    expect(keysOf((await bench.page(four)).handoffs)).toEqual(["e"]);
  });

  it("gives no more variables at once than fit an answer, and always one handoff", async () => {
    const bench = await groupBench();
    const megabyte = "x".repeat(1_000_000);
    for (let n = 0; n < 9; n++) await bench.hand(`k${n}`, { variables: { megabyte } });
    await bench.hand("huge", { variables: { huge: "x".repeat(5_000_000) } });
    await bench.hand("small");
    const sizes: number[] = [];
    let after: string | undefined;
    for (;;) {
      const { handoffs, next } = await bench.page(after);
      if (handoffs.length === 0) break;
      sizes.push(handoffs.length);
      after = next;
    }
    expect(sizes).toEqual([4, 4, 1, 1, 1]);
  });
});
