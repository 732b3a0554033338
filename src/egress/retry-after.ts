/** Reads how long a receiver asks to be left alone. */

/** A receiver may not silence its endpoint for longer than this many milliseconds (contract section 9). */
export const MAX_RETRY_AFTER_MS = 300_000;

const SECONDS = /^\d+$/;
/** The three forms of RFC 9110 section 5.6.7: IMF-fixdate, RFC 850, asctime (which has no zone and means UTC). */
const DATES = [
  /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/,
  /^[A-Z][a-z]{5,8}, \d{2}-[A-Z][a-z]{2}-\d{2} \d{2}:\d{2}:\d{2} GMT$/,
  /^[A-Z][a-z]{2} [A-Z][a-z]{2} [\d ]\d \d{2}:\d{2}:\d{2} \d{4}$/,
];

/**
 * Milliseconds from `now` (epoch milliseconds) that a Retry-After value asks for: 0 up to five minutes, or
 * undefined where it says nothing that can be read. A date in the past is 0.
 */
export function retryAfterMs(
  value: string | string[] | undefined,
  now: number = Date.now(),
): number | undefined {
  const text = (Array.isArray(value) ? value[0] : value)?.trim();
  if (text === undefined) return undefined;
  if (SECONDS.test(text)) return Math.min(Number(text) * 1_000, MAX_RETRY_AFTER_MS);
  if (!DATES.some((form) => form.test(text))) return undefined;
  const at = Date.parse(text.endsWith("GMT") ? text : `${text} GMT`);
  return Number.isNaN(at) ? undefined : Math.min(Math.max(at - now, 0), MAX_RETRY_AFTER_MS);
}
