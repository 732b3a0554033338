// Claims on a real database: who gets one, what its end leaves behind, and what a late outcome still changes.
import { describe, expect, it } from "vitest";
import { Audit } from "../../src/audit/audit.ts";
import { Database } from "../../src/database/database.ts";
import { Claims, type HeldClaim } from "../../src/ledger/claims.ts";
import { type LedgerRow, newLedgerId } from "../../src/ledger/ledger.ts";
import { LedgerRows } from "../../src/ledger/rows.ts";
import { engineBench } from "../support/engine.ts";
import { session, urlWith } from "../support/roles.ts";
import { until } from "../support/until.ts";

const OPERATOR = { project: undefined, principal: undefined };
const KEY = { target: "https/deliver", scope: "", idempotency: "k" };

async function claimsBench() {
  const { db, namespace, endpoint } = await engineBench();
  const claims = new Claims(db, namespace);
  const key = { ...KEY, scope: await endpoint("/") };
  const stands = (row: LedgerRow | undefined, again: boolean) =>
    row?.status === "unconfirmed" || (row !== undefined && !again);
  /** Takes the key with these variables; `body` is given where it may be sent again. */
  const take = (variablesHash: string, body?: string) =>
    claims.take(
      {
        ...key,
        ...{ id: newLedgerId(), identityId: "i", runId: "r", project: "p1", leaseMs: 60_000 },
        ...{ variablesHash, body },
      },
      stands,
    );
  const held = async (variablesHash: string, body?: string) => (await take(variablesHash, body)) as HeldClaim;
  const expire = () => db.query(`UPDATE ${namespace.sql}.delivery_claim SET expires_at = now()`);
  const rows = new LedgerRows(db, namespace, new Audit(namespace));
  const look = () => claims.look(key);
  return { claims, take, held, expire, rows, look, key, db, namespace };
}

