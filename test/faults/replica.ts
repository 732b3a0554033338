// One replica: `serve` in a process of its own, which can be killed, frozen and started again. Each start is
// a life of its own, and every session of it says in PostgreSQL which life it belongs to.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { until } from "../support/until.ts";
import type { Link } from "./link.ts";

export const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

/** The setting that says in each session whose it is. */
export const WHO = "faults.replica";

const START_LIMIT_MS = 30_000;

export interface ReplicaOptions {
  name: string;
  /** Where its log goes, a file a life. */
  directory: string;
  link: Link;
  /** Another link for LISTEN alone. */
  listenLink?: Link | undefined;
  environment: Record<string, string>;
}

/** What `/metrics` says of a listener. */
export interface Hearing {
  up: boolean;
  signals: number;
}

export class Replica {
  readonly #options: ReplicaOptions;
  #child: ChildProcess | undefined;
  #exited: Promise<number | null> = Promise.resolve(null);
  #url = "";
  #lives = 0;
  /** More environment for the lives to come. */
  environment: Record<string, string> = {};
  /** How often it said that an outcome came after its claim had ended. */
  staleOutcomes = 0;

  constructor(options: ReplicaOptions) {
    this.#options = options;
  }

  /** This life's name, as its sessions give it. */
  get who(): string {
    return `${this.#options.name}.${this.#lives}`;
  }

  get link(): Link {
    return this.#options.link;
  }

  get listenLink(): Link {
    return this.#options.listenLink ?? this.#options.link;
  }

  get alive(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** The environment that any command of the product runs in beside this replica. */
  get settings(): Record<string, string> {
    const { link, listenLink, environment } = this.#options;
    const who = { [WHO]: this.who };
    return {
      PATH: process.env.PATH ?? "",
      HOME: process.env.HOME ?? "",
      DATABASE_URL: link.url(who),
      ...(listenLink === undefined ? {} : { TAISCE_LISTEN_DATABASE_URL: listenLink.url(who) }),
      ...environment,
      ...this.environment,
    };
  }

  /** Starts a new life; settles when it serves. */
  async start(): Promise<void> {
    this.#lives++;
    const { directory } = this.#options;
    const child = spawn(process.execPath, [MAIN, "serve", "--json"], {
      env: this.settings,
      stdio: ["ignore", "pipe", "pipe"],
      // A Ctrl-C in the terminal is for the campaign alone, which then ends this.
      detached: true,
    });
    this.#child = child;
    this.#exited = once(child, "exit").then(([code]) => code as number | null);
    const log = createWriteStream(join(directory, `${this.who}.log`));
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      log.write(text);
      this.staleOutcomes += text.split("outcomes came after their claim had ended").length - 1;
    });
    const line = await Promise.race([
      once(child.stdout.setEncoding("utf8"), "data").then(([text]) => text as string),
      this.#exited.then((code) => {
        throw new Error(`${this.who} ended with ${code} before it served; see ${directory}/${this.who}.log`);
      }),
      sleep(START_LIMIT_MS, undefined, { ref: false }).then(() => {
        throw new Error(`${this.who} did not serve within ${START_LIMIT_MS} ms`);
      }),
    ]);
    this.#url = (JSON.parse(line) as { url: string }).url;
  }

  /** The time by this life's own clock when it said that it serves; Unix ms. */
  async clock(): Promise<number> {
    const line = await until("a line of log", async () => {
      const text = await readFile(join(this.#options.directory, `${this.who}.log`), "utf8");
      return text.split("\n").find((one) => one.includes('"serving"'));
    });
    return Date.parse((JSON.parse(line) as { time: string }).time);
  }

  signal(signal: NodeJS.Signals): void {
    if (this.alive) this.#child?.kill(signal);
  }

  /** Sends the signal and waits for the end; the exit code, null after SIGKILL. */
  async end(signal: "SIGKILL" | "SIGTERM"): Promise<number | null> {
    this.signal(signal);
    return this.#exited;
  }

  /** Undefined where it gives no answer. */
  async hearing(): Promise<Hearing | undefined> {
    try {
      const response = await fetch(`${this.#url}/metrics`, { signal: AbortSignal.timeout(1_000) });
      const text = await response.text();
      return {
        up: metric(text, "taisce_notify_listener_up") === 1,
        signals: metric(text, 'taisce_notify_signals_total{outcome="taken"}') ?? 0,
      };
    } catch {
      return undefined;
    }
  }
}

function metric(metrics: string, name: string): number | undefined {
  const line = metrics.split("\n").find((one) => one.startsWith(`${name} `));
  return line === undefined ? undefined : Number(line.slice(name.length + 1));
}
