// The demo as a newcomer runs it: a process of its own, in an environment that would mislead it.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

/** The demo's TMPDIR: what it leaves would be in here. */
let directory: string;
const taken = createServer();

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "taisce-demo-test-"));
  // Under root PostgreSQL runs as another user, who has to get through.
  chmodSync(directory, 0o755);
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
});

afterEach(async () => {
  await new Promise((resolve) => taken.close(resolve));
  rmSync(directory, { recursive: true, force: true });
});

/** None of it is the demo's business; each of it would break a demo that listened. */
function misleading(): Record<string, string> {
  const { port } = taken.address() as { port: number };
  return {
    DATABASE_URL: "postgresql://nobody:wrong@127.0.0.1:1/nowhere",
    TAISCE_LISTEN_DATABASE_URL: "postgresql://nobody:wrong@127.0.0.1:1/nowhere",
    TAISCE_DATA_DIR: "/proc/nowhere",
    TAISCE_NAMESPACE: "Not A Namespace",
    TAISCE_ROLE: "worker",
    TAISCE_HOST: "192.0.2.1",
    TAISCE_PORT: String(port),
    TAISCE_NOTIFY_DESTINATIONS: "elsewhere.example",
    TAISCE_NOTIFY_PERMIT_PRIVATE: "false",
    TAISCE_NOTIFY_CA_FILE: "/nonexistent.pem",
    TAISCE_NOTIFY_LISTEN: "off",
    TAISCE_NOTIFY_ATTEMPTS: "1",
    TAISCE_LOG_LEVEL: "trace",
    PGSSLMODE: "require",
    PGOPTIONS: "-c search_path=nowhere",
    PGDATA: "/nonexistent",
    HTTP_PROXY: "http://127.0.0.1:1",
    HTTPS_PROXY: "http://127.0.0.1:1",
    NODE_USE_ENV_PROXY: "1",
  };
}

function demo(...args: string[]) {
  const child = spawn(process.execPath, [MAIN, "demo", ...args], {
    env: { PATH: process.env.PATH, ...misleading(), TMPDIR: directory },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (chunk: string) => {
      output[name] += chunk;
    });
  }
  const ended = once(child, "close").then(([code]) => ({ code: code as number | null, ...output }));
  return { child, output, ended };
}

function expectNothingLeft(): void {
  expect(readdirSync(directory)).toEqual([]);
  expect(commandLines().filter((line) => line.includes(directory))).toEqual([]);
}

function commandLines(): string[] {
  // A slim image has no ps; a Mac has no /proc.
  if (!existsSync("/proc/self/cmdline")) {
    return execFileSync("ps", ["-A", "-o", "args"], { encoding: "utf8" }).split("\n");
  }
  return readdirSync("/proc").flatMap((entry) => {
    try {
      return /^\d+$/.test(entry) ? [readFileSync(`/proc/${entry}/cmdline`, "utf8")] : [];
    } catch {
      return [];
    }
  });
}

test("five turns arrive and are verified, and nothing is left", { timeout: 60_000 }, async () => {
  const { code, stdout, stderr } = await demo("--once", "--turns", "5", "--json").ended;
  expect(stderr).toBe("");
  expect(code).toBe(0);

  const document = JSON.parse(stdout);
  expect(document).toEqual({
    turns: [0, 1, 2, 3, 4].map((offset) => ({ offset, latency_ms: expect.any(Number), verified: true })),
    p50_ms: expect.any(Number),
    p99_ms: expect.any(Number),
    delivered: 5,
    verified: 5,
    parked: { attempts: 4, last_error: "destination answered 503", last_status: 503 },
  });
  const latencies = (document.turns as { latency_ms: number }[])
    .map(({ latency_ms }) => latency_ms)
    .sort((a, b) => a - b);
  expect(latencies[0]).toBeGreaterThan(0);
  expect(document.p50_ms).toBe(latencies[2]);
  expect(document.p99_ms).toBe(latencies[4]);
  expectNothingLeft();
});

test("Ctrl-C between two turns ends it cleanly, with what there is", { timeout: 60_000 }, async () => {
  // More turns than the test waits for; without --once.
  const { child, output, ended } = demo("--turns", "10000");
  await new Promise<void>((resolve) => {
    child.stdout.on("data", () => {
      if (/^ +3 .* verified/m.test(output.stdout)) resolve();
    });
  });
  child.kill("SIGINT");
  // npm passes a terminal's Ctrl-C on: it arrives twice.
  child.kill("SIGINT");
  const { code, stdout, stderr } = await ended;
  expect(stderr).toBe("");
  expect(code).toBe(0);
  const [, delivered, formed, verified] = /^ +(\d+) of (\d+) delivered, (\d+) verified$/m.exec(stdout) ?? [];
  expect(Number(formed)).toBeGreaterThanOrEqual(3);
  expect([delivered, verified]).toEqual([formed, formed]);
  expect(stdout).toContain("everything stopped and removed");
  // Piped: no colours, and lines that fit a terminal.
  expect(stdout).not.toContain("\x1b");
  expect(stdout.split("\n").filter((line) => line.length > 80)).toEqual([]);
  expectNothingLeft();
});

test("SIGTERM while it sets up ends it cleanly", { timeout: 60_000 }, async () => {
  const { child, ended } = demo();
  await expect.poll(() => readdirSync(directory), { timeout: 20_000 }).not.toEqual([]);
  child.kill("SIGTERM");
  const { code, stdout, stderr } = await ended;
  expect(stderr).toBe("");
  expect(code).toBe(0);
  expect(stdout).toContain("nothing is left");
  expectNothingLeft();
});

test("--turns 0 is bad usage", { timeout: 60_000 }, async () => {
  const { code, stdout, stderr } = await demo("--turns", "0").ended;
  expect(code).toBe(2);
  expect(stdout).toBe("");
  expect(stderr).toContain("--turns must be a whole number from 1 to 10000");
  expectNothingLeft();
});
