// Canonical JSON: one text for every way to write the same variables.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseExact } from "../../../src/json/exact.ts";
import { canonicalJson, MAX_DEPTH, VariablesError, variablesHash } from "../../../src/ledger/hash.ts";

const canonical = (text: string) => canonicalJson(parseExact(text));

describe("canonical JSON", () => {
  it("is that of RFC 8785", () => {
    // Its examples of sorting (section 3.2.3) and of numbers (appendix B), where they are not integers.
    expect(
      canonical(
        '{"\\u20ac":"Euro Sign","\\r":"Carriage Return","\\ud83d\\ude00":"Emoji","1":"One","\\u0080":"Control","\\u00f6":"Latin"}',
      ),
    ).toBe('{"\\r":"Carriage Return","1":"One","\u0080":"Control","ö":"Latin","€":"Euro Sign","😀":"Emoji"}');
    for (const [text, number] of [
      ["333333333.33333329", "333333333.3333333"],
      ["4.50", "4.5"],
      ["2e-3", "0.002"],
      ["0.000000000000000000000000001", "1e-27"],
      ["-0", "0"],
      ["-1.50E0", "-1.5"],
    ] as const) {
      expect(canonical(text)).toBe(number);
    }
  });

  it("refuses more combining marks in a row than any script writes: composing them takes the square of their number", () => {
    const marks = (count: number) => `a${"\u0301".repeat(count)}${"\u0316".repeat(count)}`;
    expect(canonicalJson(marks(15))).toBe(JSON.stringify(marks(15).normalize("NFC")));
    const startedAt = performance.now();
    expect(() => canonicalJson({ text: marks(400_000) })).toThrow(VariablesError);
    expect(() => canonicalJson({ [marks(16)]: 1 })).toThrow(VariablesError);
    // It took minutes.
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });

  it.each([
    ["the order of members", '{"a":1,"b":{"c":2,"d":3}}', '{ "b" : {"d":3,"c":2}, "a":1 }'],
    ["the spelling of numbers", "[1,100,0.5,1e30]", "[1.0,1e2,5e-1,1000000000000000019884624838656]"],
    ["escapes", '{"é":"/é😀"}', '{"\\u00e9":"\\/\\u00e9\\ud83d\\ude00"}'],
    ["composed and decomposed letters", '{"é":"é"}', '{"e\\u0301":"e\\u0301"}'],
  ])("does not care for %s", (_what, one, other) => {
    expect(canonical(one)).toBe(canonical(other));
  });

  it("tells apart what is not the same", () => {
    const texts = ["1", '"1"', "[1]", "null", "false", "{}", "[]", '""', '{"a":null}', "[1,2]", "[2,1]"];
    const more = ["9007199254740992", "9007199254740993", "12345678901234567000", "12345678901234567168"];
    expect(new Set([...texts, ...more].map(canonical)).size).toBe(texts.length + more.length);
  });

  it("is JSON of the same value, whatever the order of its members", () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: true }), (value) => {
        const text = canonicalJson(value);
        expect(canonicalJson(reversed(value))).toBe(text);
        expect(canonicalJson(JSON.parse(text))).toBe(text);
      }),
    );
  });

  it("keeps both of two names that compose to one", () => {
    const both = { "e\u0301": 1, é: 2 };
    expect(canonicalJson(both)).toBe(canonicalJson(reversed(both)));
    expect(JSON.parse(canonicalJson(both).replace('"é"', '"first"'))).toEqual({ first: 1, é: 2 });
  });

  it("refuses what has none", () => {
    const deep = (levels: number): unknown => (levels === 0 ? 0 : [deep(levels - 1)]);
    expect(() => canonicalJson(deep(MAX_DEPTH + 1))).toThrow(VariablesError);
    expect(() => canonicalJson(deep(MAX_DEPTH))).not.toThrow();
    expect(() => canonical("1e400")).toThrow(VariablesError);
  });

  it("is what is hashed", () => {
    // printf '{"a":1}' | sha256sum
    expect(variablesHash({ a: 1 })).toBe("015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862");
    expect(variablesHash({})).toBe("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
  });
});

function reversed(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(reversed);
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([name, member]) => [name, reversed(member)]),
  );
}
