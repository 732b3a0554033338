// Processes that use an embedded PostgreSQL, directories for it, and a look at what is still running.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import pg from "pg";

const PROGRAM = fileURLToPath(new URL("../postgres/fixtures/embedded-process.ts", import.meta.url));

/** The unprivileged account that every Linux machine has; only root can act as it. */
export const NOBODY = { uid: 65_534, gid: 65_534 };
export const isRoot = userInfo().uid === 0;

const directories: string[] = [];
const children = new Set<ChildProcess>();

/** A new directory that only its owner may enter. */
export function newDirectory(owner?: typeof NOBODY): string {
  const directory = mkdtempSync(join(tmpdir(), "taisce-embedded-"));
  directories.push(directory);
  if (owner !== undefined) chownSync(directory, owner.uid, owner.gid);
  return directory;
}

interface Event {
  event: "started" | "interrupted" | "closed" | "failed";
  url?: string;
  name?: string;
  message?: string;
}

export interface EmbeddedProcess {
  pid: number;
  /** The next thing the process says. */
  next(): Promise<Event>;
  /** Has it leave the server and end; what it said last. */
  leave(): Promise<Event>;
  kill(): Promise<void>;
}

/** Starts a process, in a process group of its own, that joins the directory's server. */
export function embeddedProcess(directory: string, as?: typeof NOBODY): EmbeddedProcess {
  const child = spawn(process.execPath, [PROGRAM, directory], {
    detached: true,
    stdio: ["pipe", "pipe", "inherit"],
    // An environment may hold settings for other servers; they must not get in the way here.
    env: { PATH: process.env.PATH, HOME: directory, PGSSLMODE: "require", PGPORT: "1", PGDATA: "/nowhere" },
    ...as,
  });
  const { pid } = child;
  if (pid === undefined) throw new Error(`${PROGRAM} could not be started`);
  children.add(child);
  const exited = once(child, "exit").then(() => {
    children.delete(child);
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<Event> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error("the process ended without a word");
    return JSON.parse(value) as Event;
  };
  return {
    pid,
    next,
    async leave() {
      child.stdin.end();
      const last = await next();
      await exited;
      return last;
    },
    async kill() {
      child.kill("SIGKILL");
      await exited;
    },
  };
}

/** Runs one statement in a session of its own. */
export async function ask<Row extends pg.QueryResultRow>(url: string, sql: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Row>(sql)).rows;
  } finally {
    await client.end();
  }
}

/** The process id of the directory's server, while it runs. */
export function serverPid(directory: string): number | undefined {
  const data = join(directory, "postgres");
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .find((pid) => {
      const [program = "", ...args] = processFile(pid, "cmdline").split("\0");
      return program.endsWith("/postgres") && args.includes(data);
    });
}

/** Which user a process runs as, and which process group and session it belongs to. */
export function processIds(pid: number): { uid: number; group: number; session: number } {
  const [, , group, session] = processFile(pid, "stat").split(") ").at(-1)?.split(" ").map(Number) ?? [];
  const uid = /^Uid:\s+(\d+)/m.exec(processFile(pid, "status"))?.[1];
  return { uid: Number(uid), group: group ?? 0, session: session ?? 0 };
}

function processFile(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    // It has ended in the meantime.
    return "";
  }
}

/** Ends every process, deletes every directory; the directories in which a server was still running. */
export async function cleanUp(): Promise<string[]> {
  for (const child of children) child.kill("SIGKILL");
  const left = directories.filter((directory) => serverPid(directory) !== undefined);
  for (const directory of left) {
    const pid = serverPid(directory);
    if (pid !== undefined) process.kill(pid, "SIGQUIT");
  }
  for (const directory of directories) {
    rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
  return left;
}
