// Who is calling: a bearer token, looked up at every request, so that revoking takes effect at once.
// One answer for every kind of refusal; each refusal is audited, and a flood of them is slowed down.
import { getConnInfo } from "@hono/node-server/conninfo";
import type { Context } from "hono";
import type { Audit } from "../audit/audit.ts";
import type { Credentials, Principal } from "../credentials/credentials.ts";
import { tokenDigest } from "../credentials/token.ts";
import type { Queryable } from "../database/database.ts";
import { addressKey } from "../egress/address-bytes.ts";
import { ApiError } from "./errors.ts";
import { RateLimit } from "./rate-limit.ts";

export interface AuthenticationOptions {
  db: Queryable;
  credentials: Credentials;
  audit: Audit;
  /** Requests a second of one credential. */
  rateLimit: number;
}

export class Authentication {
  readonly #options: AuthenticationOptions;
  readonly #calls: RateLimit;
  readonly #refusals: RateLimit;

  constructor(options: AuthenticationOptions) {
    this.#options = options;
    this.#calls = new RateLimit(options.rateLimit, options.rateLimit * 2);
    // Each refusal writes a row; without a limit an outsider could fill the disk.
    this.#refusals = new RateLimit(options.rateLimit / 50, Math.max(10, options.rateLimit / 5));
  }

  /** @throws ApiError unauthenticated or rate_limited. */
  async authenticate(context: Context): Promise<Principal> {
    const token = /^bearer +(\S+)$/i.exec(context.req.header("authorization") ?? "")?.[1];
    const digest = token === undefined ? undefined : tokenDigest(token);
    if (digest === undefined) return await this.refuse(context);
    // Only tokens found live have a key here, so one over its rate costs no query.
    const key = digest.toString("base64");
    this.#tell(this.#calls.wait(key));
    const principal = await this.#options.credentials.find(digest);
    if (principal?.live !== true) return await this.refuse(context, principal);
    this.#tell(this.#calls.take(key));
    return principal;
  }

  /** Before anything is done for someone who shows no token. @throws ApiError rate_limited */
  admit(context: Context): void {
    this.#tell(this.#refusals.wait(clientKey(getConnInfo(context).remote.address)));
  }

  /** A call of someone known without a token. @throws ApiError rate_limited */
  count(caller: string): void {
    this.#tell(this.#calls.take(caller));
  }

  /** @throws ApiError unauthenticated or rate_limited, always. */
  async refuse(context: Context, principal?: Principal): Promise<never> {
    this.#tell(this.#refusals.take(clientKey(getConnInfo(context).remote.address)));
    await this.#options.audit.record(this.#options.db, {
      operation: "authenticate",
      outcome: "refused",
      magnitude: 0,
      ...(principal === undefined ? {} : { principal: principal.id, project: principal.project }),
    });
    throw new ApiError(
      "unauthenticated",
      "This needs a live project credential: send Authorization: Bearer tsk_… with a token that an operator issued.",
      { headers: { "WWW-Authenticate": "Bearer" } },
    );
  }

  #tell(seconds: number): void {
    if (seconds === 0) return;
    throw new ApiError("rate_limited", `Too many requests; try again in ${seconds} s.`, {
      headers: { "Retry-After": String(seconds) },
    });
  }
}

/** A client of IPv6 usually has a whole /64 to send from, which counts as one address. */
function clientKey(address: string | undefined): string {
  const key = addressKey(address ?? "") ?? "unknown";
  const isIPv6 = key.length === 32 && !key.startsWith("00000000000000000000ffff");
  return isIPv6 ? key.slice(0, 16) : key;
}
