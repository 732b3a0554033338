import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseSignal } from "../../../src/signals/signal.ts";

const payload = (formed: string, scope = "p1") =>
  `{"scope":"${scope}","formed_through":${formed},"stored_through":${formed},"formed_turns":3,"parked_turns":0}`;

describe("parseSignal", () => {
  it("reads the contract's payload", () => {
    expect(
      parseSignal(
        '{"scope":"p1","formed_through":412,"stored_through":418,"formed_turns":3,"parked_turns":0}',
      ),
    ).toEqual({ scope: "p1", formedThrough: 412n, storedThrough: 418n, formedTurns: 3, parkedTurns: 0 });
  });

  it("is exact over the whole bigint range", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 9_223_372_036_854_775_807n }), (formed) => {
        expect(parseSignal(payload(String(formed)))?.formedThrough).toBe(formed);
      }),
    );
    expect(parseSignal(payload("9223372036854775808"))).toBeUndefined();
  });

  it("never throws and takes nothing else for a signal", () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(parseSignal(text)).toBeUndefined();
      }),
    );
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(parseSignal(text)).toBeUndefined();
      }),
    );
    for (const text of [
      payload("-1"),
      payload("1.5"),
      payload("1e400"),
      payload('"1"'),
      payload("1", "P1"),
      "[]",
      "null",
    ]) {
      expect(parseSignal(text)).toBeUndefined();
    }
  });
});
