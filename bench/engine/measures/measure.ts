// What every measure is: it takes contenders through one run and gives samples.
import type { Databases } from "../database.ts";
import type { Options } from "../options.ts";
import { type Endpoint, endpointsAt, type Peer, type Setup } from "../peers/peer.ts";
import type { Receivers } from "../receivers.ts";

export interface Sample {
  measure: string;
  /** What is varied within the measure. */
  condition: string;
  peer: string;
  run: number;
  figures: Record<string, number>;
  /** What was lost, sent twice or otherwise wrong; any of it fails the benchmark. */
  problems: string[];
  /** The machine's load average afterwards. */
  load?: number;
  /** Single values, for whoever wants to look closer. */
  raw?: unknown;
}

export interface Context {
  options: Options;
  peers: Peer[];
  receivers: Receivers;
  databases: Databases;
  run: number;
  progress(text: string): void;
}

export interface Column {
  figure: string;
  title: string;
  digits: number;
  /** Which way is better; the ratio to graphile-worker is given for these. */
  better?: "more" | "less";
}

export interface Measure {
  name: string;
  title: string;
  columns: Column[];
  /** The contender that ratios are to; graphile-worker unless given. */
  yardstick?: string;
  run(context: Context): AsyncIterable<Sample>;
}

/** Runs `work` on a fresh database with `endpoints` registered, which is gone afterwards. */
export async function onFreshDatabase<Result>(
  context: Context,
  peer: Peer,
  endpoints: Endpoint[],
  work: (setup: Setup) => Promise<Result>,
): Promise<Result> {
  const { receivers, databases, options } = context;
  const database = await databases.create();
  try {
    const setup: Setup = {
      database,
      ca: receivers.ca,
      caFile: receivers.caFile,
      origin: receivers.main.origin,
      endpoints,
      concurrency: options.concurrency,
    };
    await peer.prepare(setup);
    await receivers.main.take();
    return await work(setup);
  } finally {
    await database.drop();
  }
}

export { endpointsAt };
