// The fault campaign: breaks what a deployment can break, under load, and checks every promise of
// docs/guarantees.md afterwards, in the database and at the receiver.
//
//   npm run test:faults -- [--scenario NAME]… [--seconds 20] [--rounds 1] [--for 60m] [--list] [--keep]
//
// Everything it uses is real and its own: a PostgreSQL cluster, three replicas, writers, an HTTPS receiver.
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { watchInterruption } from "../../src/demo/interruption.ts";
import { parseDuration } from "../../src/settings/duration.ts";
import { type Row, unplayed } from "./check.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { scenarios } from "./scenarios/index.ts";
import { play, type Scenario, Skip } from "./stage.ts";
import { EXPLANATION, line, summary, table } from "./table.ts";

const HELP = `npm run test:faults -- [options]

Breaks processes, sessions, links, clocks and PostgreSQL itself under load, and checks that nothing is lost.

  --scenario NAME  only this one; may be given again
  --seconds N      how long each scenario makes trouble (20)
  --rounds N       how often all of them are played (1)
  --for DURATION   round after round until this much time has passed, such as 60m
  --rate N         advances committed a second, over all projects (120)
  --embedded       the embedded PostgreSQL even where Debian's is installed
  --keep           leave the cluster running, and its files, where a promise was broken
  --list           names the scenarios
  --help           this

It exits 1 where a promise was broken, and 0 where none was. What cannot be staged here is named as skipped.`;

interface Arguments {
  chosen: Scenario[];
  seconds: number;
  rounds: number;
  forMs: number | undefined;
  rate: number;
  embedded: boolean;
  keep: boolean;
}

function usage(message: string): never {
  process.stderr.write(`test:faults: ${message}; see --help\n`);
  process.exit(2);
}

function readArguments(): Arguments {
  const options = {
    scenario: { type: "string", multiple: true, default: [] as string[] },
    seconds: { type: "string", default: "20" },
    rounds: { type: "string", default: "1" },
    for: { type: "string" },
    rate: { type: "string", default: "120" },
    embedded: { type: "boolean", default: false },
    keep: { type: "boolean", default: false },
    list: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  } as const;
  const parse = () => parseArgs({ options }).values;
  let values: ReturnType<typeof parse>;
  try {
    values = parse();
  } catch (error) {
    usage((error as Error).message);
  }
  if (values.help || values.list) {
    const width = Math.max(...scenarios.map(({ name }) => name.length));
    const names = scenarios.map(({ name, shows }) => `${name.padEnd(width)}  ${shows}`).join("\n");
    process.stdout.write(`${values.help ? `${HELP}\n\nScenarios:\n\n` : ""}${names}\n`);
    process.exit(0);
  }
  const number = (name: "seconds" | "rounds" | "rate") => {
    const value = Number(values[name]);
    return Number.isInteger(value) && value > 0 ? value : usage(`--${name} wants a whole number above 0`);
  };
  const forMs = values.for === undefined ? undefined : parseDuration(values.for);
  if (values.for !== undefined && forMs === undefined) usage("--for wants a duration such as 60m");
  const chosen = values.scenario.map(
    (name) => scenarios.find((one) => one.name === name) ?? usage(`there is no scenario ${name}`),
  );
  return {
    chosen: chosen.length === 0 ? scenarios : chosen,
    seconds: number("seconds"),
    rounds: number("rounds"),
    forMs,
    rate: number("rate"),
    embedded: values.embedded,
    keep: values.keep,
  };
}

const INTERRUPTION_LIMIT_MS = 8_000;

const say = (text: string) => void process.stderr.write(`${text}\n`);

/** What must be ended however this process ends; the newest first. */
const undo: (() => unknown)[] = [];

function clearUp(): void {
  for (let one = undo.pop(); one !== undefined; one = undo.pop()) {
    try {
      const result = one();
      if (result instanceof Promise) result.catch(() => {});
    } catch {
      // It is gone already.
    }
  }
}

