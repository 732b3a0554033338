// What bad endpoints cost the healthy ones: a tenth of them hang until the time limit, or answer 503, and all
// have a backlog. The healthy ones' rate and the time by which 99 % of theirs arrived, against the same without
// the bad ones; then the latency of fresh advances to them while the bad ones' backlog is still being tried.
import { setTimeout as sleep } from "node:timers/promises";
import { compare, everyOffset, problems } from "../check.ts";
import { micros } from "../clock.ts";
import { type Endpoint, endpointsAt, type Setup } from "../peers/peer.ts";
import { hearing, taisce } from "../peers/taisce.ts";
import type { Receiver } from "../receivers.ts";
import { quantile } from "../statistics.ts";
import { latencies, type Offsets, writeSteadily } from "../writers.ts";
import { type Context, type Measure, onFreshDatabase, type Sample } from "./measure.ts";

const ALONE = "without them";
const PER_SECOND = 50;
/** The healthy ones may take this many times as long as alone, and then are counted as they stand. */
const PATIENCE = 4;

export const fairness: Measure = {
  name: "fairness",
  title: "healthy endpoints beside bad ones",
  yardstick: ALONE,
  columns: [
    { figure: "perSecond", title: "healthy/s", digits: 0, better: "more" },
    { figure: "p99Seconds", title: "99 % arrived by s", digits: 1, better: "less" },
    { figure: "freshP50", title: "fresh p50 ms", digits: 1 },
    { figure: "freshP99", title: "fresh p99 ms", digits: 1, better: "less" },
  ],
  async *run(context) {
    const bad = await context.receivers.start();
    let aloneMs = 0;
    for (const [name, path] of [
      [ALONE, undefined],
      ["a tenth answers 503", "busy"],
      ["a tenth hangs", "hang"],
    ] as const) {
      const limitMs = aloneMs === 0 ? 3_600_000 : 10_000 + PATIENCE * aloneMs;
      const sample = await fairnessOnce(context, bad, name, path, limitMs);
      if (path === undefined) aloneMs = (sample.figures.lastSeconds ?? 0) * 1_000;
      yield sample;
    }
    bad.close();
  },
};

async function fairnessOnce(
  context: Context,
  badReceiver: Receiver,
  peer: string,
  path: string | undefined,
  limitMs: number,
): Promise<Sample> {
  const { receivers, databases, options, progress, run } = context;
  const { fairnessEndpoints: count, fairnessOwed: each } = options;
  progress(`fairness: ${peer}`);
  const bad = path === undefined ? 0 : Math.round(count / 10);
  const healthy = endpointsAt(receivers.main.origin, count - Math.round(count / 10));
  const endpoints = [...healthy, ...endpointsAt(badReceiver.origin, bad, 1, path, healthy.length)];
  return onFreshDatabase(context, taisce, endpoints, async (setup) => {
    await taisce.owe(setup, each);
    await databases.admin("CHECKPOINT");
    const startedAt = micros();
    const worker = await taisce.start(setup);
    const total = healthy.length * each;
    while ((await receivers.main.count()) < total && micros() - startedAt < limitMs * 1_000) await sleep(50);
    const receipts = await receivers.main.take();
    const first = receipts.times[0] ?? Number.NaN;
    const sinceFirst = Array.from(receipts.times, (at) => (at - first) / 1e6);
    const lastSeconds = sinceFirst.at(-1) ?? Number.NaN;
    const all = receipts.times.length >= total;
    const found = all
      ? problems(
          compare(
            receipts,
            everyOffset(healthy, () => each),
          ),
        )
      : [];

    if (worker.url !== undefined) await hearing(worker.url);
    const fresh = all ? await freshLatency(context, setup, healthy, each) : { committed: [] };
    await worker.stop();
    await receivers.main.take();
    await badReceiver.take();
    return {
      measure: "fairness",
      condition: `${count} endpoints, ${each} owed each`,
      peer,
      run,
      figures: {
        perSecond: (receipts.times.length - 1) / lastSeconds,
        // Where not all arrived in time, the share that did cannot be 99 %.
        p99Seconds: all ? quantile(sinceFirst, 0.99) : limitMs / 1_000,
        lastSeconds,
        arrived: receipts.times.length / total,
        freshP50: quantile(fresh.committed, 0.5),
        freshP99: quantile(fresh.committed, 0.99),
      },
      problems: found,
      raw: { freshMs: fresh.committed },
    };
  });
}

async function freshLatency(
  { receivers, options }: Context,
  setup: Setup,
  healthy: Endpoint[],
  each: number,
) {
  const offsets: Offsets = new Map(healthy.map(({ scope }) => [scope, each]));
  const writes = await writeSteadily(taisce, setup, offsets, {
    perSecond: PER_SECOND,
    seconds: options.seconds,
  });
  const deadline = micros() + 20e6;
  while ((await receivers.main.count()) < writes.length && micros() < deadline) await sleep(50);
  return latencies(setup, writes, await receivers.main.take());
}
