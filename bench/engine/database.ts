// The PostgreSQL the benchmark runs on, with the durability it has by default: the one BENCH_DATABASE_URL
// names, else a throwaway cluster of an installed server, else the embedded one. Every measure gets
// databases of its own in it, which go when it ends.
import { execFileSync, spawn } from "node:child_process";
import { chownSync, existsSync, mkdirSync, mkdtempSync, openSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { startEmbeddedPostgres } from "../../src/database/embedded.ts";
import { serverAccount } from "../../src/database/embedded-user.ts";

export interface Server {
  url: string;
  /** For the head of the table. */
  description: string;
  settings: Record<string, string>;
  /** Started for this benchmark alone, which may change its settings. */
  own: boolean;
  /** Its log, each line headed by the database's name and a bar, where it can be read. */
  log?: string;
  stop(): Promise<void>;
}

export interface FreshDatabase {
  name: string;
  url: string;
  /** A session of its owner's. */
  client: pg.Client;
  drop(): Promise<void>;
}

/** Shown in the head of the table: what decides how long a commit takes, and what would make it cheat. */
const SHOWN = [
  "fsync",
  "synchronous_commit",
  "full_page_writes",
  "wal_sync_method",
  "shared_buffers",
  "max_wal_size",
];

export async function startServer(): Promise<Server> {
  const { origin, ...found } = (await given()) ?? (await installed()) ?? (await embedded());
  const client = await session(found.url);
  try {
    const { rows: version } = await client.query("SHOW server_version");
    const { rows } = await client.query(
      "SELECT name, current_setting(name) AS value FROM unnest($1::text[]) name",
      [SHOWN],
    );
    return {
      ...found,
      description: `PostgreSQL ${version[0].server_version} (${origin})`,
      settings: Object.fromEntries(rows.map(({ name, value }) => [name, value])),
    };
  } finally {
    await client.end();
  }
}

type Found = Omit<Server, "description" | "settings"> & { origin: string };

async function given(): Promise<Found | undefined> {
  const url = process.env.BENCH_DATABASE_URL;
  return url === undefined || url === ""
    ? undefined
    : { url, origin: "BENCH_DATABASE_URL", own: false, stop: async () => {} };
}

/** A cluster of its own in a temporary directory, by the newest server that a package installed. */
async function installed(): Promise<Found | undefined> {
  const root = "/usr/lib/postgresql";
  if (!existsSync(root)) return undefined;
  const bin = readdirSync(root)
    .sort((a, b) => Number(b) - Number(a))
    .map((version) => join(root, version, "bin"))
    .find((path) => existsSync(join(path, "initdb")));
  if (bin === undefined) return undefined;

  const directory = mkdtempSync(join(tmpdir(), "taisce-bench-"));
  const data = join(directory, "data");
  mkdirSync(data, { mode: 0o700 });
  // PostgreSQL refuses to run as root.
  const account = serverAccount(data);
  if (account !== undefined) for (const path of [directory, data]) chownSync(path, account.uid, account.gid);
  const options = { cwd: directory, ...account };
  execFileSync(join(bin, "initdb"), ["-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C"], {
    ...options,
    stdio: "pipe",
  });
  const port = await freePort();
  const log = join(directory, "log");
  // In a process group of its own: a Ctrl-C is for this program, which stops the server last.
  const server = spawn(
    join(bin, "postgres"),
    [
      "-D",
      data,
      "-p",
      String(port),
      "-c",
      "listen_addresses=127.0.0.1",
      "-c",
      `unix_socket_directories=${directory}`,
      "-c",
      "log_line_prefix=%d|",
    ],
    { ...options, stdio: ["ignore", "ignore", openSync(log, "a")], detached: true },
  );
  const ended = new Promise((resolve) => server.once("exit", resolve));
  const remove = () => rmSync(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
  const lastResort = () => {
    if (server.exitCode === null) server.kill("SIGQUIT");
    remove();
  };
  process.once("exit", lastResort);
  const url = `postgresql://bench@127.0.0.1:${port}/postgres`;
  for (let tries = 0; ; tries++) {
    try {
      await (await session(url)).end();
      break;
    } catch (error) {
      if (server.exitCode !== null || tries > 300) throw error;
      await sleep(100);
    }
  }
  return {
    url,
    origin: "a throwaway cluster",
    own: true,
    log,
    async stop() {
      server.kill("SIGINT");
      await ended;
      process.off("exit", lastResort);
      remove();
    },
  };
}

async function embedded(): Promise<Found> {
  const directory = mkdtempSync(join(tmpdir(), "taisce-bench-"));
  const server = await startEmbeddedPostgres({ dataDir: directory });
  return {
    url: server.url,
    origin: "embedded",
    own: true,
    async stop() {
      await server.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** Databases of one run of the benchmark, told apart from any other's by the process. */
export class Databases {
  readonly server: Pick<Server, "url" | "own" | "log">;
  readonly #open = new Set<FreshDatabase>();
  #made = 0;

  constructor(server: Server) {
    this.server = server;
  }

  async create(): Promise<FreshDatabase> {
    const name = `bench_${process.pid}_${++this.#made}`;
    await this.admin(`CREATE DATABASE ${name}`);
    const url = new URL(this.server.url);
    url.pathname = `/${name}`;
    const database: FreshDatabase = {
      name,
      url: url.href,
      client: await session(url.href),
      drop: async () => {
        if (!this.#open.delete(database)) return;
        await database.client.end();
        await this.admin(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
      },
    };
    this.#open.add(database);
    return database;
  }

  /** One statement, in the database that the server's address names. */
  readonly admin = async (text: string, values?: unknown[]): Promise<Record<string, unknown>[]> => {
    const client = await session(this.server.url);
    try {
      return (await client.query(text, values)).rows;
    } finally {
      await client.end();
    }
  };

  async dropAll(): Promise<void> {
    for (const database of this.#open) await database.drop();
  }
}

export async function session(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: "bench" });
  client.on("error", () => {});
  await client.connect();
  return client;
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}
