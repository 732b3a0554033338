// The embedded PostgreSQL: the default where no DATABASE_URL is given. One server a data directory,
// shared by every process that uses the directory; the last one to leave stops it, so a server whose
// starter was killed is simply joined by the next process.
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster, type ClusterOptions, EmbeddedPostgresError } from "./embedded-cluster.ts";
import { Presence } from "./embedded-presence.ts";
import { sqlState } from "./sqlstate.ts";

export { EmbeddedPostgresError };

/** Starting, or waiting for another process to start or stop, in all. */
const START_LIMIT_MS = 60_000;
/** How often a port that was free a moment ago may be taken by somebody else. */
const PORT_TRIES = 5;

export interface EmbeddedPostgres {
  url: string;
  /** Leaves the server, and stops it where nobody else is using it. */
  close(): Promise<void>;
}

export interface EmbeddedOptions extends ClusterOptions {
  dataDir: string;
  /** Server settings such as `fsync=off`, for tests. */
  serverSettings?: string[];
  /** Told what takes long: creating the database, starting it. */
  onProgress?: (message: string) => void;
}

/**
 * Joins the directory's server, starting it (and creating the database) where none runs.
 *
 * @throws EmbeddedPostgresError
 */
export async function startEmbeddedPostgres(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const cluster = await Cluster.open(options);
  const deadline = Date.now() + START_LIMIT_MS;
  let failure = "";
  let started = false;
  for (let portTries = 0; Date.now() < deadline; ) {
    const url = cluster.runningServerUrl();
    if (url === undefined) {
      failure = (await cluster.start(await freePort())) ?? "";
      started = failure === "";
      if (started || (isPortTaken(failure) && ++portTries < PORT_TRIES)) continue;
      if (isFatal(failure)) break;
    } else {
      try {
        return using(url, cluster, await Presence.join(url));
      } catch (error) {
        failure = (error as Error).message;
        // It runs and refuses, which it will go on to do.
        if (sqlState(error)?.startsWith("28")) break;
      }
    }
    // Another process is starting or stopping the same server.
    await sleep(100);
  }
  // Nobody else would stop what this call started and cannot use.
  if (started) await cluster.stop().catch(() => {});
  throw new EmbeddedPostgresError(
    `the embedded PostgreSQL in ${cluster.data} did not start${failure === "" ? "" : `; it said: ${failure}`}`,
    `Its log is ${cluster.data}/taisce.log; or set DATABASE_URL.`,
  );
}

function using(url: string, cluster: Cluster, presence: Presence): EmbeddedPostgres {
  let closing: Promise<void> | undefined;
  return {
    url,
    close() {
      closing ??= presence.leave(() => cluster.stop());
      return closing;
    },
  };
}

const isPortTaken = (failure: string) => /could not (bind|create any TCP\/IP sockets)/.test(failure);

function isFatal(failure: string): boolean {
  return (
    /FATAL|PANIC|Permission denied/i.test(failure) && !/lock file|starting up|shutting down/i.test(failure)
  );
}

async function freePort(): Promise<number> {
  return await new Promise((done, fail) => {
    const probe = createServer();
    probe.once("error", (error) =>
      fail(
        new EmbeddedPostgresError(
          `no port on 127.0.0.1 can be had for PostgreSQL: ${error.message}`,
          "Set DATABASE_URL to another server.",
        ),
      ),
    );
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => done(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}
