// Starts what is measured as child processes, and lets none of them outlive the benchmark.
import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { WorkerConfig } from "../workers/config.ts";
import { SECRET, type Setup, type Worker } from "./peer.ts";

const running = new Set<ChildProcess>();

process.once("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/** What still runs, for an interrupted benchmark to end. */
export async function stopAll(): Promise<void> {
  await Promise.all(Array.from(running, stop));
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), 15_000);
  await ended;
  clearTimeout(timer);
}

function track(child: ChildProcess): Worker {
  running.add(child);
  child.once("exit", () => running.delete(child));
  return { pid: child.pid ?? 0, stop: () => stop(child) };
}

/** A contender's worker: `run` works until it is stopped, anything else does one thing and answers. */
export async function startWorker(
  name: string,
  setup: Setup,
  mode: WorkerConfig["mode"],
  more: Partial<WorkerConfig> = {},
): Promise<Worker & { answer: unknown }> {
  const config: WorkerConfig = {
    mode,
    databaseUrl: setup.database.url,
    origin: setup.origin,
    ca: setup.ca,
    concurrency: setup.concurrency,
    secret: SECRET,
    ...more,
  };
  const child = fork(new URL(`../workers/${name}.ts`, import.meta.url), {
    env: { ...process.env, BENCH_WORKER: JSON.stringify(config) },
  });
  const worker = track(child);
  const answer = await new Promise((resolve, reject) => {
    child.once("message", resolve);
    child.once("exit", (code) =>
      reject(new Error(`the ${name} worker ended with ${code} before it was ready`)),
    );
  });
  return { ...worker, answer };
}

const CLI = fileURLToPath(new URL("../../../src/cli/main.ts", import.meta.url));

/** This product's own settings, and none that happen to be set where the benchmark is started. */
function cleanEnvironment(more: Record<string, string>): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(
    ([name]) => !/^(TAISCE_|DATABASE_URL$|PG[A-Z]+$)/.test(name),
  );
  return { ...Object.fromEntries(inherited), ...more };
}

/** One command of this product's, to its end. */
export async function runCli(arguments_: string[], environment: Record<string, string>): Promise<void> {
  const child = spawn(process.execPath, [CLI, ...arguments_], {
    env: cleanEnvironment(environment),
    stdio: ["ignore", "ignore", "inherit"],
  });
  track(child);
  const [code] = await once(child, "exit");
  if (code !== 0) throw new Error(`${arguments_.join(" ")} ended with ${code}`);
}

/** `serve`, as anybody would start it. Resolves once it listens; it may have begun to send by then. */
export async function startService(environment: Record<string, string>): Promise<Worker & { url: string }> {
  // For a look at where its time goes: BENCH_CPU_PROF names a directory for V8's profiles.
  const profile = process.env.BENCH_CPU_PROF;
  const flags = profile === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profile}`];
  const child = spawn(process.execPath, [...flags, CLI, "serve"], {
    env: cleanEnvironment(environment),
    stdio: ["ignore", "pipe", "inherit"],
  });
  const worker = track(child);
  const url = await new Promise<string>((resolve, reject) => {
    let text = "";
    child.stdout.on("data", (chunk) => {
      text += chunk;
      const found = /listening on (\S+)/.exec(text)?.[1];
      if (found !== undefined) resolve(found);
    });
    child.once("exit", (code) => reject(new Error(`serve ended with ${code} before it was ready`)));
  });
  return { ...worker, url };
}
