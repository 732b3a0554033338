// sign against the published vector, the stock Standard Webhooks library and the openssl command line.

import { spawnSync } from "node:child_process";
import { createSecretKey } from "node:crypto";
import fc from "fast-check";
import { Webhook } from "standardwebhooks";
import { afterEach, describe, expect, it, vi } from "vitest";
import { sign, signingKey, standardSecret } from "../../../src/signing/index.ts";
import { vector } from "./vector.ts";

const secret = Buffer.from(vector.secret, "hex");
const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;

afterEach(() => {
  vi.useRealTimers();
});

describe("sign", () => {
  const expected = {
    "Taisce-Signature": vector.header,
    "Taisce-Delivery": vector.deliveryId,
    "webhook-id": vector.deliveryId,
    "webhook-timestamp": "1789128260",
    "webhook-signature": vector.standardSignature,
  };

  it("gives exactly the five headers of the vector", () => {
    expect(sign(secret, vector.deliveryId, vector.timestamp, vector.body)).toStrictEqual(expected);
  });

  it("takes secret and body in every form alike", () => {
    for (const key of [secret, new Uint8Array(secret), createSecretKey(secret), signingKey(secret)]) {
      for (const body of [vector.body, Buffer.from(vector.body), new TextEncoder().encode(vector.body)]) {
        expect(sign(key, vector.deliveryId, vector.timestamp, body)).toStrictEqual(expected);
      }
    }
  });

  it("signs a string as UTF-8", () => {
    const body = '{"name":"scéal 🌊"}';
    expect(sign(secret, "id", 1, body)).toStrictEqual(sign(secret, "id", 1, Buffer.from(body, "utf8")));
  });

  it.each([
    ["a short secret", () => sign(Buffer.alloc(31), "id", 1, "")],
    ["a long secret", () => sign(Buffer.alloc(33), "id", 1, "")],
    ["the hex text instead of its bytes", () => sign(Buffer.from(vector.secret), "id", 1, "")],
    ["a key of another size", () => sign(createSecretKey(Buffer.alloc(16)), "id", 1, "")],
    ["an empty id", () => sign(secret, "", 1, "")],
    ["an id that would blur the Standard Webhooks text", () => sign(secret, "a.1", 1, "")],
    ["a fractional time", () => sign(secret, "id", 1.5, "")],
    ["milliseconds beyond exact numbers", () => sign(secret, "id", 2 ** 53, "")],
    ["a negative time", () => sign(secret, "id", -1, "")],
    ["no time", () => sign(secret, "id", Number.NaN, "")],
  ])("refuses %s", (_what, call) => {
    expect(call).toThrow(RangeError);
  });
});

describe("the stock standardwebhooks library", () => {
  it("verifies the vector, at the vector's time", () => {
    // The library reads Date.now() and has no other way to be told the time.
    vi.useFakeTimers({ now: vector.timestamp * 1000, toFake: ["Date"] });
    const headers = sign(secret, vector.deliveryId, vector.timestamp, vector.body);
    const webhook = new Webhook(standardSecret(vector.secret));
    expect(webhook.verify(vector.body, headers)).toMatchObject({ formed_through: 412 });
    expect(() => webhook.verify(vector.body.replace("412", "413"), headers)).toThrow(/No matching signature/);
  });

  it("verifies any secret, id and body signed now, on the real clock", () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 32, maxLength: 32 }),
        fc.uuid(),
        fc.json(),
        (bytes, deliveryId, body) => {
          const headers = sign(bytes, deliveryId, Math.floor(Date.now() / 1000), body);
          const webhook = new Webhook(standardSecret(Buffer.from(bytes).toString("hex")));
          expect(webhook.verify(body, headers)).toEqual(JSON.parse(body));
        },
      ),
    );
  });
});

describe("standardSecret", () => {
  it("spells the vector's secret", () => {
    const spelled = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    expect(standardSecret(vector.secret)).toBe(spelled);
    expect(standardSecret(vector.secret.toUpperCase())).toBe(spelled);
    expect(standardSecret(spelled)).toBe(spelled);
  });

  it.each(["", "00", `${vector.secret}0`, `${vector.secret}\n`, vector.secret.replace("0", "g")])(
    "refuses %j without repeating it",
    (text) => {
      expect(() => standardSecret(text)).toThrow(new RangeError("a signing secret is 64 hex digits"));
    },
  );
});

describe.skipIf(!hasOpenssl)("openssl, as docs/receivers.md has it", () => {
  it.each([
    ["Taisce-Signature", `v1\n${vector.timestamp}\n`, ["-r"], `${vector.signature} *stdin`],
    [
      "webhook-signature",
      `${vector.deliveryId}.${vector.timestamp}.`,
      ["-binary"],
      vector.standardSignature.slice("v1,".length),
    ],
  ])("computes %s of the vector", (_header, head, format, expected) => {
    const args = ["dgst", "-sha256", "-mac", "HMAC", "-macopt", `hexkey:${vector.secret}`, ...format];
    const { stdout, stderr } = spawnSync("openssl", args, { input: head + vector.body });
    expect(stderr.toString()).toBe("");
    expect(format[0] === "-r" ? stdout.toString().trim() : stdout.toString("base64")).toBe(expected);
  });
});
