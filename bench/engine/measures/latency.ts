// How long after an advance was committed its request arrives, at fifty a second: from the moment the writer
// had COMMIT's answer, which may be after the request arrived and then counts as below zero, and from the
// moment it sent the statement.
import { setTimeout as sleep } from "node:timers/promises";
import { compare, everyOffset, problems } from "../check.ts";
import type { Peer } from "../peers/peer.ts";
import { hearing } from "../peers/taisce.ts";
import { arrived } from "../receivers.ts";
import { quantile } from "../statistics.ts";
import { latencies, offsetsFor, writeSteadily } from "../writers.ts";
import { type Context, endpointsAt, type Measure, onFreshDatabase, type Sample } from "./measure.ts";

const PER_SECOND = 50;
const WARM_UP_SECONDS = 3;
const PROJECTS = 10;

export const latency: Measure = {
  name: "latency",
  title: `latency at ${PER_SECOND} advances a second, ms`,
  columns: [
    { figure: "p50", title: "commit p50", digits: 2, better: "less" },
    { figure: "p99", title: "p99", digits: 2, better: "less" },
    { figure: "most", title: "most", digits: 2 },
    { figure: "sentP50", title: "statement p50", digits: 2 },
    { figure: "sentP99", title: "p99", digits: 2 },
  ],
  async *run(context) {
    for (const peer of context.peers) if (peer.name !== "undici") yield await once(context, peer);
  },
};

async function once(context: Context, peer: Peer): Promise<Sample> {
  const { receivers, options, progress, run } = context;
  progress(`latency: ${peer.name}`);
  return onFreshDatabase(context, peer, endpointsAt(receivers.main.origin, PROJECTS), async (setup) => {
    const worker = await peer.start(setup);
    if (worker.url !== undefined) await hearing(worker.url);
    await sleep(500);
    const offsets = offsetsFor(setup);
    const warmUp = await writeSteadily(peer, setup, offsets, {
      perSecond: PER_SECOND,
      seconds: WARM_UP_SECONDS,
    });
    const writes = await writeSteadily(peer, setup, offsets, {
      perSecond: PER_SECOND,
      seconds: options.seconds,
    });
    await arrived(receivers.main, warmUp.length + writes.length);
    await worker.stop();
    const receipts = await receivers.main.take();
    const { committed, sent } = latencies(setup, writes, receipts);
    const verdict = compare(
      receipts,
      everyOffset(setup.endpoints, ({ scope }) => offsets.get(scope) ?? 0),
    );
    return {
      measure: "latency",
      condition: `${PER_SECOND}/s`,
      peer: peer.name,
      run,
      figures: {
        p50: quantile(committed, 0.5),
        p99: quantile(committed, 0.99),
        most: Math.max(...committed),
        sentP50: quantile(sent, 0.5),
        sentP99: quantile(sent, 0.99),
        belowZero: committed.filter((value) => value < 0).length,
        writes: writes.length,
      },
      problems: problems(verdict),
      raw: { committedMs: committed, sentMs: sent },
    };
  });
}
