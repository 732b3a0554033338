// The engine benchmark: one command, one run, one machine. See README.md beside package.json.
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Databases, type Server, startServer } from "./database.ts";
import { drain } from "./measures/drain.ts";
import { fairness } from "./measures/fairness.ts";
import { idle } from "./measures/idle.ts";
import { latency } from "./measures/latency.ts";
import { ledger } from "./measures/ledger.ts";
import type { Context, Measure, Sample } from "./measures/measure.ts";
import { outage } from "./measures/outage.ts";
import { polling } from "./measures/polling.ts";
import { replicas } from "./measures/replicas.ts";
import { scale } from "./measures/scale.ts";
import { sustained } from "./measures/sustained.ts";
import { trigger } from "./measures/trigger.ts";
import { type Options, readOptions } from "./options.ts";
import { stopAll } from "./peers/child.ts";
import { graphile } from "./peers/graphile.ts";
import { pgboss } from "./peers/pgboss.ts";
import { reference } from "./peers/reference.ts";
import { taisce } from "./peers/taisce.ts";
import { undici } from "./peers/undici.ts";
import { type Receivers, startReceivers } from "./receivers.ts";
import { table } from "./table.ts";

const BENCH = fileURLToPath(new URL("../", import.meta.url));
const MEASURES: Measure[] = [
  drain,
  latency,
  sustained,
  trigger,
  idle,
  polling,
  scale,
  ledger,
  fairness,
  outage,
  replicas,
];
const PEERS = [undici, taisce, graphile, pgboss, reference];

/** Ends in reverse order what was begun; at an interrupt too. */
const ends: (() => Promise<unknown> | unknown)[] = [];
let ending: Promise<void> | undefined;

function end(): Promise<void> {
  ending ??= (async () => {
    for (const one of ends.reverse()) {
      try {
        await one();
      } catch (error) {
        console.error(`bench: ${(error as Error).message}`);
      }
    }
  })();
  return ending;
}

function refuseOldNode(): void {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major > 22 || (major === 22 && minor >= 19)) return;
  console.error(
    `bench: Node ${process.version} is too old, 22.19 is needed; run npm install above bench/ and start this with npm run`,
  );
  process.exit(1);
}

function refuseWithoutPackages(peers: string[]): void {
  for (const [peer, name] of [
    ["graphile", "graphile-worker"],
    ["pgboss", "pg-boss"],
  ] as const) {
    if (!peers.includes(peer) || existsSync(join(BENCH, "node_modules", name))) continue;
    console.error(`bench: ${name} is not installed; run npm ci in bench/, or leave it out with --peers`);
    process.exit(1);
  }
}

async function main(): Promise<number> {
  refuseOldNode();
  let options: Options | undefined;
  try {
    options = readOptions(process.argv.slice(2));
  } catch (error) {
    console.error(`bench: ${(error as Error).message}; --help lists the options`);
    return 2;
  }
  if (options === undefined) return 0;
  refuseWithoutPackages(options.peers);

  const server = await startServer();
  ends.push(() => server.stop());
  const databases = new Databases(server);
  ends.push(() => databases.dropAll());
  const receivers = await startReceivers();
  ends.push(() => receivers.close());
  ends.push(stopAll);

  const head = headOf(server, options);
  console.log(`${head.join("\n")}\n`);
  const samples = await measure(options, databases, receivers);
  for (const one of MEASURES) {
    const own = samples.filter((sample) => sample.measure === one.name);
    if (own.length > 0) console.log(`${table(one, own)}\n`);
  }

  const wrong = samples.filter(({ problems }) => problems.length > 0);
  for (const { measure: name, condition, peer, run, problems } of wrong) {
    console.log(`WRONG: ${name}, ${condition}, ${peer}, run ${run}: ${problems.join("; ")}`);
  }
  if (wrong.length === 0) console.log("Nothing was lost, and nothing was sent twice.");
  const file = options.out ?? join(BENCH, "results", `${new Date().toISOString().replaceAll(":", "-")}.json`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify({ head, options, settings: server.settings, samples }, null, 1));
  console.log(`raw data: ${file}`);
  return wrong.length === 0 ? 0 : 1;
}

/** Run by run, so that a machine that slows down slows all of them. */
async function measure(options: Options, databases: Databases, receivers: Receivers): Promise<Sample[]> {
  const peers = PEERS.filter(({ name }) => options.peers.includes(name));
  const samples: Sample[] = [];
  for (let run = 1; run <= options.runs; run++) {
    const context: Context = {
      options,
      peers,
      receivers,
      databases,
      run,
      progress: (text) => console.error(`[run ${run} of ${options.runs}] ${text}`),
    };
    for (const one of MEASURES) {
      if (!options.measures.includes(one.name)) continue;
      for await (const sample of one.run(context)) {
        // What else the machine did: a figure from a busy one is not worth much.
        samples.push({ ...sample, load: loadavg()[0] ?? 0 });
        const shown = one.columns
          .filter(({ figure }) => sample.figures[figure] !== undefined)
          .map(({ figure, title, digits }) => `${title} ${sample.figures[figure]?.toFixed(digits)}`);
        console.error(
          `    ${shown.join(", ")}${sample.problems.length > 0 ? `  WRONG: ${sample.problems}` : ""}`,
        );
      }
    }
  }
  return samples;
}

function headOf({ description, settings }: Server, options: Options): string[] {
  const { length: cores, 0: first } = cpus();
  return [
    `${cores} cores (${first?.model ?? "unknown"}), Node ${process.version}, ${description}`,
    Object.entries(settings)
      .map(([name, value]) => `${name} ${value}`)
      .join(", "),
    `load average ${loadavg()[0]?.toFixed(1)} before the start; figures from a busy machine say little`,
    `${options.runs} runs; ${options.concurrency} attempts under way at once, over as many kept HTTPS connections`,
    ...PEERS.filter(({ name }) => options.peers.includes(name)).map(
      ({ name, tuning }) => `${name}: ${tuning}`,
    ),
  ];
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void end().finally(() => process.exit(130)));
}

try {
  process.exitCode = await main();
} catch (error) {
  if (ending === undefined) {
    console.error("bench:", error);
    process.exitCode = 1;
  }
} finally {
  await end();
}
