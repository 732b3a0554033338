import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { retryWait } from "../../../src/notifications/retry.ts";

describe("the retry schedule", () => {
  it("waits 5, 10, 20, 40 and 80 seconds with the defaults", () => {
    const waits = [1, 2, 3, 4, 5].map((attempts) => retryWait(attempts, 5_000, undefined, () => 0));
    expect(waits).toEqual([5_000, 10_000, 20_000, 40_000, 80_000]);
  });

  it("adds at most a tenth at random, and never takes away", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 100 }),
        fc.integer({ min: 1, max: 3_600_000 }),
        fc.integer({ min: 0, max: 300_000 }),
        fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
        (attempts, backoff, retryAfter, random) => {
          const least = retryWait(attempts, backoff, retryAfter, () => 0);
          const wait = retryWait(attempts, backoff, retryAfter, () => random);
          expect(wait).toBeGreaterThanOrEqual(least);
          expect(wait).toBeLessThanOrEqual(Math.round(least * 1.1));
          expect(least).toBeGreaterThanOrEqual(retryAfter);
          expect(Number.isSafeInteger(wait)).toBe(true);
        },
      ),
    );
  });
});
