// The figures under the table: percentiles by nearest rank, so that each is a latency that was measured.

/** The smallest of `values` that at least this share of them does not exceed; undefined where there are none. */
export function percentile(values: readonly number[], share: number): number | undefined {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
}

/** Milliseconds as the demo reports them: to the microsecond. */
export function toMicrosecond(milliseconds: number): number {
  return Math.round(milliseconds * 1_000) / 1_000;
}

/** Milliseconds since 1970 with a fraction, on the clock of `ReceivedRequest.receivedAt`. It never steps back. */
export function now(): number {
  return performance.timeOrigin + performance.now();
}
