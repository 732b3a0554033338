// Verifies a received `Taisce-Signature` header: the receiver's half of sign.ts.
//
// Failure policy: closed. Whatever cannot be read, compared or dated is refused.

import { createHmac, createSecretKey, timingSafeEqual } from "node:crypto";
import { decodeSecret } from "./secret.ts";

/** How far a timestamp may be from the receiver's clock, in seconds, where the caller names no tolerance. */
export const DEFAULT_TOLERANCE_SECONDS = 300;

const EXPLANATIONS = {
  "malformed secret":
    "The secret is not one: give the 64 hex digits shown at registration, or their whsec_ form.",
  "malformed header":
    "The Taisce-Signature header is missing or not of the form `v1 t=<seconds> s=<64 hex digits>`.",
  "signature mismatch":
    "The signature does not match: the body was altered or read other than as raw bytes, or the secret is another endpoint's or an old one.",
  "timestamp outside tolerance":
    "The signature is right but was made too long ago or lies in the future: it is a replay, or one of the two clocks is wrong.",
} as const;

/** Why a delivery was refused. The set is closed: a switch over it can be exhaustive. */
export type VerifyFailure = keyof typeof EXPLANATIONS;

/** `timestamp` is when the attempt was signed: Unix time, whole seconds. */
export type VerifyResult =
  | { readonly ok: true; readonly timestamp: number }
  | { readonly ok: false; readonly reason: VerifyFailure };

export interface VerifyOptions {
  /** 64 hex digits as shown at registration, or `whsec_` + base64. */
  readonly secret: string;
  /** The value of `Taisce-Signature`, as `request.headers["taisce-signature"]` has it. */
  readonly header: string | readonly string[] | undefined;
  /** The body as received. Raw bytes: parsing and writing it again changes them. A string is taken as UTF-8. */
  readonly body: string | Uint8Array;
  /** How far the timestamp may be away in either direction, in seconds, inclusive. Default 300. */
  readonly toleranceSeconds?: number;
  /** The receiver's clock in Unix seconds. Default: the system's. */
  readonly now?: () => number;
}

// One spelling of each value: single spaces, lower-case hex, no sign or leading zero. Fifteen digits reach the
// year 33,658 and stay exact as a number.
const HEADER = /^v1 t=(0|[1-9][0-9]{0,14}) s=([0-9a-f]{64})$/;

/**
 * Checks that a delivery was signed with `secret` over exactly this body, not long ago.
 *
 * The signature is compared in constant time, and before the time is looked at: whoever lacks the secret is
 * told `signature mismatch` whatever time they claim, and learns nothing of the clock or the tolerance.
 *
 * Throws a `RangeError` only for a tolerance that is negative or not a number; never for what a sender sent.
 *
 * @example
 * const result = verify({ secret, header: request.headers["taisce-signature"], body });
 * if (!result.ok) return response.writeHead(400).end(explain(result.reason));
 */
export function verify({
  secret,
  header,
  body,
  toleranceSeconds = DEFAULT_TOLERANCE_SECONDS,
  now = systemSeconds,
}: VerifyOptions): VerifyResult {
  if (!(toleranceSeconds >= 0)) throw new RangeError("the tolerance is a number of seconds, 0 or more");

  const key = decodeSecret(secret);
  if (key === undefined) return refused("malformed secret");

  const [, time, signature] = (typeof header === "string" && HEADER.exec(header)) || [];
  if (time === undefined || signature === undefined) return refused("malformed header");

  const expected = createHmac("sha256", createSecretKey(key)).update(`v1\n${time}\n`).update(body).digest();
  if (!timingSafeEqual(expected, Buffer.from(signature, "hex"))) return refused("signature mismatch");

  const timestamp = Number(time);
  // Written so that a clock that answers NaN refuses.
  if (!(Math.abs(now() - timestamp) <= toleranceSeconds)) return refused("timestamp outside tolerance");
  return { ok: true, timestamp };
}

/** A sentence for people that says what a refusal means and what to look at. It repeats nothing received. */
export function explain(reason: VerifyFailure): string {
  return EXPLANATIONS[reason];
}

function refused(reason: VerifyFailure): VerifyResult {
  return { ok: false, reason };
}

function systemSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
