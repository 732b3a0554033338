// Who is calling: a bearer token, looked up at every request, so that revoking takes effect at once.
// One answer for every kind of refusal; each refusal is audited, and a flood of them is slowed down.
import { getConnInfo } from "@hono/node-server/conninfo";
import type { Context } from "hono";
import type { Audit } from "../audit/audit.ts";
import type { Credentials, Principal } from "../credentials/credentials.ts";
import type { Queryable } from "../database/database.ts";
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
    this.#refusals = new RateLimit(options.rateLimit / 10, Math.max(10, options.rateLimit));
  }

  /** @throws ApiError unauthenticated or rate_limited. */
  async authenticate(context: Context): Promise<Principal> {
    const token = /^bearer +(\S+)$/i.exec(context.req.header("authorization") ?? "")?.[1];
    const principal = token === undefined ? undefined : await this.#options.credentials.find(token);
    if (principal?.live !== true) return await this.#refuse(context, principal);
    this.#limit(this.#calls, principal.id);
    return principal;
  }

  async #refuse(context: Context, principal: Principal | undefined): Promise<never> {
    this.#limit(this.#refusals, getConnInfo(context).remote.address ?? "unknown");
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

  #limit(limit: RateLimit, key: string): void {
    const seconds = limit.take(key);
    if (seconds === 0) return;
    throw new ApiError("rate_limited", `Too many requests; try again in ${seconds} s.`, {
      headers: { "Retry-After": String(seconds) },
    });
  }
}
