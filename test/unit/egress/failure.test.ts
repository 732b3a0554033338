// Categories: by code alone, and the whole of contract section 9's table.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { failed } from "../../../src/egress/failure.ts";
import {
  categoryOf,
  EgressRefusal,
  type FailureCategory,
  outcomeOfStatus,
} from "../../../src/egress/index.ts";

const byCode: [category: FailureCategory, codes: string][] = [
  ["destination not permitted", "EGRESS_DESTINATION"],
  ["address not permitted", "EGRESS_ADDRESS"],
  ["timeout", "ETIMEDOUT"],
  ["connection refused", "ECONNREFUSED"],
  [
    "tls failure",
    `EPROTO ERR_TLS_CERT_ALTNAME_INVALID ERR_SSL_WRONG_VERSION_NUMBER ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION
     ERR_OSSL_EVP_UNSUPPORTED CERT_HAS_EXPIRED CERT_NOT_YET_VALID CERT_REVOKED DEPTH_ZERO_SELF_SIGNED_CERT
     SELF_SIGNED_CERT_IN_CHAIN UNABLE_TO_VERIFY_LEAF_SIGNATURE UNABLE_TO_GET_ISSUER_CERT
     UNABLE_TO_GET_ISSUER_CERT_LOCALLY HOSTNAME_MISMATCH INVALID_CA INVALID_PURPOSE CERT_UNTRUSTED CERT_REJECTED
     CERT_SIGNATURE_FAILURE CERT_CHAIN_TOO_LONG PATH_LENGTH_EXCEEDED UNSPECIFIED`,
  ],
  [
    "network error",
    `ECONNRESET EPIPE EHOSTUNREACH ENETUNREACH ENOTFOUND EAI_AGAIN EINVAL UND_ERR_SOCKET UND_ERR_INVALID_ARG
     UND_ERR_HEADERS_OVERFLOW HPE_INVALID_CONSTANT ERR_INVALID_IP_ADDRESS ERR_ASSERTION EGRESS_UNRESOLVED
     EGRESS_PEER_UNKNOWN EGRESS_STALE EGRESS_DROPPED`,
  ],
];

const coded = (code: string) =>
  Object.assign(new Error("connect ETIMEDOUT 10.0.0.1:443, CERT_HAS_EXPIRED"), { code });
const several = (...codes: string[]) => new AggregateError(codes.map(coded), "all tries failed");

describe("the category of an error", () => {
  for (const [category, codes] of byCode) {
    it.each(codes.split(/\s+/))(`is "${category}" for %s`, (code) => {
      expect(categoryOf(coded(code))).toBe(category);
      expect(categoryOf(several(code))).toBe(category);
      expect(categoryOf(several(code, code))).toBe(category);
    });
  }

  it.each<[string[], FailureCategory]>([
    [["ECONNREFUSED", "ETIMEDOUT"], "timeout"],
    [["ETIMEDOUT", "ECONNREFUSED"], "timeout"],
    [["ECONNREFUSED", "ENETUNREACH"], "network error"],
    [["EHOSTUNREACH", "ENETUNREACH"], "network error"],
    [["ETIMEDOUT", "EGRESS_ADDRESS"], "address not permitted"],
    [["ECONNREFUSED", "CERT_HAS_EXPIRED"], "network error"],
  ])("is, for several addresses tried and %j, %j", (codes, category) => {
    expect(categoryOf(several(...codes))).toBe(category);
  });

  it("goes by the parts of a gathered error, not by the code it bears itself", () => {
    expect(categoryOf(Object.assign(several("ECONNREFUSED", "ENETUNREACH"), { code: "ECONNREFUSED" }))).toBe(
      "network error",
    );
    expect(categoryOf(Object.assign(several(), { code: "ETIMEDOUT" }))).toBe("timeout");
  });

  it.each([
    undefined,
    null,
    "ETIMEDOUT",
    0,
    {},
    [],
    new Error("ECONNREFUSED"),
    { code: 7 },
    { errors: "x" },
    () => {},
  ])("is a network error for %j", (error) => expect(categoryOf(error)).toBe("network error"));

  it("is a refusal's own", () => {
    expect(categoryOf(new EgressRefusal("destination not permitted", "x"))).toBe("destination not permitted");
    expect(categoryOf(new EgressRefusal("address not permitted", "x"))).toBe("address not permitted");
  });

  it("never depends on a message, and is always one of the list", () => {
    const list =
      /^(?:(?:destination|address) not permitted|timeout|connection refused|tls failure|network error)$/;
    fc.assert(
      fc.property(fc.string(), fc.string(), fc.string(), (code, one, other) => {
        const category = categoryOf(Object.assign(new Error(one), { code }));
        expect(category).toMatch(list);
        expect(categoryOf(Object.assign(new Error(other), { code }))).toBe(category);
      }),
    );
  });

  it.each<[FailureCategory, boolean]>([
    ["destination not permitted", false],
    ["address not permitted", false],
    ["redirect not followed", false],
    ["destination answered 503", true],
    ["destination refused with 404", false],
    ["timeout", true],
    ["connection refused", true],
    ["tls failure", true],
    ["network error", true],
  ])("says of %j whether it is tried again: %j", (category, retryable) => {
    expect(failed(category)).toEqual({ kind: "failed", category, retryable });
  });
});

describe("the outcome of a status line", () => {
  it.each([200, 201, 202, 204, 206, 226, 299])("is taken for %i", (status) => {
    expect(outcomeOfStatus(status)).toEqual({ kind: "accepted", status });
  });

  it.each([300, 301, 302, 303, 304, 305, 306, 307, 308, 399])("is a redirect for %i", (status) => {
    expect(outcomeOfStatus(status)).toEqual({
      kind: "failed",
      category: "redirect not followed",
      status,
      retryable: false,
    });
  });

  it.each([400, 401, 403, 404, 407, 408, 410, 413, 421, 425, 428, 430, 451, 499])(
    "is final for %i",
    (status) => {
      const category = `destination refused with ${status}`;
      expect(outcomeOfStatus(status)).toEqual({ kind: "failed", category, status, retryable: false });
    },
  );

  it.each([429, 500, 502, 503, 504, 507, 599, 600, 999])("may pass for %i", (status) => {
    const category = `destination answered ${status}`;
    expect(outcomeOfStatus(status)).toEqual({ kind: "failed", category, status, retryable: true });
  });

  it.each([0, 99, 100, 101, 199])("is a network error for %i", (status) => {
    expect(outcomeOfStatus(status)).toEqual({ kind: "failed", category: "network error", retryable: true });
  });
});
