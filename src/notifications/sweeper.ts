// Claims whatever is due: first attempts that found no room, retries, claims whose lease ran out. It
// sleeps until the next delivery becomes due and is woken when rows are left for it or room comes free.
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Claim, Deliveries, Room } from "./deliveries.ts";
import type { Dispatcher } from "./dispatcher.ts";

/** Retries that another process wrote are found within this time; what this one writes wakes it. */
const LONGEST_SLEEP_MS = 5_000;
/** A row due at this instant by the database's clock may be a moment away still. */
const SHORTEST_SLEEP_MS = 5;
const AFTER_ERROR_MS = 1_000;

const EXPIRE_EVERY_MS = 60_000;
const EXPIRE_BATCH = 1_000;

export interface SweeperOptions {
  deliveries: Pick<Deliveries, "claim" | "nextDueMs" | "expire">;
  dispatcher: Pick<Dispatcher, "fill" | "room">;
  retentionMs: number;
  metrics: Metrics;
  log: Logger;
}

/** Whether an endpoint may have more due than its room let this claim take. */
function usedUp(room: Room, claims: Claim[]): boolean {
  if (room.busy.some((endpoint) => endpoint.room === 0)) return true;
  const left = new Map(room.busy.map((endpoint) => [endpoint.endpointId, endpoint.room]));
  return claims.some(({ endpointId }) => {
    const one = (left.get(endpointId) ?? room.perEndpoint) - 1;
    left.set(endpointId, one);
    return one === 0;
  });
}

export class Sweeper {
  readonly #options: SweeperOptions;
  #running: Promise<void> | undefined;
  #stopped = false;
  #woken = false;
  /** Something due was left for want of room: room that comes free is worth a claim. */
  #backlog = false;
  #wakeAt = 0;
  #timer: NodeJS.Timeout | undefined;
  #resume: (() => void) | undefined;
  #expireAt = 0;

  constructor(options: SweeperOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Claims nothing more; settles when the round under way is over. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.wake();
    await this.#running;
  }

  /** Rows are due now. */
  wake(): void {
    this.#woken = true;
    this.#resume?.();
  }

  /** Rows will be due in `waitMs`: wake then, if that is earlier than planned. */
  wakeIn(waitMs: number): void {
    const at = performance.now() + waitMs;
    if (at < this.#wakeAt && this.#resume !== undefined) this.#sleepUntil(at);
  }

  /** Room came free. */
  onRoom(): void {
    if (this.#backlog) this.wake();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      this.#woken = false;
      let sleep: number;
      try {
        sleep = await this.#sweep();
      } catch (error) {
        this.#options.log.warn({ err: error }, "sweep failed; trying again");
        sleep = AFTER_ERROR_MS;
      }
      // Woken during the sweep: what woke it may have come after the statement looked.
      if (this.#woken || this.#stopped) continue;
      await new Promise<void>((resolve) => {
        this.#resume = resolve;
        this.#sleepUntil(performance.now() + sleep);
      });
      this.#resume = undefined;
      clearTimeout(this.#timer);
    }
  }

  #sleepUntil(at: number): void {
    clearTimeout(this.#timer);
    this.#wakeAt = at;
    this.#timer = setTimeout(() => this.#resume?.(), Math.max(0, at - performance.now()));
  }

  /** Claims until nothing more can be; milliseconds to sleep then. */
  async #sweep(): Promise<number> {
    const { deliveries, dispatcher, metrics } = this.#options;
    for (;;) {
      const room = dispatcher.room();
      if (room.total === 0) {
        this.#backlog = true;
        return LONGEST_SLEEP_MS;
      }
      const due = await dispatcher.fill((free) => deliveries.claim(free));
      this.#backlog = usedUp(room, due.claims);
      if (due.parked > 0) metrics.ended.inc({ state: "parked" }, due.parked);
      if (due.superseded > 0) metrics.ended.inc({ state: "superseded" }, due.superseded);
      if (this.#stopped) return 0;
      if (!due.more) break;
    }
    await this.#expire();
    const next = await deliveries.nextDueMs();
    return Math.min(LONGEST_SLEEP_MS, Math.max(SHORTEST_SLEEP_MS, next ?? LONGEST_SLEEP_MS));
  }

  /** Deletes what ended long ago, a batch a minute and more while there is more. */
  async #expire(): Promise<void> {
    if (performance.now() < this.#expireAt) return;
    const { deliveries, retentionMs } = this.#options;
    const deleted = await deliveries.expire(retentionMs, EXPIRE_BATCH);
    this.#expireAt = performance.now() + (deleted === EXPIRE_BATCH ? 0 : EXPIRE_EVERY_MS);
    if (deleted > 0) this.#options.log.info({ deleted }, "deleted deliveries past their retention");
  }
}
