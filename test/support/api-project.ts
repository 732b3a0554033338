// A service that takes calls, and projects with their two kinds of credential to make them.
import { Audit } from "../../src/audit/audit.ts";
import { Credentials, type Principal } from "../../src/credentials/credentials.ts";
import { Formation } from "../../src/formation/formation.ts";
import { Endpoints } from "../../src/notifications/endpoints.ts";
import { Projects } from "../../src/projects/projects.ts";
import { type ApiClient, api } from "./api.ts";
import { type Environment, type ServeProcess, serve } from "./cli.ts";
import { freshName, type TestNamespace, testNamespace } from "./namespaces.ts";

export const REGISTER = "/v1/notifications/endpoints/register";
export const LIST = "/v1/notifications/endpoints/list";
export const DISABLE = "/v1/notifications/endpoints/disable";
export const DELIVERIES = "/v1/notifications/deliveries/list";
export const ADVANCE = "/v1/formation/advance";
export const FRESHNESS = "/v1/freshness";
export const TAKE = "/v1/groups/take";
export const DELIVER = "/v1/deliveries/deliver";
export const ROWS = "/v1/deliveries/list";
export const ATTEST = "/v1/deliveries/attest";
export const SETTLE = "/v1/deliveries/settle";
export const RELEASE = "/v1/deliveries/release";
export const LEDGER = [DELIVER, ROWS, ATTEST, SETTLE, RELEASE];
export const NOTIFICATIONS = [REGISTER, LIST, DISABLE, DELIVERIES];
export const POSTS = [...NOTIFICATIONS, ...LEDGER, ADVANCE, TAKE];

/** A public address: it is registered without a look-up. Nothing may form where it is, or it is sent to. */
export const PUBLIC = "https://93.184.216.34";

/** One for all tests of a file, made by the first that asks. */
export function once<Value>(make: () => Promise<Value>): () => Promise<Value> {
  let made: Promise<Value> | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

/** A service in the role `api` on a namespace of its own, which lets `PUBLIC` and `group:jobs` be registered. */
export async function apiService(more: Environment = {}): Promise<ServeProcess & { test: TestNamespace }> {
  const test = await testNamespace();
  const service = await serve({
    DATABASE_URL: test.url,
    TAISCE_NAMESPACE: test.namespace.name,
    TAISCE_ROLE: "api",
    TAISCE_NOTIFY_DESTINATIONS: "93.184.216.34,group:jobs",
    ...more,
  });
  return { ...service, test };
}

/** An id that nothing has. */
export const UNKNOWN_ID = "00000000-0000-4000-8000-000000000000";

export interface AuditRow extends Record<string, unknown> {
  operation: string;
  outcome: "allowed" | "refused";
  magnitude: number;
  principal: string | null;
  project: string | null;
  endpoint_id: string | null;
}

export interface ApiProject {
  scope: string;
  /** The read-write credential's. */
  token: string;
  credentialId: string;
  readToken: string;
  readCredentialId: string;
  /** A client with the read-write credential. */
  client: ApiClient;
  /** A client with the read-only one. */
  reader: ApiClient;
  formation: Formation;
  /** The project's audit entries, oldest first. */
  audit(): Promise<AuditRow[]>;
  revokeReader(): Promise<unknown>;
  suspend(): Promise<unknown>;
  resume(): Promise<unknown>;
  /** Registers `count` endpoints without a request for each; `url` is given their numbers. */
  registerMany(count: number, url: (n: number) => string): Promise<string[]>;
}

/** A new project, whose clients call `base`. */
export async function apiProject({ db, namespace }: TestNamespace, base: string): Promise<ApiProject> {
  const scope = freshName();
  const projects = new Projects(db, namespace);
  const credentials = new Credentials(db, namespace);
  const endpoints = new Endpoints(db, namespace, new Audit(namespace));
  await projects.create(scope);
  const write = await credentials.issue("writer", scope, "read-write");
  const read = await credentials.issue("reader", scope, "read-only");
  const principal: Principal = { id: write.id, project: scope, access: "read-write", live: true };
  return {
    scope,
    token: write.token,
    credentialId: write.id,
    readToken: read.token,
    readCredentialId: read.id,
    client: api(base, write.token),
    reader: api(base, read.token),
    formation: new Formation(db, namespace),
    audit: () =>
      db.query<AuditRow>(
        `SELECT operation, outcome, magnitude, principal, project, endpoint_id
         FROM ${namespace.sql}.audit_entry WHERE project = $1 ORDER BY entry_id`,
        [scope],
      ),
    revokeReader: () => credentials.revoke(read.id),
    suspend: () => projects.suspend(scope),
    resume: () => projects.resume(scope),
    async registerMany(count, url) {
      const ids = [];
      for (let n = 0; n < count; n++) {
        const result = await endpoints.register(principal, url(n), "every");
        if (result.kind !== "registered") throw new Error(result.kind);
        ids.push(result.endpoint.id);
      }
      return ids;
    },
  };
}
