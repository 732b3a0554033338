// When listeners hear again. The count of signals taken (`taisce_notify_signals_total` in /metrics) is the
// measure: a session that died cannot raise it, whatever the gauge of the listener still says, and polling
// does not. Writers go on meanwhile, so a listener that works hears something every few milliseconds.
import { setTimeout as sleep } from "node:timers/promises";
import type { Replica } from "./replica.ts";
import type { Stage } from "./stage.ts";

const LOOK_MS = 50;
/** What had left PostgreSQL before the fault is counted by then. */
const IN_TRANSIT_MS = 250;
/** Past any limit that is promised; longer and it is not coming back. */
const GIVE_UP_MS = 30_000;

/**
 * Milliseconds from `since` (performance.now) until the last of the replicas heard a signal again; infinity
 * where one did not. Call it once the fault has struck.
 */
export async function hearingAgain(replicas: Replica[], since: number): Promise<number> {
  await sleep(IN_TRANSIT_MS);
  const times = await Promise.all(
    replicas.map(async (replica) => {
      const before = (await replica.hearing())?.signals;
      for (;;) {
        const now = await replica.hearing();
        const at = performance.now();
        if (before !== undefined && now !== undefined && now.signals > before) return at - since;
        if (at - since > GIVE_UP_MS) return Number.POSITIVE_INFINITY;
        await sleep(LOOK_MS);
      }
    }),
  );
  return Math.max(...times);
}

/** How many deliveries arrive while `work` goes on. */
export async function arrivalsDuring(stage: Stage, work: () => Promise<unknown>): Promise<number> {
  const { receiver } = stage.world;
  await receiver.flush();
  const before = receiver.arrivals.length;
  await work();
  await receiver.flush();
  return receiver.arrivals.length - before;
}