async function campaign(wanted: Arguments, cluster: Cluster, home: string, signal: AbortSignal) {
  const rows: Row[] = [];
  const skipped = new Map<string, string>();
  let played = 0;
  const started = performance.now();
  const inTime = (round: number) =>
    wanted.forMs === undefined ? round <= wanted.rounds : performance.now() - started < wanted.forMs;
  for (let round = 1; inTime(round) && !signal.aborted; round++) {
    for (const scenario of wanted.chosen) {
      if (signal.aborted || !(wanted.forMs === undefined || inTime(round))) break;
      played++;
      say(`\n${new Date().toISOString().slice(11, 19)}  ${played}. ${scenario.name}: ${scenario.shows}`);
      const own = undo.length;
      try {
        const namespace = `f${played}_${scenario.name.replaceAll("-", "_")}`;
        const row = await play(
          scenario,
          {
            cluster,
            directory: join(home, namespace),
            namespace,
            seconds: wanted.seconds,
            perSecond: wanted.rate,
            signal,
            onOpen: (one) => void undo.push(one),
          },
          wanted.keep,
        );
        rows.push(row);
        say(`  ${line(row)}`);
        for (const note of row.notes) say(`  note: ${note}`);
        for (const sentence of row.broken) say(`  BROKEN: ${sentence}`);
        if (row.broken.length > 0 && wanted.keep)
          say(`  kept: schema ${namespace}, logs in ${join(home, namespace)}`);
        // Everything this scenario opened was ended in order.
        if (row.broken.length === 0) rmSync(join(home, namespace), { recursive: true, force: true });
      } catch (error) {
        // What was played before an interruption is still worth showing.
        if (signal.aborted) break;
        const reason = error instanceof Error ? error.message : String(error);
        if (error instanceof Skip) skipped.set(scenario.name, reason);
        else rows.push(unplayed(scenario.name, reason));
        say(
          error instanceof Skip
            ? `  skipped: ${reason}`
            : `  BROKEN: ${error instanceof Error ? error.stack : reason}`,
        );
      } finally {
        for (const one of undo.splice(own).reverse()) {
          await (async () => one())().catch(() => {});
        }
      }
    }
  }
  return { rows, skipped, minutes: (performance.now() - started) / 60_000 };
}

const wanted = readArguments();
const { signal } = watchInterruption();
// What is under way ends by itself as a rule; whatever does not, does not keep anyone.
signal.addEventListener("abort", () => setTimeout(() => process.exit(1), INTERRUPTION_LIMIT_MS).unref());
process.once("exit", clearUp);
// Variables of libpq are for other servers.
for (const name of Object.keys(process.env)) if (/^PG[A-Z]+$/.test(name)) delete process.env[name];

const home = mkdtempSync(join(tmpdir(), "taisce-faults-"));
chmodSync(home, 0o755);
let keep = false;
undo.push(() => {
  if (!keep) rmSync(home, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
});
try {
  const cluster = await startCluster(home, wanted.embedded);
  undo.push(() => {
    if (!keep) cluster.kill();
  });
  say(`${cluster.kind}, three replicas, ${wanted.rate} advances a second; files in ${home}`);
  const { rows, skipped, minutes } = await campaign(wanted, cluster, home, signal);
  const broken = rows.filter(({ broken }) => broken.length > 0);
  if (rows.length > 0) process.stdout.write(`\n${table(summary(rows))}\n${EXPLANATION}\n\n`);
  for (const { scenario, broken: sentences } of broken) {
    for (const sentence of sentences) process.stdout.write(`${scenario}: ${sentence}\n`);
  }
  for (const [name, reason] of skipped) process.stdout.write(`${name}: skipped, ${reason}\n`);
  process.stdout.write(
    `${rows.length} runs in ${minutes.toFixed(1)} minutes on ${cluster.kind}; ${broken.length} broke a promise${signal.aborted ? "; interrupted" : ""}\n`,
  );
  if (broken.length > 0 || signal.aborted) process.exitCode = 1;
  keep = wanted.keep && broken.length > 0;
  if (keep) say(`kept: ${cluster.url}, files in ${home}`);
  else await cluster.stop();
} catch (error) {
  process.exitCode = 1;
  say(
    signal.aborted ? "interrupted" : `test:faults: ${error instanceof Error ? error.stack : String(error)}`,
  );
}
clearUp();
process.exit();
