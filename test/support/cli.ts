// The real command line in a process of its own, in an environment that holds only what a test gives.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterAll } from "vitest";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

const running = new Set<ChildProcess>();

afterAll(() => {
  for (const child of running) child.kill("SIGKILL");
});

export type Environment = Record<string, string>;

function start(args: string[], environment: Environment, cwd?: string): ChildProcess {
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: { PATH: process.env.PATH, HOME: process.env.HOME, NODE_NO_WARNINGS: "0", ...environment },
    stdio: ["pipe", "pipe", "pipe"],
    ...(cwd === undefined ? {} : { cwd }),
  });
  running.add(child);
  child.once("exit", () => running.delete(child));
  return child;
}

export interface CliResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Runs a command to its end. */
export async function cli(args: string[], environment: Environment = {}, stdin = ""): Promise<CliResult> {
  const child = start(args, environment);
  const stdout = collect(child.stdout);
  const stderr = collect(child.stderr);
  child.stdin?.on("error", () => {});
  child.stdin?.end(stdin);
  const [code] = (await once(child, "close")) as [number | null];
  return { code, stdout: stdout.text, stderr: stderr.text };
}

export interface ServeProcess {
  url: string;
  /** The first project's token, on the first start of an embedded database. */
  token?: string;
  pid: number;
  log(): string;
  /** Sends the signal and waits for the end; the exit code, or null after a SIGKILL. */
  kill(signal: NodeJS.Signals): Promise<number | null>;
}

/** Starts `serve` on a free port and waits until it listens. */
export async function serve(environment: Environment, cwd?: string): Promise<ServeProcess> {
  const child = start(["serve", "--json"], { TAISCE_PORT: "0", ...environment }, cwd);
  const stderr = collect(child.stderr);
  const exited = once(child, "exit").then(([code]) => code as number | null);
  const line = await Promise.race([
    firstLine(child),
    exited.then((code) => {
      throw new Error(`serve ended with ${code} before it listened:\n${stderr.text}`);
    }),
  ]);
  const document = JSON.parse(line) as { url: string; token?: string };
  return {
    ...document,
    pid: child.pid ?? 0,
    log: () => stderr.text,
    kill(signal) {
      child.kill(signal);
      return exited;
    },
  };
}

function collect(stream: NodeJS.ReadableStream | null): { text: string } {
  const collected = { text: "" };
  stream?.setEncoding("utf8");
  stream?.on("data", (chunk: string) => {
    collected.text += chunk;
  });
  return collected;
}

function firstLine(child: ChildProcess): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  let text = "";
  child.stdout?.setEncoding("utf8");
  child.stdout?.on("data", (chunk: string) => {
    text += chunk;
    const end = text.indexOf("\n");
    if (end >= 0) resolve(text.slice(0, end));
  });
  return promise;
}
