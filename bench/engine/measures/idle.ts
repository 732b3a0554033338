// Queries a second while nothing happens: this product with one endpoint and with a hundred, the others with
// one. All at once, each on a database of its own, since nobody has anything to do.
import { setTimeout as sleep } from "node:timers/promises";
import type { Peer } from "../peers/peer.ts";
import { logStatements, statementRate } from "../statements.ts";
import { type Context, endpointsAt, type Measure, onFreshDatabase, type Sample } from "./measure.ts";
import { startAll } from "./sustained.ts";

/** Long enough for what comes every fifteen seconds to come as often as it does. */
const SECONDS = 30;

export const idle: Measure = {
  name: "idle",
  title: `idle for ${SECONDS} s`,
  columns: [{ figure: "perSecond", title: "queries/s", digits: 2, better: "less" }],
  async *run(context) {
    context.progress("idle: all");
    const databases = context.peers.filter(({ name }) => name !== "undici");
    yield* await Promise.all(
      databases.flatMap((peer) =>
        (peer.name === "taisce" ? [1, 100] : [1]).map((count) => idleOnce(context, peer, count)),
      ),
    );
  },
};

async function idleOnce(context: Context, peer: Peer, count: number): Promise<Sample> {
  const { receivers, databases, run } = context;
  return onFreshDatabase(context, peer, endpointsAt(receivers.main.origin, count), async (setup) => {
    await logStatements(databases, setup.database);
    const workers = await startAll(peer, setup, 1);
    // What a start does is not idle.
    await sleep(5_000);
    const perSecond = await statementRate(databases, setup.database, SECONDS);
    for (const worker of workers) await worker.stop();
    return {
      measure: "idle",
      condition: `${count} endpoint${count === 1 ? "" : "s"}`,
      peer: peer.name,
      run,
      figures: { perSecond },
      problems: [],
    };
  });
}
