// verify: what it takes, and everything it must not take.

import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import {
  DEFAULT_TOLERANCE_SECONDS,
  explain,
  sign,
  standardSecret,
  type VerifyFailure,
  type VerifyOptions,
  verify,
} from "../../../src/signing/index.ts";
import { vector } from "./vector.ts";

function check(options: Partial<VerifyOptions> = {}) {
  return verify({
    secret: vector.secret,
    header: vector.header,
    body: vector.body,
    now: () => vector.timestamp,
    ...options,
  });
}

const refused = (reason: VerifyFailure) => ({ ok: false, reason });
const accepted = { ok: true, timestamp: vector.timestamp };

afterEach(() => {
  vi.useRealTimers();
});

describe("verify", () => {
  it("accepts the vector, whatever form its secret and body have", () => {
    expect(check()).toStrictEqual(accepted);
    expect(check({ secret: standardSecret(vector.secret) })).toStrictEqual(accepted);
    expect(check({ secret: vector.secret.toUpperCase() })).toStrictEqual(accepted);
    expect(check({ body: Buffer.from(vector.body) })).toStrictEqual(accepted);
    expect(check({ body: new TextEncoder().encode(vector.body) })).toStrictEqual(accepted);
  });

  it("refuses the body with any one bit flipped", () => {
    fc.assert(
      fc.property(fc.nat(vector.body.length - 1), fc.nat(7), (at, bit) => {
        const body = Buffer.from(vector.body);
        body[at] = (body[at] ?? 0) ^ (1 << bit);
        expect(check({ body })).toStrictEqual(refused("signature mismatch"));
      }),
    );
  });

  it.each([
    ["an empty body", { body: "" }],
    ["a body with a line end appended", { body: `${vector.body}\n` }],
    ["a body written anew", { body: JSON.stringify(JSON.parse(vector.body), null, 1) }],
    ["another secret", { secret: `ff${vector.secret.slice(2)}` }],
    ["another time", { header: vector.header.replace("t=1789128260", "t=1789128261") }],
    ["another signature", { header: vector.header.replace("s=9", "s=8") }],
    [
      "the Standard Webhooks signature in its place",
      {
        header: `v1 t=1789128260 s=${Buffer.from(vector.standardSignature.slice(3), "base64").toString("hex")}`,
      },
    ],
  ])("refuses %s", (_what, options) => {
    expect(check(options)).toStrictEqual(refused("signature mismatch"));
  });

  it.each([
    ["absent", undefined],
    ["sent twice, as a list", [vector.header, vector.header]],
    ["sent twice, joined as Node joins them", `${vector.header}, ${vector.header}`],
    ["empty", ""],
    ["version alone", "v1"],
    ["another version", vector.header.replace("v1", "v2")],
    ["upper-case version", vector.header.replace("v1", "V1")],
    ["without a version", vector.header.replace("v1 ", "")],
    ["without a time", vector.header.replace("t=1789128260 ", "")],
    ["with an empty time", vector.header.replace("1789128260", "")],
    ["without a signature", vector.header.replace(/ s=.*/, "")],
    ["with an empty signature", vector.header.replace(/s=.*/, "s=")],
    ["with its parts swapped", `v1 s=${vector.signature} t=1789128260`],
    ["with a part too many", `${vector.header} x=1`],
    ["with two signatures", `${vector.header} s=${vector.signature}`],
    ["with two spaces", vector.header.replace(" s=", "  s=")],
    ["with a tab", vector.header.replace(" s=", "\ts=")],
    ["with commas", vector.header.replaceAll(" ", ",")],
    ["with a space before", ` ${vector.header}`],
    ["with a space after", `${vector.header} `],
    ["with a line end after", `${vector.header}\n`],
    ["in upper-case hex", vector.header.replace(vector.signature, vector.signature.toUpperCase())],
    ["a digit short", vector.header.slice(0, -1)],
    ["a digit long", `${vector.header}0`],
    ["with something not hex", vector.header.replace("s=9", "s=g")],
    ["with full-width digits", vector.header.replace("t=1", "t=１")],
    ["with a negative time", vector.header.replace("t=", "t=-")],
    ["with a signed time", vector.header.replace("t=", "t=+")],
    ["with a leading zero", vector.header.replace("t=", "t=0")],
    ["with a fraction", vector.header.replace("t=1789128260", "t=1789128260.0")],
    ["with an exponent", vector.header.replace("t=1789128260", "t=1e9")],
    ["with a hex time", vector.header.replace("t=1789128260", "t=0x6aa3c844")],
    ["with a time beyond exact numbers", vector.header.replace("t=1789128260", "t=9007199254740993")],
    ["with a huge time", vector.header.replace("t=1789128260", `t=${"9".repeat(10_000)}`)],
  ])("refuses a header that is %s", (_what, header) => {
    expect(check({ header })).toStrictEqual(refused("malformed header"));
  });

  it.each([
    ["empty", ""],
    ["a digit short", vector.secret.slice(1)],
    ["a digit long", `${vector.secret}0`],
    ["not hex", vector.secret.replace("0", "x")],
    ["with a line end", `${vector.secret}\n`],
    ["base64 without its prefix", standardSecret(vector.secret).slice("whsec_".length)],
    ["a prefix alone", "whsec_"],
    ["a prefix before hex", `whsec_${vector.secret}`],
    ["of 31 bytes", `whsec_${Buffer.alloc(31).toString("base64")}`],
    ["of 33 bytes", `whsec_${Buffer.alloc(33).toString("base64")}`],
    ["base64 with stray bits at its end", standardSecret(vector.secret).replace("8=", "9=")],
    ["base64 without padding", standardSecret(vector.secret).replace("=", "")],
  ])("refuses a secret that is %s", (_what, secret) => {
    expect(check({ secret })).toStrictEqual(refused("malformed secret"));
  });

  it("accepts up to the tolerance and refuses beyond it, in both directions", () => {
    const at = (offset: number, toleranceSeconds?: number) =>
      check({
        now: () => vector.timestamp + offset,
        ...(toleranceSeconds === undefined ? {} : { toleranceSeconds }),
      });
    for (const sign of [1, -1]) {
      expect(at(sign * DEFAULT_TOLERANCE_SECONDS)).toStrictEqual(accepted);
      expect(at(sign * (DEFAULT_TOLERANCE_SECONDS + 1))).toStrictEqual(
        refused("timestamp outside tolerance"),
      );
      expect(at(sign * 10, 10)).toStrictEqual(accepted);
      expect(at(sign * 11, 10)).toStrictEqual(refused("timestamp outside tolerance"));
      expect(at(sign, 0)).toStrictEqual(refused("timestamp outside tolerance"));
    }
    expect(at(0, 0)).toStrictEqual(accepted);
  });

  it("reads the system's clock where it is given none", () => {
    const { secret, header, body } = vector;
    vi.useFakeTimers({ now: vector.timestamp * 1000 + 999, toFake: ["Date"] });
    expect(verify({ secret, header, body, toleranceSeconds: 0 })).toStrictEqual(accepted);
    vi.setSystemTime((vector.timestamp + DEFAULT_TOLERANCE_SECONDS + 1) * 1000);
    expect(verify({ secret, header, body })).toStrictEqual(refused("timestamp outside tolerance"));
  });

  it("refuses where the clock is broken, and throws for a tolerance that is none", () => {
    expect(check({ now: () => Number.NaN })).toStrictEqual(refused("timestamp outside tolerance"));
    expect(() => check({ toleranceSeconds: Number.NaN })).toThrow(RangeError);
    expect(() => check({ toleranceSeconds: -1 })).toThrow(RangeError);
  });

  it("tells whoever lacks the secret nothing about the time", () => {
    const secret = "ab".repeat(32);
    for (const now of [0, vector.timestamp, 2 * vector.timestamp]) {
      expect(check({ secret, now: () => now })).toStrictEqual(refused("signature mismatch"));
    }
  });

  it("accepts whatever sign made, and nothing with another byte of it", () => {
    const bytes32 = fc.uint8Array({ minLength: 32, maxLength: 32 });
    const body = fc.uint8Array({ minLength: 1, maxLength: 2_000 });
    const time = fc.nat(4_000_000_000);
    fc.assert(
      fc.property(bytes32, fc.uuid(), time, body, fc.nat(), (secret, id, timestamp, body, at) => {
        const header = sign(secret, id, timestamp, body)["Taisce-Signature"];
        const options = { secret: Buffer.from(secret).toString("hex"), header, now: () => timestamp };
        expect(verify({ ...options, body })).toStrictEqual({ ok: true, timestamp });
        const altered = Uint8Array.from(body);
        altered[at % body.length] = (altered[at % body.length] ?? 0) ^ 1;
        expect(verify({ ...options, body: altered })).toStrictEqual(refused("signature mismatch"));
      }),
    );
  });

  it("answers, and does not throw, for any header and secret at all", () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (header, secret) => {
        expect(check({ header }).ok).toBe(false);
        expect(check({ secret }).ok).toBe(false);
      }),
    );
  });
});

describe("explain", () => {
  it.each([
    "malformed secret",
    "malformed header",
    "signature mismatch",
    "timestamp outside tolerance",
  ] as const)("has a sentence for %s", (reason) => {
    expect(explain(reason)).toMatch(/^The .+\.$/);
  });
});