describe("a claim", () => {
  it("is one caller's, until its outcome", async () => {
    const { claims, take, look } = await claimsBench();
    const taken = (await Promise.all(Array.from({ length: 8 }, () => take("h")))).filter((one) => one);
    expect(taken.length).toBe(1);
    expect(await look()).toEqual({ row: undefined, claim: "live" });
    const claim = taken[0] as HeldClaim;
    expect(await claims.complete(claim)).toMatchObject({ id: claim.id, status: "accepted" });
    expect(await claims.complete(claim)).toBeUndefined();
    expect(await look()).toMatchObject({ row: { id: claim.id }, claim: "none" });
    expect(await take("h")).toMatchObject({ id: claim.id, status: "accepted" });
    expect((await look()).claim).toBe("none");
  });

  it("that is dropped leaves nothing behind, and one that is let go unanswered a held row", async () => {
    const { claims, held, take, look } = await claimsBench();
    await claims.drop(await held("h"));
    expect(await look()).toEqual({ row: undefined, claim: "none" });
    const claim = await held("h");
    expect(await claims.hold(claim)).toMatchObject({ id: claim.id, status: "unconfirmed" });
    expect(await take("h")).toMatchObject({ id: claim.id, status: "unconfirmed" });
  });

  it("whose lease ended is held, and accepted after all when its answer comes late", async () => {
    const { claims, held, take, expire, look } = await claimsBench();
    const claim = await held("h");
    expect(await claims.recover()).toBe(0);
    await expire();
    expect((await look()).claim).toBe("dead");
    expect(await take("h")).toBeUndefined();
    expect(await claims.recover()).toBe(1);
    expect(await look()).toMatchObject({ row: { id: claim.id, status: "unconfirmed" }, claim: "none" });
    expect(await claims.complete(claim)).toMatchObject({ id: claim.id, status: "accepted" });
  });

  it("comes too late where the operator has settled it", async () => {
    const { claims, held, expire, rows, look } = await claimsBench();
    const claim = await held("h");
    await expire();
    await claims.recover();
    await rows.settle(OPERATOR, claim.id);
    expect(await claims.complete(claim)).toBeUndefined();
    expect(await claims.hold(claim)).toBeUndefined();
    expect((await look()).row?.status).toBe("settled");
  });

  it("that may be sent again is taken over, under its id where the variables are the same", async () => {
    const { claims, held, take, expire } = await claimsBench();
    const first = await held("h1", "{}");
    expect(await take("h1", "{}")).toBeUndefined();
    await expire();
    expect(await claims.recover()).toBe(0);
    const second = await held("h1", "{}");
    expect(second).toMatchObject({ id: first.id, lease: 2 });
    expect(await claims.complete(first)).toBeUndefined();
    await expire();
    const third = await held("h2", "{}");
    expect(third.id).not.toBe(first.id);
    expect(await claims.complete(third)).toMatchObject({ id: third.id, variables_hash: "h2" });
  });

  it("waits for an outcome that is just being written, and then sees it, whatever the default isolation", async () => {
    const { held, key, db, namespace } = await claimsBench();
    const claim = await held("h");
    const other = new Database({
      url: urlWith({ default_transaction_isolation: "repeatable read" }),
      ...{ max: 1, applicationName: "waits for a claim" },
    });
    const writing = await session();
    await writing.query("BEGIN");
    await writing.query(
      `WITH gone AS (DELETE FROM ${namespace.sql}.delivery_claim RETURNING *)
       INSERT INTO ${namespace.sql}.deliveries (id, identity_id, target, scope, idempotency, run_id, created_at, project)
       SELECT id, identity_id, target, scope, idempotency, run_id, created_at, project FROM gone`,
    );
    const taking = new Claims(other, namespace).take(
      {
        ...key,
        ...{ id: newLedgerId(), identityId: "i", runId: "r", project: "p1", leaseMs: 60_000 },
        ...{ variablesHash: "h", body: undefined },
      },
      (row) => row !== undefined,
    );
    await until("the wait", async () => {
      const waiting = await db.query(
        "SELECT FROM pg_stat_activity WHERE application_name = 'waits for a claim' AND wait_event_type = 'Lock'",
      );
      return waiting.length === 1;
    });
    await writing.query("COMMIT");
    expect(await taking).toMatchObject({ id: claim.id, status: "accepted" });
    await other.close();
  });

  it("whose lease ended leaves no hold where the target is known to have refused", async () => {
    const { claims, held, expire, look } = await claimsBench();
    const claim = await held("h");
    await expire();
    await claims.recover();
    await claims.drop(claim);
    expect(await look()).toEqual({ row: undefined, claim: "none" });
  });

  it("whose held row was released is accepted all the same when its answer comes late", async () => {
    const { claims, held, expire, rows, look } = await claimsBench();
    const claim = await held("h");
    await expire();
    await claims.recover();
    await rows.release(OPERATOR, claim.id);
    expect(await claims.complete(claim)).toMatchObject({ id: claim.id, status: "accepted" });
    expect(await claims.complete(claim)).toBeUndefined();
    expect(await look()).toMatchObject({ row: { id: claim.id }, claim: "none" });
  });

  it("of moved variables is accepted in place of an attested row, whatever the clock said then", async () => {
    const { claims, held, take, db, namespace } = await claimsBench();
    const first = await held("h");
    await claims.complete(first);
    await db.query(
      `UPDATE ${namespace.sql}.deliveries SET status = 'sent', created_at = '2999-01-01T00:00:00Z' WHERE id = $1`,
      [first.id],
    );
    const key = { target: KEY.target, scope: first.made.scope, idempotency: KEY.idempotency };
    const again = await claims.take(
      {
        ...key,
        id: newLedgerId(),
        identityId: "i",
        runId: "r",
        project: "p1",
        leaseMs: 60_000,
        variablesHash: "moved",
        body: "{}",
      },
      () => false,
    );
    expect(await claims.complete(again as HeldClaim)).toMatchObject({
      status: "accepted",
      variables_hash: "moved",
    });
    expect(await take("moved")).toMatchObject({ status: "accepted" });
  });

  it("with nowhere left to be sent to is held, and stands in no other's way", async () => {
    const { claims, held, expire, db, namespace } = await claimsBench();
    const real = await held("h", "{}");
    await db.query(
      `INSERT INTO ${namespace.sql}.delivery_claim
       SELECT target, gen_random_uuid()::text, n::text, 'orphan ' || n, identity_id, run_id, created_at,
              variables_hash, project, body, lease, now() - interval '1 hour'
       FROM ${namespace.sql}.delivery_claim, generate_series(1, 20) n`,
    );
    await expire();
    expect((await claims.resume(16, 60_000)).map(({ id }) => id)).toEqual([real.id]);
    expect(await claims.recover()).toBe(20);
  });

  it("that may be sent again is found by who recovers, once", async () => {
    const { claims, held, expire } = await claimsBench();
    const claim = await held("h", '{"a":1}');
    expect(await claims.resume(16, 60_000)).toEqual([]);
    await expire();
    const found = await Promise.all(Array.from({ length: 4 }, () => claims.resume(16, 60_000)));
    const resumed = found.flat();
    expect(resumed).toMatchObject([
      { id: claim.id, lease: 2, body: '{"a":1}', url: "https://localhost/", disabled: false },
    ]);
    expect(resumed[0]?.secret.length).toBe(32);
  });

  it("of moved variables leaves the row of the earlier send as it was, unless it is accepted", async () => {
    const { claims, take, held, look } = await claimsBench();
    const row = await claims.complete(await held("h1", "{}"));
    const moved = () => false;
    const key = { ...KEY, scope: row?.scope ?? "" };
    const again = (id: string) =>
      claims.take(
        {
          ...key,
          ...{ id, identityId: "i", runId: "r2", project: "p1", leaseMs: 60_000 },
          ...{ variablesHash: "h2", body: "{}" },
        },
        moved,
      );
    await claims.drop((await again(newLedgerId())) as HeldClaim);
    expect((await look()).row).toEqual(row);
    const next = newLedgerId();
    const put = await claims.complete((await again(next)) as HeldClaim);
    expect(put).toMatchObject({ id: next, run_id: "r2", variables_hash: "h2", status: "accepted" });
    expect(await take("h2")).toEqual(put);
  });
});
