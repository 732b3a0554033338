// What a body may be, byte by byte; readBytes is tested on real connections in http-server.test.ts.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { parseBody } from "../../../src/api/body.ts";
import { ApiError } from "../../../src/api/errors.ts";
import { countSchema, offsetSchema } from "../../../src/api/schemas.ts";

const empty = z.strictObject({});
const offset = z.strictObject({ offset: offsetSchema });

function refusal(body: string | Buffer, schema: z.ZodType = empty): string {
  try {
    parseBody(Buffer.from(body as string), schema);
  } catch (error) {
    if (error instanceof ApiError && error.code === "invalid_body" && error.status === 400) {
      return error.message;
    }
    throw error;
  }
  throw new Error(`${body} was accepted`);
}

describe("a body", () => {
  it("counts as {} where there is none, or only JSON's white space", () => {
    for (const nothing of ["", " ", "\r\n\t ", "{}", "\ufeff{}"]) {
      expect(parseBody(Buffer.from(nothing), empty), JSON.stringify(nothing)).toEqual({});
    }
  });

  it("is one JSON object in UTF-8", () => {
    const broken = ["{", "nul", "{}{}", "{'a':1}", "{a:1}", '{"a":1,}', "\u00a0", "undefined", "NaN"];
    const notUtf8 = [Buffer.from([0x7b, 0xff, 0x7d]), Buffer.from('{"a":"\xe9"}', "latin1")];
    for (const body of [...broken, ...notUtf8, Buffer.from("{}", "utf16le")]) {
      expect(refusal(body), String(body)).toBe("The body must be one JSON object in UTF-8.");
    }
    for (const other of [
      "[]",
      "null",
      "1",
      '"{}"',
      "true",
      "9007199254740993",
      "[".repeat(1_000) + "]".repeat(1_000),
    ]) {
      expect(refusal(other), other.slice(0, 20)).toMatch(/^The body cannot be used: .*expected object/);
    }
  });

  it("has no unknown field, whatever its name", () => {
    for (const name of ["extra", "", "__proto__", "constructor", "toString", "hasOwnProperty"]) {
      expect(refusal(JSON.stringify({}).replace("}", `${JSON.stringify(name)}:{}}`)), name).toContain(
        `Unrecognized key: "${name}"`,
      );
    }
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
    expect(refusal('{"offset":1,"__proto__":{"offset":2}}', offset)).toContain("__proto__");
  });

  it("is told what is wrong with it in a few words, however long it is", () => {
    expect(refusal('{"offset":"1"}', offset)).toBe(
      "The body cannot be used: offset: must be an integer from 0 to 2^63-1.",
    );
    expect(refusal(`{"${"k".repeat(1_000_000)}":1}`).length).toBeLessThan(400);
    const names = Array.from({ length: 50_000 }, (_, n) => `"k${n}":1`);
    expect(refusal(`{${names.join(",")}}`).length).toBeLessThan(400);
  });
});

describe("an offset", () => {
  const read = (digits: string) => parseBody(Buffer.from(`{"offset":${digits}}`), offset).offset;

  it("is exact over the whole bigint range", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }), (value) => {
        expect(read(String(value))).toBe(value);
      }),
    );
    expect(read("9007199254740993")).toBe(9007199254740993n);
    expect(read("9223372036854775807")).toBe(9223372036854775807n);
  });

  it("is nothing else", () => {
    const others = [
      "-1",
      "9223372036854775808",
      "1.5",
      "1e19",
      "9007199254740993.0",
      '"1"',
      "null",
      "[1]",
      "true",
    ];
    for (const other of [...others, "9".repeat(400), "9".repeat(1_000), "-9223372036854775808"]) {
      expect(refusal(`{"offset":${other}}`, offset), other.slice(0, 30)).toContain("offset: ");
    }
  });
});

describe("a count", () => {
  it("is an integer that PostgreSQL's integer holds", () => {
    const count = z.strictObject({ count: countSchema });
    expect(parseBody(Buffer.from('{"count":2147483647}'), count)).toEqual({ count: 2147483647 });
    for (const other of ["-1", "2147483648", "9007199254740993", "0.5", '"0"']) {
      expect(refusal(`{"count":${other}}`, count), other).toContain("count: ");
    }
  });
});
