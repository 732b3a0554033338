// The samples of a measure as a table: a line a contender and condition, each figure its median over the runs
// with the least and the most, and the ratio to the yardstick, graphile-worker mostly.
import type { Measure, Sample } from "./measures/measure.ts";
import { spread } from "./statistics.ts";

export function table(
  { title, columns, yardstick = "graphile" }: Omit<Measure, "run">,
  samples: Sample[],
): string {
  const groups = Map.groupBy(samples, ({ condition, peer }) => `${condition}\n${peer}`);
  const medianOf = (condition: string, peer: string, figure: string) => {
    const group = groups.get(`${condition}\n${peer}`);
    return group === undefined
      ? Number.NaN
      : spread(group.map(({ figures }) => figures[figure] ?? Number.NaN)).median;
  };
  const head = ["", ""];
  for (const { title: name, better } of columns)
    head.push(name, ...(better === undefined ? [] : [`× ${yardstick}`]));
  const lines = [head];
  for (const [key, group] of groups) {
    const [condition = "", peer = ""] = key.split("\n");
    const line = [condition, peer];
    for (const { figure, digits, better } of columns) {
      const values = group.map(({ figures }) => figures[figure]).filter((value) => value !== undefined);
      line.push(values.length === 0 ? "" : withSpread(values, digits));
      if (better === undefined) continue;
      const ratio = medianOf(condition, peer, figure) / medianOf(condition, yardstick, figure);
      line.push(Number.isNaN(ratio) || peer === yardstick ? "" : ratio.toFixed(2));
    }
    lines.push(line);
  }
  return `${title}\n${aligned(lines)}`;
}

function withSpread(values: number[], digits: number): string {
  const { min, median, max, runs } = spread(values);
  const text = median.toFixed(digits);
  return runs === 1 ? text : `${text} (${min.toFixed(digits)}–${max.toFixed(digits)})`;
}

/** Words to the left, figures to the right. */
function aligned(lines: string[][]): string {
  const widths = (lines[0] ?? []).map((_, column) =>
    Math.max(...lines.map((line) => line[column]?.length ?? 0)),
  );
  return lines
    .map((line) =>
      widths
        .map((width, column) =>
          column < 2 ? (line[column] ?? "").padEnd(width) : (line[column] ?? "").padStart(width),
        )
        .join("  ")
        .trimEnd(),
    )
    .map((line) => `  ${line}`)
    .join("\n");
}
