// Exact JSON against an oracle: JSON.parse's own source text access, slow and beyond doubt.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseExact, stringifyExact } from "../../../src/json/exact.ts";

function oracle(text: string): unknown {
  const revive = (_key: string, value: unknown, { source = "" }: { source?: string }) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source)
      ? BigInt(source)
      : value;
  return JSON.parse(text, revive as (this: unknown, key: string, value: unknown) => unknown);
}

const digits = fc.stringMatching(/^[1-9][0-9]{0,24}$/);
/** Numbers as JSON may write them, mostly around the length at which a double stops being exact. */
const number = fc
  .tuple(
    fc.constantFrom("", "-"),
    fc.oneof(fc.constant("0"), digits),
    fc.constantFrom("", "", ".", "."),
    digits,
    fc.constantFrom("", "", "e", "E", "e+", "E-"),
    fc.integer({ min: 0, max: 40 }),
  )
  .map(
    ([sign, whole, point, fraction, e, exponent]) =>
      `${sign}${whole}${point && point + fraction}${e && `${e}${exponent}`}`,
  );
/** Strings of what could be taken for a number, a string's end or an escape. */
const string = fc
  .array(
    fc.constantFrom(
      '"',
      "\\",
      "12345678901234567890",
      "-9007199254740993",
      ":",
      ",",
      "[",
      " ",
      "\n",
      "é",
      "😀",
    ),
  )
  .map((parts) => JSON.stringify(parts.join("")));
const { text } = fc.letrec<{ text: string }>((tie) => ({
  text: fc.oneof(
    { maxDepth: 4 },
    number,
    string,
    fc.constantFrom("true", "false", "null"),
    fc.array(tie("text"), { maxLength: 5 }).map((members) => `[${members.join(" , ")}]`),
    fc
      .array(fc.tuple(string, tie("text")), { maxLength: 5 })
      .map((members) => `{${members.map(([key, member]) => `${key}:${member}`).join(",")}}`),
  ),
}));

describe("parseExact", () => {
  it("reads what JSON.parse reads, and every integer exactly", () => {
    fc.assert(
      fc.property(text, (json) => {
        expect(parseExact(json)).toEqual(oracle(json));
      }),
      { numRuns: 2_000 },
    );
  });

  it("keeps every integer of the bigint range through a round trip", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (value) => {
        const read = parseExact(stringifyExact({ value })) as { value: number | bigint };
        expect(BigInt(read.value)).toBe(value);
        expect(typeof read.value).toBe(Number.isSafeInteger(Number(value)) ? "number" : "bigint");
      }),
    );
  });

  it("gives a BigInt exactly where a double is no longer safe", () => {
    expect(parseExact("[9007199254740991,9007199254740992,9007199254740993]")).toEqual([
      9007199254740991,
      9007199254740992n,
      9007199254740993n,
    ]);
    expect(parseExact("[-9007199254740991,-9007199254740993]")).toEqual([
      -9007199254740991,
      -9007199254740993n,
    ]);
  });

  it("refuses what JSON.parse refuses", () => {
    for (const broken of [
      "",
      "01234567890123456789",
      "+12345678901234567",
      "12345678901234567n",
      "[12345678901234567",
      '{"a":12345678901234567,}',
      '"12345678901234567',
    ]) {
      expect(() => parseExact(broken), broken).toThrow(SyntaxError);
    }
  });

  it("leaves __proto__ an ordinary name", () => {
    const read = parseExact('{"__proto__":{"admin":12345678901234567}}') as object;
    expect(Object.keys(read)).toEqual(["__proto__"]);
    expect(Object.getPrototypeOf(read)).toBe(Object.prototype);
    expect(stringifyExact(read)).toBe('{"__proto__":{"admin":12345678901234567}}');
  });

  it("reads nesting deeper than the stack", () => {
    const depth = 200_000;
    let read = parseExact(`${"[".repeat(depth)}12345678901234567${"]".repeat(depth)}`);
    for (let level = 0; level < depth; level++) [read] = read as unknown[];
    expect(read).toBe(12345678901234567n);
  });

  it("does not spend its time on an integer of a million digits", () => {
    expect(parseExact("9".repeat(1_000_000))).toBe(Number.POSITIVE_INFINITY);
  });
});

describe("stringifyExact", () => {
  it("writes BigInt as an integer, at any depth, and everything else as JSON.stringify", () => {
    expect(stringifyExact({ a: [9223372036854775807n, null], b: "1", c: undefined })).toBe(
      '{"a":[9223372036854775807,null],"b":"1"}',
    );
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(stringifyExact(value)).toBe(JSON.stringify(value));
      }),
    );
  });
});
