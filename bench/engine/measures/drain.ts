// The rate at which owed deliveries are sent, when all of them lie there before the worker starts: to one
// endpoint, and to a hundred. From the first request's arrival to the last one's, without the start-up.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { compare, everyOffset, problems } from "../check.ts";
import { micros } from "../clock.ts";
import type { Peer, Setup } from "../peers/peer.ts";
import { busyMicros, familyMicros, processorMicros } from "../process-watch.ts";
import { arrived } from "../receivers.ts";
import { type Context, endpointsAt, type Measure, onFreshDatabase, type Sample } from "./measure.ts";

export const drain: Measure = {
  name: "drain",
  title: "draining what is owed",
  columns: [
    { figure: "perSecond", title: "deliveries/s", digits: 0, better: "more" },
    { figure: "wholeSeconds", title: "s with start-up", digits: 2 },
    { figure: "workerMicros", title: "CPU µs each: worker", digits: 0, better: "less" },
    { figure: "databaseMicros", title: "PostgreSQL", digits: 0, better: "less" },
    { figure: "receiverMicros", title: "receiver", digits: 0 },
    { figure: "busyCores", title: "cores busy", digits: 2 },
    { figure: "claimsEach", title: "claims each", digits: 2 },
  ],
  async *run(context) {
    for (const count of [1, 100]) {
      for (const peer of context.peers) {
        if (peer.name === "undici" && count > 1) continue;
        yield await drainOnce(context, peer, count, `${count} endpoint${count === 1 ? "" : "s"}`);
      }
    }
  },
};

export async function drainOnce(
  context: Context,
  peer: Peer,
  count: number,
  condition: string,
  before?: (setup: Setup) => Promise<void>,
): Promise<Sample> {
  const { receivers, databases, options, progress, run } = context;
  const each = Math.max(1, Math.round(options.count / count));
  progress(`drain: ${peer.name}, ${condition}`);
  // At most a hundred live endpoints a project.
  const endpoints = endpointsAt(receivers.main.origin, count, count > 1_000 ? 100 : 1);
  return onFreshDatabase(context, peer, endpoints, async (setup) => {
    await before?.(setup);
    await peer.owe(setup, each);
    await databases.admin("CHECKPOINT");
    const postmaster = await postmasterOf(setup);
    const startedAt = micros();
    const worker = await peer.start(setup);
    const total = each * count;
    // From here on the start-up is not in it.
    await arrived(receivers.main, 1);
    const used = () => ({
      workerMicros: processorMicros(worker.pid),
      databaseMicros: familyMicros(postmaster),
      receiverMicros: processorMicros(receivers.main.pid),
    });
    const usedBefore = used();
    const [busyBefore, busyFrom] = [busyMicros(), micros()];
    await arrived(receivers.main, total);
    const busyCores = (busyMicros() - busyBefore) / (micros() - busyFrom);
    // What would be sent twice is sent within moments.
    await new Promise((resolve) => setTimeout(resolve, 300));
    const after = used();
    const eachOf = (figure: keyof typeof after) => (after[figure] - usedBefore[figure]) / total;
    await worker.stop();
    const receipts = await receivers.main.take();
    const claimsEach = await peer.claimsEach?.(setup);
    const first = receipts.times[0] ?? Number.NaN;
    const last = receipts.times.at(-1) ?? Number.NaN;
    const verdict = compare(
      receipts,
      everyOffset(endpoints, () => each),
    );
    return {
      measure: "drain",
      condition,
      peer: peer.name,
      run,
      figures: {
        perSecond: ((receipts.times.length - 1) * 1e6) / (last - first),
        wholeSeconds: (last - startedAt) / 1e6,
        workerMicros: eachOf("workerMicros"),
        databaseMicros: eachOf("databaseMicros"),
        receiverMicros: eachOf("receiverMicros"),
        busyCores,
        mostConnections: receipts.mostOpen,
        ...(claimsEach === undefined ? {} : { claimsEach }),
      },
      // undici alone sends one body over and over.
      problems: peer.name === "undici" ? [] : problems(verdict),
    };
  });
}

/** The server's first process, where it runs on this machine. */
async function postmasterOf({ database: { client } }: Setup): Promise<number> {
  const { rows } = await client.query("SHOW data_directory");
  try {
    return Number(readFileSync(join(rows[0].data_directory, "postmaster.pid"), "utf8").split("\n")[0]);
  } catch {
    return Number.NaN;
  }
}
