// Who is let through and what it costs, with the look-up and the record under the test's control.
import { Hono } from "hono";
import { describe, expect, it } from "vitest";
import { Authentication } from "../../../src/api/authentication.ts";
import { answerError } from "../../../src/api/errors.ts";
import type { Audit, AuditEntry } from "../../../src/audit/audit.ts";
import type { Credentials, Principal } from "../../../src/credentials/credentials.ts";
import { newToken, tokenDigest } from "../../../src/credentials/token.ts";
import { quietLog } from "../../support/quiet.ts";

function authentication(rateLimit: number) {
  const known = new Map<string, Principal>();
  const lookedUp: string[] = [];
  const recorded: AuditEntry[] = [];
  const guard = new Authentication({
    db: { query: async () => [] },
    credentials: {
      find: async (digest: Buffer) => {
        lookedUp.push(digest.toString("hex"));
        return known.get(digest.toString("hex"));
      },
    } as unknown as Credentials,
    audit: {
      record: async (_db: unknown, entry: AuditEntry) => void recorded.push(entry),
    } as unknown as Audit,
    rateLimit,
  });
  const app = new Hono();
  app.onError((error, context) => answerError(error, context, quietLog));
  app.get("/", async (context) => context.json(await guard.authenticate(context)));
  return {
    lookedUp,
    recorded,
    issue(live = true): string {
      const token = newToken();
      const digest = (tokenDigest(token) as Buffer).toString("hex");
      known.set(digest, { id: "c1", project: "p1", access: "read-only", live });
      return token;
    },
    async call(authorization?: string, remoteAddress = "192.0.2.1"): Promise<number> {
      const headers = authorization === undefined ? {} : { Authorization: authorization };
      const environment = { incoming: { socket: { remoteAddress } } };
      return (await app.request("/", { headers }, environment)).status;
    },
  };
}

describe("authentication", () => {
  it("takes one bearer token, its scheme in any case, and nothing that only looks like it", async () => {
    const { issue, call } = authentication(1_000);
    const token = issue();
    for (const header of [`Bearer ${token}`, `bearer ${token}`, `BEARER   ${token}`]) {
      expect(await call(header), header).toBe(200);
    }
    const refused = [
      undefined,
      "",
      token,
      "Bearer",
      `Basic ${token}`,
      `Bearer ${token} x`,
      `Bearer ${token}, Bearer ${token}`,
      `Bearer "${token}"`,
      `xBearer ${token}`,
      `Bearer ${token.slice(0, -1)}`,
      `Bearer ${token.toUpperCase()}`,
      `Bearer ${newToken()}`,
    ];
    for (const header of refused) expect(await call(header), header).toBe(401);
  });

  it("asks the database nothing about what cannot be a token", async () => {
    const { call, lookedUp } = authentication(1_000);
    for (const token of ["x", "tsk_short", `tsk_${"!".repeat(43)}`, `tsk_${"a".repeat(10_000)}`]) {
      expect(await call(`Bearer ${token}`)).toBe(401);
    }
    expect(lookedUp).toEqual([]);
  });

  it("asks the database nothing for a credential over its rate", async () => {
    const { issue, call, lookedUp } = authentication(1);
    const token = issue();
    const statuses = [];
    for (let n = 0; n < 20; n++) statuses.push(await call(`Bearer ${token}`));
    expect(statuses.slice(0, 3)).toEqual([200, 200, 429]);
    expect(lookedUp.length).toBe(statuses.filter((status) => status === 200).length);
    expect(await call(`Bearer ${issue()}`)).toBe(200);
  });

  it("records each refusal until there are too many from one address, a whole /64 of IPv6 being one", async () => {
    const { call, recorded, issue } = authentication(1);
    const dead = issue(false);
    for (let n = 0; n < 10; n++) expect(await call(`Bearer ${dead}`, `2001:db8:0:7:${n}::1`)).toBe(401);
    expect(await call(`Bearer ${dead}`, "2001:db8:0:7::2")).toBe(429);
    expect(await call(undefined, "2001:db8:0:7::3")).toBe(429);
    expect(await call(undefined, "2001:db8:0:8::3")).toBe(401);
    // An IPv4 client as a socket that listens on IPv6 sees it.
    for (let n = 0; n < 10; n++) expect(await call(undefined, "::ffff:192.0.2.1")).toBe(401);
    expect(await call(undefined, "::ffff:192.0.2.1")).toBe(429);
    expect(await call(undefined, "::ffff:192.0.2.2")).toBe(401);
    expect(recorded.length).toBe(22);
    expect(recorded[0]).toEqual({
      operation: "authenticate",
      outcome: "refused",
      magnitude: 0,
      principal: "c1",
      project: "p1",
    });
    expect(recorded.at(-1)).toEqual({ operation: "authenticate", outcome: "refused", magnitude: 0 });
    // A live token is let through from an address that is over its refusals.
    expect(await call(`Bearer ${issue()}`, "2001:db8:0:7::2")).toBe(200);
  });
});
