// parsePayload: exact offsets, and nothing but a notification.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { PayloadError, parsePayload } from "../../../src/signing/index.ts";
import { vector } from "./vector.ts";

const MAX = 9223372036854775807n;

describe("parsePayload", () => {
  it("reads the vector, as text and as bytes", () => {
    const expected = {
      version: "taisce-notification/v1",
      scope: "p1",
      formedThrough: 412n,
      storedThrough: 418n,
      parkedTurns: 0,
      occurredAt: new Date("2026-09-11T09:44:20Z"),
    };
    expect(parsePayload(vector.body)).toStrictEqual(expected);
    expect(parsePayload(Buffer.from(vector.body))).toStrictEqual(expected);
  });

  it("keeps every offset exact, up to the highest bigint", () => {
    const offset = fc.oneof(
      fc.bigInt(0n, MAX),
      fc.constantFrom(0n, 2n ** 53n, 2n ** 53n + 1n, MAX - 1n, MAX),
    );
    fc.assert(
      fc.property(offset, offset, (formed, stored) => {
        const body = vector.body.replace(":412,", `:${formed},`).replace(":418,", `:${stored},`);
        expect(parsePayload(body)).toMatchObject({ formedThrough: formed, storedThrough: stored });
      }),
    );
  });

  it("takes the fields in any order", () => {
    const { version, ...rest } = JSON.parse(vector.body);
    expect(parsePayload(JSON.stringify({ ...rest, version }))).toStrictEqual(parsePayload(vector.body));
  });

  it.each([
    ["nothing", "", "not JSON"],
    ["a cut body", vector.body.slice(0, -1), "not JSON"],
    ["bytes that are not UTF-8", Buffer.concat([Buffer.from(vector.body), Buffer.of(0xff)]), "not JSON"],
    ["a byte order mark", Buffer.from(`\ufeff${vector.body}`), "not JSON"],
    ["null", "null", "not a JSON object"],
    ["a number", "412", "not a JSON object"],
    ["a list", `[${vector.body}]`, "not a JSON object"],
    ["an unknown field", vector.body.replace("}", ',"x":1}'), "has a field"],
    ["a field named __proto__", vector.body.replace("}", ',"__proto__":{}}'), "has a field"],
    ["a missing field", vector.body.replace('"stored_through":418,', ""), "stored_through is missing"],
    ["another version", vector.body.replace("/v1", "/v2"), "version is not"],
    ["a scope in upper case", vector.body.replace("p1", "P1"), "scope is not"],
    ["a scope that is a number", vector.body.replace('"p1"', "1"), "scope is not"],
    ["an offset in quotes", vector.body.replace("412", '"412"'), "formed_through is not"],
    ["no offset", vector.body.replace("412", "null"), "formed_through is not"],
    ["a negative offset", vector.body.replace("412", "-1"), "formed_through is not"],
    ["minus zero", vector.body.replace("412", "-0"), "formed_through is not"],
    ["a fraction", vector.body.replace("412", "412.0"), "formed_through is not"],
    ["an exponent", vector.body.replace("412", "4e2"), "formed_through is not"],
    ["an offset past bigint", vector.body.replace("412", String(MAX + 1n)), "formed_through is not"],
    ["an object posing as a number", vector.body.replace("412", '{"text":"412"}'), "formed_through is not"],
    ["parked turns past integer", vector.body.replace(":0,", ":2147483648,"), "parked_turns is not"],
    ["a time with milliseconds", vector.body.replace("20Z", "20.000Z"), "occurred_at is not"],
    ["a time with an offset", vector.body.replace("20Z", "20+00:00"), "occurred_at is not"],
    ["a day that is none", vector.body.replace("2026-09-11", "2026-02-30"), "occurred_at is not a date"],
    ["a month that is none", vector.body.replace("2026-09-11", "2026-13-11"), "occurred_at is not a date"],
  ])("refuses %s", (_what, body, message) => {
    expect(() => parsePayload(body)).toThrow(PayloadError);
    expect(() => parsePayload(body)).toThrow(message);
  });

  it("refuses anything else that fast-check thinks of with a PayloadError", () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string(), fc.uint8Array()), (body) => {
        expect(() => parsePayload(body)).toThrow(PayloadError);
      }),
    );
  });
});
