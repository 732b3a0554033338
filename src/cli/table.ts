// Rows as columns, for people.

/** Aligns rows under a heading; an empty list says so. */
export function table(
  headings: string[],
  rows: (string | number | bigint | null)[][],
  empty: string,
): string {
  if (rows.length === 0) return empty;
  const cells = [headings, ...rows.map((row) => row.map((cell) => (cell === null ? "-" : String(cell))))];
  const widths = headings.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  return cells
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
