// What one scenario plays on: a namespace of its own with projects and endpoints, the receiver, links, three
// replicas and the writers. Building it and taking it down.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Audit } from "../../src/audit/audit.ts";
import { Database, type Queryable } from "../../src/database/database.ts";
import { migrate } from "../../src/database/migrate.ts";
import { type Namespace, namespace } from "../../src/database/namespace.ts";
import { createAuthority } from "../../src/demo/authority.ts";
import { type Deliver, Endpoints } from "../../src/notifications/endpoints.ts";
import { Projects } from "../../src/projects/projects.ts";
import { until } from "../support/until.ts";
import type { Cluster } from "./cluster.ts";
import { History } from "./history.ts";
import { Link } from "./link.ts";
import { patient } from "./patient.ts";
import { ReceiverProcess } from "./receiver-process.ts";
import { Replica } from "./replica.ts";
import { Writer } from "./writers.ts";

export const REPLICAS = 3;
export const ATTEMPTS = 6;
/** A lease is the attempt's time limit, two seconds here, and ten seconds more. */
export const LEASE_MS = 12_000;
export const RECONCILE_MS = 3_000;

/** Projects that form all the time, and how many advances a second each of them takes its share of. */
const BUSY = 6;
/** Projects that form once in the whole scenario, in its worst moment: no later advance covers that one up. */
const QUIET = 60;

export interface Endpoint {
  id: string;
  scope: string;
  path: string;
  deliver: Deliver;
}

export interface World {
  cluster: Cluster;
  namespace: Namespace;
  /** Straight to PostgreSQL, past every link, and through its restarts. */
  db: Queryable;
  history: History;
  receiver: ReceiverProcess;
  replicas: Replica[];
  writers: Writer[];
  /** Not started: each is for one advance. */
  quiet: Writer[];
  endpoints: Endpoint[];
  directory: string;
  listening(): Promise<void>;
  close(options: { keep: boolean }): Promise<void>;
}

export interface WorldOptions {
  cluster: Cluster;
  /** A directory for logs and files; made here. */
  directory: string;
  name: string;
  /** A link of its own for each listener. */
  listenLinks: boolean;
  /** Told of each thing that must be ended, so that an interruption can. */
  onOpen: (undo: () => unknown) => void;
}

export async function buildWorld(options: WorldOptions): Promise<World> {
  const { cluster, directory, onOpen } = options;
  mkdirSync(directory, { recursive: true });
  const where = namespace(options.name);
  await migrate({
    url: cluster.url,
    namespace: where,
    channel: `${where.name}_formed`,
    triggers: "install",
    applicationName: "faults",
  });
  const pool = new Database({ url: cluster.url, max: 4, applicationName: "faults", queryTimeoutMs: 60_000 });
  const db = patient(pool);
  const history = new History(db, where);
  await history.create();

  const authority = await createAuthority();
  const caFile = join(directory, "ca.pem");
  writeFileSync(caFile, authority.certPem);
  const receiver = await ReceiverProcess.start(await authority.issue({ dns: ["localhost"] }));
  onOpen(() => receiver.close());
  const { endpoints, secrets } = await register(pool, where, receiver.origin);
  receiver.expect(secrets);

  const replicas: Replica[] = [];
  for (let n = 1; n <= REPLICAS; n++) {
    const replica = new Replica({
      name: `r${n}`,
      directory,
      link: await Link.open(cluster.url),
      listenLink: options.listenLinks ? await Link.open(cluster.url) : undefined,
      environment: {
        TAISCE_NAMESPACE: where.name,
        TAISCE_ROLE: "worker",
        TAISCE_PORT: "0",
        TAISCE_NOTIFY_DESTINATIONS: "localhost",
        TAISCE_NOTIFY_PERMIT_PRIVATE: "true",
        TAISCE_NOTIFY_CA_FILE: caFile,
        TAISCE_NOTIFY_TIMEOUT: "2s",
        TAISCE_NOTIFY_BACKOFF: "500ms",
        TAISCE_NOTIFY_ATTEMPTS: String(ATTEMPTS),
        TAISCE_NOTIFY_RECONCILE: `${RECONCILE_MS}ms`,
      },
    });
    onOpen(() => replica.signal("SIGKILL"));
    replicas.push(replica);
  }
  const writer = (scope: string, n: number) =>
    new Writer({ scope, url: cluster.url, namespace: where, reports: n % 2 === 0 });
  const writers = Array.from({ length: BUSY }, (_, n) => writer(`busy${n}`, n));
  const quiet = Array.from({ length: QUIET }, (_, n) => writer(`quiet${n}`, n));

  return {
    cluster,
    namespace: where,
    db,
    history,
    receiver,
    replicas,
    writers,
    quiet,
    endpoints,
    directory,
    async listening() {
      await until(
        "every replica to listen",
        async () => {
          const states = await Promise.all(replicas.map((replica) => replica.hearing()));
          return states.every((state) => state?.up === true);
        },
        30_000,
      );
    },
    async close({ keep }) {
      receiver.close();
      for (const replica of replicas) {
        await replica.end("SIGKILL");
        await replica.link.close();
        await replica.listenLink.close();
      }
      if (!keep) await history.drop();
      await pool.close();
    },
  };
}

/** Two endpoints a busy project; some have one more, which is slow, or wants the latest only. */
async function register(db: Database, where: Namespace, origin: string) {
  const registry = new Endpoints(db, where, new Audit(where));
  const projects = new Projects(db, where);
  const endpoints: Endpoint[] = [];
  const secrets: [path: string, secret: string][] = [];
  const add = async (scope: string, name: string, ms: number, deliver: Deliver = "every") => {
    const path = `/${scope}/${name}?ms=${ms}`;
    const principal = { id: crypto.randomUUID(), project: scope, access: "read-write", live: true } as const;
    const result = await registry.register(principal, new URL(path, origin).href, deliver);
    if (result.kind !== "registered") throw new Error(result.kind);
    endpoints.push({ id: result.endpoint.id, scope, path, deliver });
    secrets.push([path, result.secret]);
  };
  for (let n = 0; n < BUSY; n++) {
    const scope = `busy${n}`;
    await projects.create(scope);
    await add(scope, "a", 20);
    await add(scope, "b", 20);
    if (n < 2) await add(scope, "latest", 100, "latest");
    if (n === 2) await add(scope, "slow", 300);
  }
  for (let n = 0; n < QUIET; n++) {
    await projects.create(`quiet${n}`);
    await add(`quiet${n}`, "a", 20);
  }
  return { endpoints, secrets };
}
