/**
 * What an attempt can end in, in the few words that may be stored: the status line or the error's code
 * decides, and nothing else of the error (its message, address, certificate, bytes) gets past this file.
 */

/** Why an attempt failed. The list is closed: contract section 9, and the database checks it. */
export type FailureCategory =
  | "destination not permitted"
  | "address not permitted"
  | "redirect not followed"
  | `destination answered ${number}`
  | `destination refused with ${number}`
  | "timeout"
  | "connection refused"
  | "tls failure"
  | "network error";

/** How one attempt ended. */
export type Outcome =
  | { kind: "accepted"; status: number }
  | Failure
  /** The caller's signal fired, or the sender was closed, before a status line came. */
  | { kind: "aborted" };

/** A failed attempt. `status` is set when a status line came; `retryAfterMs` only on 429 and 503. */
export interface Failure {
  kind: "failed";
  category: FailureCategory;
  status?: number;
  retryable: boolean;
  retryAfterMs?: number;
}

/** The codes our own errors carry. None may be UND_ERR_SOCKET or UND_ERR_INFO: undici redials for ever on those. */
export type EgressCode =
  | "EGRESS_DESTINATION"
  | "EGRESS_ADDRESS"
  | "EGRESS_UNRESOLVED"
  | "EGRESS_PEER_UNKNOWN"
  | "EGRESS_STALE"
  | "EGRESS_DROPPED";

/** An error of this module that is told apart by its code. Its message names no address. */
export class EgressError extends Error {
  override readonly name: string = "EgressError";
  readonly code: EgressCode;

  constructor(code: EgressCode, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * A destination that will not be sent to. `message` speaks of what the caller wrote and what to write
 * instead, never of what a name resolved to, so it may be shown to a client.
 */
export class EgressRefusal extends EgressError {
  override readonly name = "EgressRefusal";
  readonly category: "destination not permitted" | "address not permitted";

  constructor(category: EgressRefusal["category"], message: string) {
    super(category === "destination not permitted" ? "EGRESS_DESTINATION" : "EGRESS_ADDRESS", message);
    this.category = category;
  }
}

/** Node's names for the verdicts of OpenSSL's certificate check; UNSPECIFIED is every verdict it has no name for. */
const CERTIFICATE_CODES: ReadonlySet<string> = new Set([
  "CERT_CHAIN_TOO_LONG",
  "CERT_HAS_EXPIRED",
  "CERT_NOT_YET_VALID",
  "CERT_REJECTED",
  "CERT_REVOKED",
  "CERT_SIGNATURE_FAILURE",
  "CERT_UNTRUSTED",
  "CRL_HAS_EXPIRED",
  "CRL_NOT_YET_VALID",
  "CRL_SIGNATURE_FAILURE",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "ERROR_IN_CERT_NOT_AFTER_FIELD",
  "ERROR_IN_CERT_NOT_BEFORE_FIELD",
  "ERROR_IN_CRL_LAST_UPDATE_FIELD",
  "ERROR_IN_CRL_NEXT_UPDATE_FIELD",
  "HOSTNAME_MISMATCH",
  "INVALID_CA",
  "INVALID_PURPOSE",
  "PATH_LENGTH_EXCEEDED",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY",
  "UNABLE_TO_DECRYPT_CERT_SIGNATURE",
  "UNABLE_TO_DECRYPT_CRL_SIGNATURE",
  "UNABLE_TO_GET_CRL",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNSPECIFIED",
]);

const TLS_CODE = /^(?:ERR_(?:TLS|SSL|OSSL)_|EPROTO$)/;

function ofCode(code: string): FailureCategory {
  if (code === "EGRESS_DESTINATION") return "destination not permitted";
  if (code === "EGRESS_ADDRESS") return "address not permitted";
  // The kernel's; the attempt's own time limit is no error, and undici's are off.
  if (code === "ETIMEDOUT") return "timeout";
  if (code === "ECONNREFUSED") return "connection refused";
  if (CERTIFICATE_CODES.has(code) || TLS_CODE.test(code)) return "tls failure";
  return "network error";
}

function codeOf(error: unknown): string {
  if (typeof error !== "object" || error === null || !("code" in error)) return "";
  return typeof error.code === "string" ? error.code : "";
}

/**
 * The category of an error, by its `code` alone. An error that gathers several, one an address tried, is a
 * timeout if any of them was, and a refused connection only if all were. What is not known is "network error".
 */
export function categoryOf(error: unknown): FailureCategory {
  const parts = typeof error === "object" && error !== null && "errors" in error ? error.errors : undefined;
  if (!Array.isArray(parts) || parts.length === 0) return ofCode(codeOf(error));
  const categories = parts.map((part) => ofCode(codeOf(part)));
  const [first = "network error"] = categories;
  for (const weightiest of ["address not permitted", "timeout"] as const) {
    if (categories.includes(weightiest)) return weightiest;
  }
  return categories.every((category) => category === first) ? first : "network error";
}

/** Whether contract section 9 has another attempt made after this failure. */
function isRetryable(category: FailureCategory): boolean {
  switch (category) {
    case "timeout":
    case "connection refused":
    case "tls failure":
    case "network error":
      return true;
    default:
      return category.startsWith("destination answered ");
  }
}

/** A failure without a status line. */
export function failed(category: FailureCategory): Failure {
  return { kind: "failed", category, retryable: isRetryable(category) };
}

/**
 * The outcome that a final status line decides: 2xx is taken, a redirect is never followed (304 and its like
 * included), 429 and everything from 500 up may pass, any other 4xx is for good. Below 200 nothing is decided,
 * so where such a line ends an attempt it is a network error.
 */
export function outcomeOfStatus(status: number): Exclude<Outcome, { kind: "aborted" }> {
  if (status >= 200 && status < 300) return { kind: "accepted", status };
  if (status < 200) return failed("network error");
  const category = categoryOfStatus(status);
  return { kind: "failed", category, status, retryable: isRetryable(category) };
}

function categoryOfStatus(status: number): FailureCategory {
  if (status === 429 || status >= 500) return `destination answered ${status}`;
  if (status >= 400) return `destination refused with ${status}`;
  return "redirect not followed";
}
