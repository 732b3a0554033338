// What a steady stream of advances is turned into: one writer, then eight, each committing as fast as it can,
// over a hundred projects of one endpoint each. The rate counts until the last request arrived.
import { setTimeout as sleep } from "node:timers/promises";
import { compare, everyOffset, problems } from "../check.ts";
import { micros } from "../clock.ts";
import type { Peer, Setup, Worker } from "../peers/peer.ts";
import { hearing } from "../peers/taisce.ts";
import { arrived } from "../receivers.ts";
import { quantile } from "../statistics.ts";
import { latencies, type Offsets, offsetsFor, writeFlatOut } from "../writers.ts";
import { type Context, endpointsAt, type Measure, onFreshDatabase, type Sample } from "./measure.ts";

const PROJECTS = 100;

export const sustained: Measure = {
  name: "sustained",
  title: `sustained, over ${PROJECTS} projects`,
  columns: [
    { figure: "perSecond", title: "deliveries/s", digits: 0, better: "more" },
    { figure: "commitsPerSecond", title: "commits/s", digits: 0, better: "more" },
    { figure: "backlog", title: "backlog", digits: 0 },
    { figure: "merged", title: "merged", digits: 0 },
    { figure: "p50", title: "p50 ms", digits: 1 },
  ],
  async *run(context) {
    for (const writers of [1, 8]) {
      for (const peer of context.peers) {
        if (peer.name !== "undici") yield await sustainedOnce(context, peer, writers, 1);
      }
    }
  },
};

export async function sustainedOnce(
  context: Context,
  peer: Peer,
  writers: number,
  replicas: number,
): Promise<Sample> {
  const { receivers, options, progress, run } = context;
  const condition = `${writers} writer${writers === 1 ? "" : "s"}`;
  progress(`sustained: ${peer.name}, ${condition}, ${replicas} worker${replicas === 1 ? "" : "s"}`);
  return onFreshDatabase(context, peer, endpointsAt(receivers.main.origin, PROJECTS), async (setup) => {
    const workers = await startAll(peer, setup, replicas);
    const offsets = offsetsFor(setup);
    const writes = await writeFlatOut(peer, setup, offsets, { writers, seconds: options.seconds });
    const backlog = writes.length - (await receivers.main.count());
    // Merged advances never arrive: it is over where nothing has for a while.
    await arrived(receivers.main, writes.length, 8_000);
    await sleep(300);
    for (const worker of workers) await worker.stop();
    const receipts = await receivers.main.take();
    const owed = (await peer.owed?.(setup)) ?? [...everyOffset(setup.endpoints, countOf(offsets))];
    const startedAt = writes[0]?.sentAt ?? micros();
    const lastWrite = Math.max(...writes.slice(-writers).map(({ committedAt }) => committedAt));
    const lastArrival = receipts.times.at(-1) ?? Number.NaN;
    return {
      measure: "sustained",
      condition,
      peer: peer.name,
      run,
      figures: {
        perSecond: (receipts.times.length * 1e6) / (lastArrival - startedAt),
        commitsPerSecond: (writes.length * 1e6) / (lastWrite - startedAt),
        backlog,
        merged: writes.length - owed.length,
        p50: quantile(latencies(setup, writes, receipts).committed, 0.5),
        commits: writes.length,
      },
      problems: [...problems(compare(receipts, owed)), ...newestMissing(setup, offsets, owed)],
    };
  });
}

/** Started, and all of them listening. */
export async function startAll(peer: Peer, setup: Setup, replicas: number): Promise<Worker[]> {
  const workers = await Promise.all(Array.from({ length: replicas }, () => peer.start(setup)));
  for (const { url } of workers) if (url !== undefined) await hearing(url);
  await sleep(500);
  return workers;
}

const countOf =
  (offsets: Offsets) =>
  ({ scope }: { scope: string }) =>
    offsets.get(scope) ?? 0;

/** However many advances were merged, the newest of every project was owed. */
function newestMissing(
  setup: Setup,
  offsets: Offsets,
  owed: readonly (readonly [number, number])[],
): string[] {
  const newest = new Map<number, number>();
  for (const [endpoint, offset] of owed) newest.set(endpoint, Math.max(offset, newest.get(endpoint) ?? -1));
  const missing = setup.endpoints.filter(
    ({ number, scope }) => newest.get(number) !== (offsets.get(scope) ?? 0) - 1,
  );
  return missing.length === 0 ? [] : [`${missing.length} projects were not told of their newest advance`];
}
