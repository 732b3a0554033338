// A host that a thousand endpoints are at goes silent and comes back: what the process holds meanwhile, what a
// healthy endpoint elsewhere notices, and whether the return is a stampede.
import { setTimeout as sleep } from "node:timers/promises";
import { compare, everyOffset, problems } from "../check.ts";
import { micros } from "../clock.ts";
import { endpointsAt } from "../peers/peer.ts";
import { hearing, taisce } from "../peers/taisce.ts";
import { held, watch } from "../process-watch.ts";
import type { Receipts } from "../receiver.ts";
import { arrived } from "../receivers.ts";
import { quantile } from "../statistics.ts";
import { latencies, type Offsets, writeSteadily } from "../writers.ts";
import { type Context, type Measure, onFreshDatabase, type Sample } from "./measure.ts";

const AT_THE_HOST = 1_000;
const OWED = 10;
const HEALTHY = 10;
/** Two time limits and a little: first attempts and some retries fall into it. */
const DOWN_SECONDS = 12;

export const outage: Measure = {
  name: "outage",
  title: `a host with ${AT_THE_HOST} endpoints is silent for ${DOWN_SECONDS} s`,
  columns: [
    { figure: "descriptors", title: "descriptors more", digits: 0 },
    { figure: "megabytes", title: "MB more", digits: 0 },
    { figure: "attempts", title: "attempts/s meanwhile", digits: 0 },
    { figure: "freshP99", title: "healthy p99 ms", digits: 1 },
    { figure: "peakPerSecond", title: "peak/s after", digits: 0 },
    { figure: "connections", title: "most connections", digits: 0 },
    { figure: "recoverySeconds", title: "all sent after s", digits: 1 },
  ],
  async *run(context) {
    yield await outageOnce(context);
  },
};

async function outageOnce(context: Context): Promise<Sample> {
  const { receivers, progress, run } = context;
  progress("outage");
  const host = await receivers.start();
  const healthy = endpointsAt(receivers.main.origin, HEALTHY);
  const silent = endpointsAt(host.origin, AT_THE_HOST, 1, "e", HEALTHY);
  try {
    return await onFreshDatabase(context, taisce, [...healthy, ...silent], async (setup) => {
      await host.setDown(true);
      const worker = await taisce.start(setup, { environment: { TAISCE_NOTIFY_ATTEMPTS: "20" } });
      if (worker.url !== undefined) await hearing(worker.url);
      await sleep(1_000);
      const before = held(worker.pid);
      const stopWatch = watch(worker.pid);
      // Through the front door: every project advances ten times in a moment, and then formation goes on.
      await setup.database.client.query(
        `DO $$ BEGIN FOR n IN 0..${OWED - 1} LOOP
           UPDATE taisce.watermark SET formed_through = n, stored_through = n
           WHERE scope = ANY (SELECT scope FROM taisce.notification_endpoint WHERE url LIKE '${host.origin}/%');
           COMMIT; END LOOP; END $$`,
      );
      const offsets: Offsets = new Map(healthy.map(({ scope }) => [scope, 0]));
      const writes = await writeSteadily(taisce, setup, offsets, { perSecond: 50, seconds: DOWN_SECONDS });
      const most = stopWatch();
      const during = await host.take();

      await host.setDown(false);
      const upAt = micros();
      // What was under way when it came back was received above and is answered by nobody.
      const { rows } = await setup.database.client.query(
        `SELECT count(*)::integer AS count FROM taisce.notification_delivery
         WHERE delivered_at IS NULL AND parked_at IS NULL AND superseded_at IS NULL`,
      );
      await arrived(host, rows[0].count, 90_000);
      await sleep(300);
      await arrived(receivers.main, writes.length);
      await worker.stop();
      const after = await host.take();
      const own = await receivers.main.take();
      const fresh = latencies(setup, writes, own).committed;
      return {
        measure: "outage",
        condition: `${OWED} owed each`,
        peer: "taisce",
        run,
        figures: {
          descriptors: most.descriptors - before.descriptors,
          megabytes: most.megabytes - before.megabytes,
          attempts: during.times.length / DOWN_SECONDS,
          freshP99: quantile(fresh, 0.99),
          peakPerSecond: peak(after),
          connections: Math.max(during.mostOpen, after.mostOpen),
          recoverySeconds: ((after.times.at(-1) ?? Number.NaN) - upAt) / 1e6,
        },
        problems: [
          ...problems(
            compare(
              after,
              everyOffset(silent, () => OWED),
            ),
          ),
          ...problems(
            compare(
              own,
              everyOffset(healthy, ({ scope }) => offsets.get(scope) ?? 0),
            ),
          ),
        ],
        raw: { freshMs: fresh },
      };
    });
  } finally {
    host.close();
  }
}

/** Requests in the fullest tenth of a second, as a rate. */
function peak({ times }: Receipts): number {
  const counts = new Map<number, number>();
  for (const at of times) counts.set(Math.floor(at / 1e5), (counts.get(Math.floor(at / 1e5)) ?? 0) + 1);
  return 10 * Math.max(0, ...counts.values());
}
