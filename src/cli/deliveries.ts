// taisce-notify deliveries list | show | settle | release: the ledger, for the operator of every project
import { Audit } from "../audit/audit.ts";
import { Claims } from "../ledger/claims.ts";
import { LEDGER_STATUSES, type LedgerRow, type LedgerStatus } from "../ledger/ledger.ts";
import { LedgerRows, parseLedgerCursor } from "../ledger/rows.ts";
import { type Command, count, only, text, UsageError } from "./command.ts";
import { table } from "./table.ts";
import { withConnection } from "./with-connection.ts";

const OPERATOR = { project: undefined, principal: undefined };

/** What died in flight shows as what it is: an expired claim is turned into its held row first. */
const withRows = <Value>(environment: NodeJS.ProcessEnv, work: (rows: LedgerRows) => Promise<Value>) =>
  withConnection(environment, async ({ db, namespace }) => {
    await new Claims(db, namespace).recover();
    return work(new LedgerRows(db, namespace, new Audit(namespace)));
  });

function statusFrom(word: string | undefined): LedgerStatus | undefined {
  const known = LEDGER_STATUSES.find((status) => status === word);
  if (word !== undefined && known === undefined) {
    throw new UsageError(`--status must be one of ${LEDGER_STATUSES.join(", ")}, not "${word}"`);
  }
  return known;
}

const columnsOf = (row: LedgerRow & { project: string }) => [
  row.id,
  row.project,
  row.target,
  row.scope,
  row.idempotency,
  row.status,
  row.run_id,
  row.created_at,
];

function ending(
  verb: "settle" | "release",
  summary: string,
  end: (rows: LedgerRows, id: string) => Promise<LedgerRow>,
  what: string,
): Command {
  return {
    name: `deliveries ${verb}`,
    usage: "ID",
    summary,
    positionals: { min: 1, max: 1 },
    async run({ positionals, environment }) {
      const row = await withRows(environment, (rows) => end(rows, only(positionals)));
      return { document: row, text: `${row.target} ${row.idempotency}: ${what}` };
    },
  };
}

export const deliveryCommands: Command[] = [
  {
    name: "deliveries list",
    usage:
      "[--project SCOPE] [--status S] [--target T] [--scope S] [--run-id R] [--identity-id I] [--limit N] [--after CURSOR]",
    summary: "Lists sends and handoffs, newest first; held ones with --status unconfirmed",
    options: {
      project: { type: "string" },
      status: { type: "string" },
      target: { type: "string" },
      scope: { type: "string" },
      "run-id": { type: "string" },
      "identity-id": { type: "string" },
      limit: { type: "string" },
      after: { type: "string" },
    },
    positionals: { min: 0, max: 0 },
    async run({ values, environment }) {
      const after = text(values, "after");
      if (after !== undefined && parseLedgerCursor(after) === undefined) {
        throw new UsageError("--after must be the `next` of an earlier list");
      }
      const filter = {
        project: text(values, "project"),
        status: statusFrom(text(values, "status")),
        target: text(values, "target"),
        scope: text(values, "scope"),
        runId: text(values, "run-id"),
        identityId: text(values, "identity-id"),
        limit: count(text(values, "limit") ?? "50", "--limit", 1, 200),
        after,
      };
      const page = await withRows(environment, (rows) => rows.list(filter));
      const more = page.next === undefined ? "" : `\n\nmore with: --after ${page.next}`;
      return {
        document: page,
        text:
          table(
            ["ID", "PROJECT", "TARGET", "SCOPE", "KEY", "STATUS", "RUN", "CREATED"],
            page.deliveries.map(columnsOf),
            "there is no such delivery",
          ) + more,
      };
    },
  },
  {
    name: "deliveries show",
    usage: "ID",
    summary: "Shows one row of the ledger",
    positionals: { min: 1, max: 1 },
    async run({ positionals, environment }) {
      const row = await withRows(environment, (rows) => rows.find(only(positionals)));
      return {
        document: row,
        text: table(
          ["COLUMN", "VALUE"],
          Object.entries(row).map(([name, value]) => [name, value]),
          "",
        ),
      };
    },
  },
  ending(
    "settle",
    "Ends a hold: you found the delivery at its target, and it is never sent again",
    (rows, id) => rows.settle(OPERATOR, id),
    "settled; it is never sent again",
  ),
  ending(
    "release",
    "Ends a hold: the target has it not, and the next delivery under its key is sent",
    (rows, id) => rows.release(OPERATOR, id),
    "released; the next delivery under its key is sent",
  ),
];
