// How long to wait before trying again what must be tried for ever: a connection, a loop's next round.

const FIRST_MS = 100;
const LONGEST_MS = 3_000;

/**
 * Milliseconds before the next try after `failures` in a row: 100, 200, 400 … at most 3,000, plus up
 * to a fifth at random so that replicas do not return in step.
 */
export function reconnectDelay(failures: number, random = Math.random): number {
  const base = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(failures - 1, 10));
  return Math.round(base * (1 + 0.2 * random()));
}
