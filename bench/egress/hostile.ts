// 10,000 attempts against every kind of hostile receiver, and what is left of them: memory after a garbage
// collection, open sockets and timers, before, after each quarter, and at the end. All of it must stay flat.
//
//   node bench/egress/hostile.ts [--attempts 10000] [--at-once 64] [--timeout 500]
//
// The receivers are a process of their own. Takes about two minutes on two processors.

import { fork } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as wait } from "node:timers/promises";
import { parseArgs } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createSender, type Outcome, parseDestinations } from "../../src/egress/index.ts";

const { values } = parseArgs({
  options: {
    attempts: { type: "string", default: "10000" },
    "at-once": { type: "string", default: "64" },
    timeout: { type: "string", default: "500" },
  },
});
const attempts = Number(values.attempts);
const atOnce = Number(values["at-once"]);
const timeoutMs = Number(values.timeout);

/** Milliseconds after which nothing of an attempt may be left: a kept connection lies idle for four seconds. */
const SETTLE_MS = 5_000;
/** Milliseconds until the resolver of the hung names gives up. */
const RESOLVER_MS = 2_000;

setFlagsFromString("--expose-gc");
const collect: () => void = runInNewContext("gc");

const child = fork(new URL("./hostile-receivers.ts", import.meta.url));
const [{ ports, ca }] = (await once(child, "message")) as [{ ports: Record<string, number>; ca: string }];

const urls = Object.entries(ports).map(([kind, port]) => ({
  kind,
  url: () => `https://receiver.test:${port}/`,
}));
let names = 0;
const hostnames: Record<string, () => string> = {
  "hung name": () => `n${names++ % 50}.hung.test`,
  "unknown name": () => "unknown.test",
  "name that turned inside": () => "turned.test",
};
const kinds = [
  ...urls,
  ...Object.entries(hostnames).map(([kind, name]) => ({ kind, url: () => `https://${name()}/` })),
  { kind: "host off the list", url: () => "https://evil.example/" },
];

async function lookup(name: string) {
  if (name.endsWith(".hung.test")) await wait(RESOLVER_MS);
  if (name !== "receiver.test" && name !== "turned.test") throw new Error("SERVFAIL");
  return [{ address: name === "turned.test" ? "0.0.0.0" : "127.0.0.1", family: 4 }];
}

const sender = createSender({
  destinations: parseDestinations("receiver.test, unknown.test, turned.test, .hung.test"),
  permitPrivate: true,
  extraCa: ca,
  timeoutMs,
  userAgent: "taisce-notify/bench",
  connectionsPerOrigin: atOnce,
  lookup,
});

const outcomes = new Map<string, Map<string, number>>();
let slowest = 0;

function tally(kind: string, outcome: Outcome): void {
  const text = outcome.kind === "failed" ? outcome.category : outcome.kind;
  const counts = outcomes.get(kind) ?? new Map<string, number>();
  counts.set(text, (counts.get(text) ?? 0) + 1);
  outcomes.set(kind, counts);
}

let begun = 0;
async function attemptUntil(count: number): Promise<void> {
  const one = async () => {
    while (begun < count) {
      const { kind, url } = kinds[begun++ % kinds.length] as (typeof kinds)[number];
      const startedAt = performance.now();
      tally(kind, await sender.post(url(), { "content-type": "application/json" }, '{"a":1}'));
      slowest = Math.max(slowest, performance.now() - startedAt);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, one));
}

async function show(moment: string): Promise<void> {
  for (let i = 0; i < 3; i++) {
    collect();
    await wait(20);
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  const active = process.getActiveResourcesInfo();
  const of = (pattern: RegExp) => active.filter((name) => pattern.test(name)).length;
  const columns = [
    ...[heapUsed, external, rss].map((bytes) => (bytes / 1_048_576).toFixed(1)),
    String(of(/^(?:TCP|TLS)/)),
    String(of(/Timeout/)),
    process.platform === "linux" ? String(readdirSync("/proc/self/fd").length) : "-",
  ];
  console.log(moment.padEnd(16) + columns.map((text) => text.padStart(11)).join(""));
}

console.log(
  `${attempts} attempts of ${kinds.length} kinds, ${atOnce} at once, limit ${timeoutMs} ms, Node ${process.version}\n`,
);
console.log(`${" ".repeat(16)}   heap MiB   ext. MiB    RSS MiB    sockets     timers      files`);
await show("before");
let heldUpMs = 0;
const startedAt = performance.now();
for (let quarter = 1; quarter <= 4; quarter++) {
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  await attemptUntil(Math.round((attempts * quarter) / 4));
  delay.disable();
  heldUpMs = Math.max(heldUpMs, delay.max / 1e6);
  await wait(SETTLE_MS);
  await show(`after ${begun}`);
}
await sender.close();
await show("after the close");

const seconds = (performance.now() - startedAt) / 1_000;
console.log(
  `\n${seconds.toFixed(0)} s; slowest attempt ${slowest.toFixed(0)} ms; event loop held up at most ` +
    `${heldUpMs.toFixed(0)} ms\n`,
);
for (const [kind, counts] of outcomes) {
  const told = Array.from(counts, ([text, count]) => `${text} ${count}`).join(", ");
  console.log(`${kind.padEnd(26)}${told}`);
}
child.disconnect();
