// One to several replicas on one database: what each adds, and that every delivery is sent once while nobody
// dies. The owed deliveries fall due at one moment, when all replicas have long been up.
import { setTimeout as sleep } from "node:timers/promises";
import { compare, everyOffset, problems } from "../check.ts";
import { taisce } from "../peers/taisce.ts";
import { arrived } from "../receivers.ts";
import { type Context, endpointsAt, type Measure, onFreshDatabase, type Sample } from "./measure.ts";
import { startAll, sustainedOnce } from "./sustained.ts";

const ENDPOINTS = 100;
/** A sweeper looks every five seconds for what others left; by then all know when to wake. */
const DUE_IN_SECONDS = 8;

const nameOf = (replicas: number) => `${replicas} replica${replicas === 1 ? "" : "s"}`;

export const replicas: Measure = {
  name: "replicas",
  title: "replicas on one database",
  yardstick: nameOf(1),
  columns: [
    { figure: "perSecond", title: "deliveries/s", digits: 0, better: "more" },
    { figure: "commitsPerSecond", title: "commits/s", digits: 0 },
  ],
  async *run(context) {
    for (let count = 1; count <= context.options.replicas; count++) yield await drainTogether(context, count);
    for (const count of [1, context.options.replicas]) {
      const sample = await sustainedOnce(context, taisce, 8, count);
      yield { ...sample, measure: "replicas", peer: nameOf(count) };
    }
  },
};

async function drainTogether(context: Context, count: number): Promise<Sample> {
  const { receivers, databases, options, progress, run } = context;
  progress(`replicas: ${count}`);
  const endpoints = endpointsAt(receivers.main.origin, ENDPOINTS);
  const each = Math.ceil(options.count / ENDPOINTS);
  return onFreshDatabase(context, taisce, endpoints, async (setup) => {
    await taisce.owe(setup, each);
    await setup.database.client.query(
      "UPDATE taisce.notification_delivery SET next_attempt_at = now() + $1 * interval '1 second'",
      [DUE_IN_SECONDS],
    );
    await setup.database.client.query("VACUUM (ANALYZE) taisce.notification_delivery");
    await databases.admin("CHECKPOINT");
    const workers = await startAll(taisce, setup, count);
    await arrived(receivers.main, each * ENDPOINTS);
    await sleep(300);
    for (const worker of workers) await worker.stop();
    const receipts = await receivers.main.take();
    const first = receipts.times[0] ?? Number.NaN;
    const last = receipts.times.at(-1) ?? Number.NaN;
    return {
      measure: "replicas",
      condition: "drain",
      peer: nameOf(count),
      run,
      figures: { perSecond: ((receipts.times.length - 1) * 1e6) / (last - first) },
      problems: problems(
        compare(
          receipts,
          everyOffset(endpoints, () => each),
        ),
      ),
    };
  });
}
