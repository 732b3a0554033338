// The ledger at the command line: from a process that died to a row that is settled, or sent again.
import { describe, expect, it } from "vitest";
import type { LedgerRow } from "../../src/ledger/ledger.ts";
import { cli } from "../support/cli.ts";
import { ledgerBench } from "../support/ledger.ts";

/** A command's document, or its error's one line. */
async function run(environment: Record<string, string>, ...args: string[]) {
  const { code, stdout, stderr } = await cli(["deliveries", ...args, "--json"], environment);
  return { code, stderr, document: stdout === "" ? undefined : JSON.parse(stdout) };
}

describe("taisce-notify deliveries", () => {
  it("shows what is held, settles it, releases it", async () => {
    const { environment, endpoint, deliver, receiver, service, project, test } = await ledgerBench({
      answer: ({ path }) => (path === "/ok" ? 200 : "hang"),
    });
    const ok = await endpoint("/ok");
    const row = (await deliver(ok.id, "fine")).body.delivery as LedgerRow;
    const held = await endpoint("/held");
    for (const key of ["a", "b"]) {
      deliver(held.id, key).catch(() => {});
      await receiver.next(({ path }) => path === "/held");
    }
    await service.kill("SIGKILL");
    await test.db.query(`UPDATE ${test.namespace.sql}.delivery_claim SET expires_at = now()`);

    const list = await run(environment, "list", "--status", "unconfirmed");
    expect(list.document.deliveries.map(({ idempotency }: LedgerRow) => idempotency)).toEqual(["b", "a"]);
    const [b, a] = list.document.deliveries as LedgerRow[];
    expect((await run(environment, "settle", a?.id ?? "")).document).toMatchObject({ status: "settled" });
    expect((await run(environment, "release", b?.id ?? "")).document).toMatchObject({ id: b?.id });
    expect((await run(environment, "show", a?.id ?? "")).document).toEqual({
      ...{ ...a, status: "settled", sent_at: null, project: project.scope },
    });
    const all = await cli(["deliveries", "list", "--project", project.scope], environment);
    expect(all.stdout.split("\n").length).toBe(4);
    expect(all.stdout).toContain(row.id);

    const again = await run(environment, "release", a?.id ?? "");
    expect([again.code, again.stderr]).toEqual([
      1,
      "taisce-notify deliveries release: only a held delivery can be released; this one is settled\n",
    ]);
    const gone = await run(environment, "show", b?.id ?? "");
    expect([gone.code, gone.stderr]).toEqual([
      1,
      "taisce-notify deliveries show: There is no such delivery; list the deliveries for their ids.\n",
    ]);
    for (const usage of [["list", "--status", "lost"], ["list", "--after", "x"], ["show"]]) {
      expect((await run(environment, ...usage)).code).toBe(2);
    }
    const entries = await test.db.query(
      `SELECT operation, principal FROM ${test.namespace.sql}.audit_entry
       WHERE operation IN ('delivery.settle', 'delivery.release') ORDER BY entry_id`,
    );
    expect(entries).toEqual([
      { operation: "delivery.settle", principal: null },
      { operation: "delivery.release", principal: null },
    ]);
  });
});
