// Retry-After: both forms, the cap, and what says nothing.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MAX_RETRY_AFTER_MS, retryAfterMs } from "../../../src/egress/retry-after.ts";

const NOW = Date.UTC(1994, 10, 6, 8, 49, 37);

describe("Retry-After", () => {
  it.each<[string | string[] | undefined, number | undefined]>([
    ["0", 0],
    ["1", 1_000],
    [" 120 ", 120_000],
    ["300", 300_000],
    ["301", 300_000],
    ["9".repeat(400), 300_000],
    ["Sun, 06 Nov 1994 08:50:07 GMT", 30_000],
    ["Sunday, 06-Nov-94 08:50:07 GMT", 30_000],
    ["Sun Nov  6 08:50:07 1994", 30_000],
    ["Sun, 06 Nov 1994 08:49:07 GMT", 0],
    ["Thu, 01 Jan 1970 00:00:00 GMT", 0],
    ["Tue, 01 Jan 2999 00:00:00 GMT", 300_000],
    [["7", "9"], 7_000],
    [[], undefined],
    [undefined, undefined],
    ["", undefined],
    ["-1", undefined],
    ["+1", undefined],
    ["1.5", undefined],
    ["1e3", undefined],
    ["0x10", undefined],
    ["soon", undefined],
    ["1994-11-06T08:50:07Z", undefined],
    ["Sun, 06 Nov 1994 08:50:07 +0100", undefined],
    ["Sun, 99 Nov 1994 99:99:99 GMT", undefined],
    ["Abc, 06 Xyz 1994 08:50:07 GMT", undefined],
  ])("reads %j as %j ms", (value, expected) => {
    expect(retryAfterMs(value, NOW)).toBe(expected);
  });

  it("is always undefined or within its bounds", () => {
    const value = fc.oneof(
      fc.string(),
      fc.integer().map(String),
      fc.date({ noInvalidDate: true }).map((date) => date.toUTCString()),
    );
    fc.assert(
      fc.property(value, (text) => {
        const wait = retryAfterMs(text);
        if (wait === undefined) return;
        expect(wait).toBeGreaterThanOrEqual(0);
        expect(wait).toBeLessThanOrEqual(MAX_RETRY_AFTER_MS);
      }),
    );
  });
});
