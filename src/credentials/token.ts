// What a token looks like and what is kept of it.
import { createHash, randomBytes } from "node:crypto";

const TOKEN_PATTERN = /^tsk_[A-Za-z0-9_-]{43}$/;

/** A new token: `tsk_` and 32 random bytes in base64url. */
export function newToken(): string {
  return `tsk_${randomBytes(32).toString("base64url")}`;
}

/** The SHA-256 that is stored; undefined where `token` cannot be one, which then needs no query. */
export function tokenDigest(token: string): Buffer | undefined {
  return TOKEN_PATTERN.test(token) ? createHash("sha256").update(token).digest() : undefined;
}
