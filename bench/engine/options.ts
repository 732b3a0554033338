// The command line.
import { parseArgs } from "node:util";

export const MEASURES = [
  "drain",
  "latency",
  "sustained",
  "trigger",
  "idle",
  "polling",
  "scale",
  "ledger",
  "fairness",
  "outage",
  "replicas",
];
export const PEERS = ["undici", "taisce", "graphile", "pgboss", "reference"];

export interface Options {
  measures: string[];
  peers: string[];
  runs: number;
  /** Deliveries drained. */
  count: number;
  concurrency: number;
  seconds: number;
  out: string | undefined;
  /** Delivered rows that the full table of `scale` holds. */
  fullRows: number;
  fairnessEndpoints: number;
  fairnessOwed: number;
  replicas: number;
}

const HELP = `usage: npm run -s engine -- [options]      from bench/, after npm ci in bench/ and above it

  --only A,B          measures: ${MEASURES.join(", ")} (default: all)
  --peers A,B         contenders: ${PEERS.join(", ")} (default: all)
  --runs N            runs (default 3)
  --count N           deliveries that are drained (default 20000)
  --concurrency N     attempts under way at once, every contender (default 64)
  --seconds N         how long writers write, and clients poll (default 10)
  --out FILE          raw data (default results/<time>.json)
  --full-rows N       delivered rows in the full table of "scale" (default 5000000)
  --fairness-endpoints N, --fairness-owed N
                      endpoints of "fairness", a tenth of them bad, and what each is owed (default 1000, 1000)
  --replicas N        most replicas (default 4)

BENCH_DATABASE_URL names the PostgreSQL to use, as a superuser; databases are made in it and dropped again.
Without it a throwaway cluster is made of an installed server, or else the embedded one is used.
The exit code is 1 where a delivery was lost or sent twice.`;

/** undefined: help was asked for, and shown. @throws Error naming what cannot be used */
export function readOptions(arguments_: string[]): Options | undefined {
  const text = { type: "string" } as const;
  const { values } = parseArgs({
    args: arguments_,
    options: {
      help: { type: "boolean" },
      only: text,
      peers: text,
      runs: text,
      count: text,
      concurrency: text,
      seconds: text,
      out: text,
      "full-rows": text,
      "fairness-endpoints": text,
      "fairness-owed": text,
      replicas: text,
    },
  });
  if (values.help === true) {
    console.log(HELP);
    return undefined;
  }
  const number = (given: string | undefined, otherwise: number) => {
    const value = given === undefined ? otherwise : Number(given);
    if (!Number.isInteger(value) || value < 1) throw new Error(`"${given}" is not a whole number from 1 on`);
    return value;
  };
  return {
    measures: choose(values.only, MEASURES),
    peers: choose(values.peers, PEERS),
    runs: number(values.runs, 3),
    count: number(values.count, 20_000),
    concurrency: number(values.concurrency, 64),
    seconds: number(values.seconds, 10),
    out: values.out,
    fullRows: number(values["full-rows"], 5_000_000),
    fairnessEndpoints: number(values["fairness-endpoints"], 1_000),
    fairnessOwed: number(values["fairness-owed"], 1_000),
    replicas: number(values.replicas, 4),
  };
}

function choose(given: string | undefined, all: string[]): string[] {
  if (given === undefined) return all;
  const chosen = given.split(",");
  const unknown = chosen.find((name) => !all.includes(name));
  if (unknown !== undefined) throw new Error(`"${unknown}" is none of ${all.join(", ")}`);
  return all.filter((name) => chosen.includes(name));
}
