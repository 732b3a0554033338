// Durations as people write them in settings: `500ms`, `5s`, `2m`, `12h`, `30d`.

const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Milliseconds in `text`, or undefined where it is not a whole number followed by ms, s, m, h or d. */
export function parseDuration(text: string): number | undefined {
  const match = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text.trim());
  if (match === null) return undefined;
  const milliseconds = Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS];
  return Number.isSafeInteger(milliseconds) ? milliseconds : undefined;
}

/** The shortest exact way to write a number of milliseconds: 300000 is `5m`. */
export function formatDuration(milliseconds: number): string {
  for (const unit of ["d", "h", "m", "s"] as const) {
    if (milliseconds >= UNIT_MS[unit] && milliseconds % UNIT_MS[unit] === 0) {
      return `${milliseconds / UNIT_MS[unit]}${unit}`;
    }
  }
  return `${milliseconds}ms`;
}
