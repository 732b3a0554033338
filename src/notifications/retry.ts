// When a failed attempt is tried again. With the defaults (6 attempts, 5 s) the waits are
// 5, 10, 20, 40 and 80 seconds: about two and a half minutes from first to last (contract section 9).

/** Longest wait that doubling leads to. */
const LONGEST_WAIT_MS = 86_400_000;
/** Jitter only ever adds, at most this share: retries spread out and none comes early. */
const JITTER = 0.1;

/**
 * Milliseconds until the next attempt after `attempts` of them; `retryAfterMs`, the receiver's own
 * wish, is a floor. Jitter goes on top of whichever is longer.
 */
export function retryWait(
  attempts: number,
  backoffMs: number,
  retryAfterMs = 0,
  random: () => number = Math.random,
): number {
  const doubled = Math.min(LONGEST_WAIT_MS, backoffMs * 2 ** Math.min(attempts - 1, 40));
  return Math.round(Math.max(doubled, retryAfterMs) * (1 + JITTER * random()));
}
