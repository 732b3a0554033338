// Token buckets under a clock of the test's own.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RateLimit } from "../../../src/api/rate-limit.ts";

function limited(perSecond: number, burst: number) {
  const clock = { ms: 0 };
  return { clock, limit: new RateLimit(perSecond, burst, () => clock.ms) };
}

describe("a rate limit", () => {
  it("lets a burst through and then one at a time", () => {
    const { clock, limit } = limited(2, 3);
    expect([1, 2, 3, 4].map(() => limit.take("a"))).toEqual([0, 0, 0, 1]);
    clock.ms += 500;
    expect([1, 2].map(() => limit.take("a"))).toEqual([0, 1]);
  });

  it("counts each key for itself", () => {
    const { limit } = limited(1, 1);
    expect([limit.take("a"), limit.take("b"), limit.take("a")]).toEqual([0, 0, 1]);
  });

  it("never lets more through than its burst and its rate", () => {
    const waits = fc.array(fc.integer({ min: 0, max: 3_000 }), { minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 1, max: 20 }),
        waits,
        (rate, burst, ms) => {
          const { clock, limit } = limited(rate, burst);
          let through = 0;
          for (const wait of ms) {
            clock.ms += wait;
            if (limit.take("a") === 0) through++;
            expect(through).toBeLessThanOrEqual(burst + (clock.ms / 1_000) * rate + 1e-6);
          }
        },
      ),
    );
  });

  it("names a wait after which the next one is let through", () => {
    const rates = fc.double({ min: 0.1, max: 1_000, noNaN: true });
    fc.assert(
      fc.property(rates, fc.integer({ min: 1, max: 50 }), (rate, burst) => {
        const { clock, limit } = limited(rate, burst);
        while (limit.take("a") === 0);
        const seconds = limit.take("a");
        expect(seconds).toBeGreaterThanOrEqual(1);
        expect(Number.isInteger(seconds)).toBe(true);
        clock.ms += seconds * 1_000;
        expect(limit.take("a")).toBe(0);
      }),
    );
  });

  it("says how long to wait without taking anything, and knows no key by being asked", () => {
    const { clock, limit } = limited(1, 2);
    expect(limit.wait("a")).toBe(0);
    limit.take("a");
    expect([limit.wait("a"), limit.wait("a")]).toEqual([0, 0]);
    limit.take("a");
    expect([limit.wait("a"), limit.take("a")]).toEqual([1, 1]);
    clock.ms += 1_000;
    expect([limit.wait("a"), limit.take("a"), limit.take("a")]).toEqual([0, 0, 1]);
  });

  it("remembers 10,000 keys and forgets the one used longest ago", () => {
    const { limit } = limited(1, 1);
    limit.take("oldest");
    limit.take("second");
    limit.take("oldest");
    for (let n = 0; n < 9_999; n++) limit.take(`key ${n}`);
    expect(limit.wait("oldest")).toBe(1);
    expect(limit.wait("second")).toBe(0);
  });
});
