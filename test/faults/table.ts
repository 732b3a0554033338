// The rows of a run, for people.
import type { Row } from "./check.ts";

const seconds = (milliseconds: number | undefined) =>
  milliseconds === undefined
    ? "-"
    : Number.isFinite(milliseconds)
      ? `${(milliseconds / 1_000).toFixed(1)} s`
      : "never";

const COLUMNS: [heading: string, cell: (row: Row) => string][] = [
  ["scenario", ({ scenario }) => scenario],
  ["rounds", ({ rounds }) => String(rounds)],
  ["faults", ({ faults }) => String(faults)],
  ["advances", ({ advances }) => String(advances)],
  ["owed", ({ owed }) => String(owed)],
  ["received", ({ received }) => String(received)],
  ["repeated", ({ repeated }) => String(repeated)],
  ["at most", ({ bound }) => String(bound)],
  ["lost", ({ lost }) => String(lost)],
  ["covered", ({ covered }) => String(covered)],
  ["longest wait", ({ longestWaitMs }) => seconds(longestWaitMs)],
  ["recovery", ({ recoveryMs }) => seconds(recoveryMs)],
  ["verdict", ({ broken }) => (broken.length === 0 ? "kept" : "BROKEN")],
];

/** One row a scenario, over all the rounds it was played, and one for all of them. */
export function summary(rows: Row[]): Row[] {
  const each = Array.from(
    Map.groupBy(rows, ({ scenario }) => scenario),
    ([scenario, own]) => added(scenario, own),
  );
  return each.length > 1 ? [...each, added("all", each)] : each;
}

function added(scenario: string, rows: Row[]): Row {
  const sum = (of: (row: Row) => number) => rows.reduce((total, row) => total + of(row), 0);
  const recoveries = rows.flatMap(({ recoveryMs }) => recoveryMs ?? []);
  return {
    scenario,
    rounds: sum(({ rounds }) => rounds),
    faults: sum(({ faults }) => faults),
    advances: sum(({ advances }) => advances),
    owed: sum(({ owed }) => owed),
    received: sum(({ received }) => received),
    repeated: sum(({ repeated }) => repeated),
    bound: sum(({ bound }) => bound),
    lost: sum(({ lost }) => lost),
    covered: sum(({ covered }) => covered),
    longestWaitMs: Math.max(...rows.map(({ longestWaitMs }) => longestWaitMs)),
    recoveryMs: recoveries.length === 0 ? undefined : Math.max(...recoveries),
    notes: rows.flatMap(({ notes }) => notes),
    broken: rows.flatMap(({ broken }) => broken),
  };
}

export function table(rows: Row[]): string {
  const cells = [
    COLUMNS.map(([heading]) => heading),
    ...rows.map((row) => COLUMNS.map(([, cell]) => cell(row))),
  ];
  const widths = COLUMNS.map((_, column) => Math.max(...cells.map((line) => line[column]?.length ?? 0)));
  return cells
    .map((line) =>
      line
        .map((cell, column) =>
          column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0),
        )
        .join("  "),
    )
    .join("\n");
}

/** One row as a line of progress. */
export const line = (row: Row) =>
  COLUMNS.slice(2)
    .map(([heading, cell]) => `${heading} ${cell(row)}`)
    .join(", ");

export const EXPLANATION = `
advances      committed, by what PostgreSQL says afterwards
owed          delivery rows written
received      of them, those the receiver got; what ended as superseded need not arrive
repeated      requests beyond the first of a delivery
at most       claims in flight at a fault, which cost them, and attempts that failed
lost          deliveries that never arrived, and advances no delivery at or above them told of
covered       advances whose signal was lost, told of by a later one's delivery
longest wait  from the answer to COMMIT until the endpoint knew of it
recovery      until every listener heard signals again`;
