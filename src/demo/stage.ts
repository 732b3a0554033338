// Sets up everything the demo runs on, all of it real and all of it its own, and takes it down again:
// PostgreSQL, the service, receivers behind TLS, projects with an endpoint each, and the producer's side.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Credentials } from "../credentials/credentials.ts";
import { Database, DatabaseUnavailable } from "../database/database.ts";
import { namespace } from "../database/namespace.ts";
import { Formation } from "../formation/formation.ts";
import { Projects } from "../projects/projects.ts";
import { startService } from "../service/service.ts";
import { readSettings } from "../settings/settings.ts";
import { Api } from "./api.ts";
import type { Certificate } from "./authority.ts";
import { DemoError } from "./error.ts";
import { ownPostgres } from "./own-postgres.ts";
import { type Answer, type Receiver, startReceiver } from "./receiver.ts";
import type { ServiceLog } from "./service-log.ts";
import { now } from "./statistics.ts";

/** What a real deployment does over minutes, in two seconds. */
export const ATTEMPTS = 4;
export const BACKOFF_MS = 200;

const PATH = "/formed";

/** Shows what is under way, and then what came of it. */
export type Step = <Value>(
  label: string,
  work: () => Promise<Value>,
  done: (value: Value) => string,
) => Promise<Value>;

/** A project whose endpoint is a receiver of the demo's. */
export interface DemoProject {
  scope: string;
  token: string;
  url: string;
  receiver: Receiver;
}

/** A turn that formed; `committedAt` is just before its COMMIT was sent. */
export interface FormedTurn {
  offset: bigint;
  committedAt: number;
}

export interface Stage {
  api: Api;
  /** Creates a project and a credential, starts its receiver and registers it over HTTP. */
  addProject(scope: string, answer: Answer): Promise<DemoProject>;
  /** Stores one more turn of the project and forms it. */
  formTurn(scope: string): Promise<FormedTurn>;
  /** Stops and deletes everything; goes on where a part fails. @throws the first failure */
  close(): Promise<void>;
}

/** @throws DemoError, or the service's own error; nothing is left then. The signal's reason if it fires. */
export async function openStage(step: Step, log: ServiceLog, signal: AbortSignal): Promise<Stage> {
  const undo: (() => Promise<unknown>)[] = [];
  const close = async () => {
    log.stopping();
    const failures: unknown[] = [];
    for (let one = undo.pop(); one !== undefined; one = undo.pop()) {
      await one().catch((error: unknown) => failures.push(error));
    }
    if (failures.length > 0) throw failures[0];
  };
  try {
    return { ...(await build(step, log, signal, undo)), close };
  } catch (error) {
    await close();
    // After Ctrl-C the cause is the signal, whatever it made fail: the terminal sends it to children too.
    throw signal.aborted ? signal.reason : error;
  }
}

async function build(
  step: Step,
  log: ServiceLog,
  signal: AbortSignal,
  undo: (() => Promise<unknown>)[],
): Promise<Omit<Stage, "close">> {
  const where = namespace("taisce");

  const postgres = ownPostgres();
  undo.push(postgres.remove);
  const { db, url } = await step(
    "creating a PostgreSQL of the demo's own",
    async () => {
      const url = await postgres.start();
      const db = new Database({ url, max: 2, applicationName: "taisce-notify demo" });
      undo.push(() => db.close());
      const [row] = await db.query<{ server_version: string }>("SHOW server_version");
      return { url, db, version: row?.server_version };
    },
    ({ version }) => `PostgreSQL ${version} in a temporary directory`,
  );
  signal.throwIfAborted();

  const caFile = join(postgres.directory, "ca.pem");
  const certificate = await step(
    "making a certificate authority",
    () => certify(caFile),
    () => "a certificate authority for HTTPS, trusted here only",
  );
  signal.throwIfAborted();

  const api = await step(
    "starting the service",
    async () => {
      const service = await startService(settingsFor(url, postgres.directory, caFile), log.log);
      undo.push(() => service.stop());
      const client = new Api(service.url);
      undo.push(() => client.close());
      await client.listening();
      return client;
    },
    () => "taisce-notify, listening for commits",
  );
  signal.throwIfAborted();

  return {
    api,

    async addProject(scope, answer) {
      await new Projects(db, where).create(scope);
      const { token } = await new Credentials(db, where).issue("demo", scope, "read-write");
      let secret: string | undefined;
      const receiver = await startReceiver({
        certificate,
        host: "localhost",
        answer: () => answer,
        secretFor: () => secret,
      });
      undo.push(() => receiver.close());
      const url = receiver.url(PATH);
      ({ secret } = await api.register(token, url));
      return { scope, token, url, receiver };
    },

    async formTurn(scope) {
      try {
        const [offset = 0n] = await new Formation(db, where).append(scope);
        let committedAt = 0;
        await db.transaction(async (transaction) => {
          await new Formation(transaction, where).form(scope, offset);
          committedAt = now();
        });
        return { offset, committedAt };
      } catch (error) {
        if (!(error instanceof DatabaseUnavailable)) throw error;
        throw new DemoError("the demo's PostgreSQL went away; run the demo again", { cause: error });
      }
    },
  };
}

/** Makes the authority, puts what to trust into `caFile`, and issues the receivers' certificate. */
async function certify(caFile: string): Promise<Certificate> {
  try {
    const { createAuthority } = await import("./authority.ts");
    const authority = await createAuthority();
    writeFileSync(caFile, authority.certPem);
    return await authority.issue({ dns: ["localhost"], ip: ["127.0.0.1", "::1"] });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_MODULE_NOT_FOUND") throw error;
    throw new DemoError(
      "the demo's certificates need the optional package @peculiar/x509, which is not installed here; run npm install --include=optional",
      { cause: error },
    );
  }
}

/** The demo's whole configuration: nothing of the user's environment counts. */
function settingsFor(url: string, directory: string, caFile: string) {
  return readSettings({
    DATABASE_URL: url,
    TAISCE_DATA_DIR: directory,
    TAISCE_PORT: "0",
    TAISCE_NOTIFY_DESTINATIONS: "localhost",
    TAISCE_NOTIFY_PERMIT_PRIVATE: "true",
    TAISCE_NOTIFY_CA_FILE: caFile,
    TAISCE_NOTIFY_ATTEMPTS: String(ATTEMPTS),
    TAISCE_NOTIFY_BACKOFF: `${BACKOFF_MS}ms`,
    // Counting what was delivered reads page after page.
    TAISCE_RATE_LIMIT: "100000",
  });
}
