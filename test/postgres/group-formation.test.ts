// Formation handed to groups: each watermark once, rising, whatever signals do, and apart from HTTPS endpoints.
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { handoffChannel } from "../../src/ledger/groups.ts";
import { variablesHash } from "../../src/ledger/hash.ts";
import { room, signal } from "../support/engine.ts";
import { type GroupBench, groupBench } from "../support/groups.ts";
import { listen } from "../support/hear.ts";
import { session } from "../support/roles.ts";

const signals = (...offsets: number[]) => offsets.map((offset) => signal(BigInt(offset)));
const advance = ({ formation }: GroupBench, formedThrough: number) =>
  formation.advance("p1", { formedThrough: BigInt(formedThrough) });

describe("owing a group", () => {
  it("hands over each watermark as a delivery that is delivered, a row of the ledger and a handoff", async () => {
    const bench = await groupBench();
    const endpoint = await bench.endpoint("group:jobs");
    await bench.formation.advance("p1", { formedThrough: 7n, storedThrough: 9n, parkedTurns: 1 });
    const ear = await listen(handoffChannel(bench.namespace));
    const formation = bench.formationOf();
    const news = [
      signal(5n, { formedTurns: 6 }),
      signal(7n, { storedThrough: 9n, formedTurns: 2, parkedTurns: 1 }),
    ];
    expect(await formation.owe(news)).toEqual({ written: 2, left: 0, more: true });
    expect(await ear.heard()).toEqual(["p1 jobs"]);
    const ledger = {
      identity_id: "p1",
      target: "group:jobs",
      scope: "p1",
      run_id: "engine",
      status: "accepted",
    };
    const { handoffs } = await bench.page();
    expect(handoffs).toMatchObject([
      { ...ledger, idempotency: "5" },
      { ...ledger, idempotency: "7" },
    ]);
    for (const one of handoffs) {
      expect(one.created_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    }
    // The body that an HTTPS endpoint gets, and the hash that the ledger keeps of it there too.
    expect(handoffs[1]?.variables).toEqual({
      version: "taisce-notification/v1",
      scope: "p1",
      formed_through: 7,
      stored_through: 9,
      parked_turns: 1,
      occurred_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/),
    });
    for (const one of handoffs) expect(one.variables_hash).toBe(variablesHash(one.variables));
    const rows = await bench.db.query(
      `SELECT delivery_id AS id, endpoint_id, formed_through, stored_through, formed_turns, parked_turns, attempts,
              delivered_at IS NOT NULL AS delivered
       FROM ${bench.namespace.sql}.notification_delivery ORDER BY formed_through`,
    );
    const row = { endpoint_id: endpoint, attempts: 0, delivered: true };
    expect(rows).toEqual([
      {
        ...row,
        id: handoffs[0]?.id,
        formed_through: 5n,
        stored_through: 5n,
        formed_turns: 6,
        parked_turns: 0,
      },
      {
        ...row,
        id: handoffs[1]?.id,
        formed_through: 7n,
        stored_through: 9n,
        formed_turns: 2,
        parked_turns: 1,
      },
    ]);
    // Again, by signal and without.
    expect(await formation.owe(news)).toMatchObject({ written: 0 });
    expect(await formation.reconcile()).toEqual({ written: 0, left: 0, more: false });
    expect(await ear.heard()).toEqual([]);
  });

  it("never hands over what lies below what was handed over", async () => {
    const bench = await groupBench();
    await bench.endpoint("group:jobs");
    await advance(bench, 9);
    const formation = bench.formationOf();
    await formation.owe(signals(3));
    await formation.owe(signals(6, 2, 6, 5));
    await formation.owe(signals(4, 6));
    await formation.reconcile();
    await formation.owe(signals(7, 8, 9));
    expect(await bench.keys()).toEqual(["3", "5", "6", "9"]);
  });

  it("nor where the newer is not committed yet", async () => {
    const bench = await groupBench();
    await bench.endpoint("group:jobs");
    await advance(bench, 9);
    await bench.formationOf().owe(signals(1));
    const client = await session();
    await client.query("BEGIN");
    await client.query(
      `UPDATE ${bench.namespace.sql}.handoff_group SET last_position = last_position + 1,
         formed_before = formed_through, formed_through = 6`,
    );
    const waiting = [bench.formationOf().owe(signals(4, 5)), bench.formationOf().owe(signals(6, 8))];
    await sleep(50);
    await client.query("COMMIT");
    const written = (await Promise.all(waiting)).map((handed) => handed.written);
    expect(written).toEqual([0, 1]);
    expect(await bench.keys()).toEqual(["1", "8"]);
  });

  it("by several replicas that hear every signal hands over each once, in order, and never deadlocks", async () => {
    const bench = await groupBench();
    const names = ["jobs", "a", "zebra", "m-1", "m_2"];
    for (const name of names) await bench.endpoint(`group:${name}`);
    await advance(bench, 200);
    const written = await Promise.all(
      [0, 1, 2, 3].map(async (replica) => {
        const formation = bench.formationOf();
        let sum = 0;
        for (let from = 1; from <= 200; ) {
          const to = Math.min(200, from + Math.floor(Math.random() * 12));
          const batch = Array.from({ length: to - from + 1 }, (_, n) => from + n);
          sum += (await formation.owe(signals(...batch))).written;
          // One of them also hands over what clients deliver.
          if (replica === 0) await bench.hand(`client ${from}`, { group: names[from % 5] ?? "" });
          from = to + 1;
        }
        return sum;
      }),
    );
    expect(written.reduce((a, b) => a + b)).toBe(200 * names.length);
    const all = Array.from({ length: 200 }, (_, n) => String(n + 1));
    for (const group of names) {
      const { handoffs } = await bench.groups.page(bench.db, { project: "p1", group }, undefined, 1_000);
      const formed = handoffs.filter(({ run_id }) => run_id === "engine");
      expect(formed.map(({ idempotency }) => idempotency)).toEqual(all);
    }
  });

  it("does not believe a signal of more than the watermark says, nor hand over what came before", async () => {
    const bench = await groupBench();
    await advance(bench, 10);
    await bench.endpoint("group:jobs");
    const formation = bench.formationOf();
    expect(await formation.owe(signals(9, 10, 11, 1_000))).toMatchObject({ written: 0 });
    expect(await formation.reconcile()).toMatchObject({ written: 0 });
    await advance(bench, 12);
    expect(await formation.owe(signals(11, 12))).toMatchObject({ written: 2 });
  });

  it("hands over the newest of what no signal brought, with the turns since", async () => {
    const bench = await groupBench();
    await bench.endpoint("group:jobs");
    const formation = bench.formationOf();
    await advance(bench, 3);
    await formation.owe(signals(3));
    await advance(bench, 8);
    await advance(bench, 17);
    expect(await formation.reconcile()).toMatchObject({ written: 1 });
    expect(await bench.keys()).toEqual(["3", "17"]);
    const [row] = await bench.db.query<{ formed_turns: number }>(
      `SELECT formed_turns FROM ${bench.namespace.sql}.notification_delivery WHERE formed_through = 17`,
    );
    expect(row?.formed_turns).toBe(14);
  });

  it("hands nothing to an endpoint that is disabled, and goes on from where it is registered again", async () => {
    const bench = await groupBench();
    const id = await bench.endpoint("group:jobs");
    const formation = bench.formationOf();
    await advance(bench, 1);
    await formation.owe(signals(1));
    await bench.disable(id);
    await advance(bench, 2);
    expect(await formation.owe(signals(2))).toMatchObject({ written: 0 });
    expect(await formation.reconcile()).toMatchObject({ written: 0 });
    expect(await bench.endpoint("group:jobs")).toBe(id);
    expect(await formation.reconcile()).toMatchObject({ written: 0 });
    await advance(bench, 3);
    expect(await formation.reconcile()).toMatchObject({ written: 1 });
    expect(await bench.keys()).toEqual(["1", "3"]);
  });

  it("hands to the groups that are listed, and to others once they are", async () => {
    const bench = await groupBench();
    for (const name of ["jobs", "a", "b"]) await bench.endpoint(`group:${name}`);
    await advance(bench, 1);
    expect(await bench.formationOf("a", "b").owe(signals(1))).toMatchObject({ written: 2 });
    expect(await bench.formationOf("a", "b").reconcile()).toMatchObject({ written: 0 });
    expect(await bench.keys()).toEqual([]);
    expect(await bench.formationOf("a", "jobs").reconcile()).toMatchObject({ written: 1 });
    expect(await bench.keys()).toEqual(["1"]);
  });

  it("and owing HTTPS endpoints leave each other alone", async () => {
    const bench = await groupBench();
    await bench.endpoint("group:jobs");
    const web = await bench.endpoint("/web");
    await advance(bench, 2);
    const { claims, written } = await bench.deliveries.owe(signals(1), room());
    expect([written, claims.map(({ endpointId }) => endpointId)]).toEqual([1, [web]]);
    expect((await bench.deliveries.reconcile(room())).claims.map(({ endpointId }) => endpointId)).toEqual([
      web,
    ]);
    expect(await bench.formationOf().owe(signals(1, 2))).toMatchObject({ written: 2 });
    expect(await bench.deliveries.claim(room())).toMatchObject({ claims: [], parked: 0, superseded: 0 });
    expect(await bench.deliveries.reconcile(room())).toMatchObject({ written: 0 });
    expect(await bench.keys()).toEqual(["1", "2"]);
  });

  it("leaves out a watermark whose key a client handed over itself", async () => {
    const bench = await groupBench();
    await bench.endpoint("group:jobs");
    await advance(bench, 3);
    await bench.hand("2", { identityId: "client" });
    await bench.formationOf().owe(signals(1, 2, 3));
    expect(
      (await bench.page()).handoffs.map(({ idempotency, identity_id }) => [idempotency, identity_id]),
    ).toEqual([
      ["2", "client"],
      ["1", "p1"],
      ["3", "p1"],
    ]);
  });
});

describe("a list of groups", () => {
  it("has those that were handed something and those that are endpoints", async () => {
    const bench = await groupBench();
    await bench.endpoint("group:a");
    await bench.disable(await bench.endpoint("group:off"));
    await bench.endpoint("group:jobs");
    await bench.endpoint("/web");
    await advance(bench, 4);
    await bench.formationOf("jobs").owe(signals(4));
    await bench.hand("x", { project: "p2", scope: "p2", group: "theirs" });
    const at = expect.stringMatching(/Z$/);
    const list = [
      { project: "p1", group: "a", endpoint: "live", formed_through: null, last_handoff_at: null },
      { project: "p1", group: "jobs", endpoint: "live", formed_through: 4n, last_handoff_at: at },
      { project: "p1", group: "off", endpoint: "disabled", formed_through: null, last_handoff_at: null },
      { project: "p2", group: "theirs", endpoint: "none", formed_through: null, last_handoff_at: at },
    ];
    expect(await bench.groups.list(bench.db)).toEqual(list);
    expect(await bench.groups.list(bench.db, "p2")).toEqual(list.slice(3));
  });
});
