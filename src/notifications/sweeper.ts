// Claims whatever is due: first attempts that found no room, retries, claims whose lease ran out. It
// sleeps until the next delivery becomes due and is woken when rows are left for it or room comes free.
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { worthALine } from "../telemetry/sparingly.ts";
import type { Claim, Deliveries, Room } from "./deliveries.ts";
import type { Dispatcher } from "./dispatcher.ts";

/** Retries that another process wrote are found within this time; what this one writes wakes it. */
const LONGEST_SLEEP_MS = 5_000;
/** A row due at this instant by the database's clock may be a moment away still. */
const SHORTEST_SLEEP_MS = 5;
const AFTER_ERROR_MS = 1_000;
/** Where endpoints were left out, since others that lag behind have their share or they were not named, it is their turn after this time. */
const LAGGING_TURN_MS = 250;
/** And after this many times what the look took: with 10,000 endpoints of an origin that is full it takes 80 ms. */
const LAGGING_TURN_LOOKS = 10;
/** Sweeps that follow each other more closely share one answer to when the next delivery is due. */
const ASK_EVERY_MS = 100;

export interface SweeperOptions {
  deliveries: Pick<Deliveries, "claim" | "nextDueMs">;
  dispatcher: Pick<Dispatcher, "fill" | "hungry" | "isHungry" | "takesUnproven">;
  metrics: Metrics;
  log: Logger;
}

/** The endpoints that may have more due than their room let this claim take. */
function saturated(room: Room, claims: Claim[]): Set<string> {
  const left = new Map<string, number>();
  const full = new Set<string>();
  for (const { endpointId, room: free } of room.busy) {
    left.set(endpointId, free);
    if (free <= 0) full.add(endpointId);
  }
  for (const { endpointId } of claims) {
    const free = (left.get(endpointId) ?? room.perEndpoint) - 1;
    left.set(endpointId, free);
    if (free <= 0) full.add(endpointId);
  }
  return full;
}

export class Sweeper {
  readonly #options: SweeperOptions;
  #running: Promise<void> | undefined;
  #stopped = false;
  #woken = false;
  /** No room was left at all, or none for these endpoints: more may be due once it comes free. */
  #full = false;
  #saturated = new Set<string>();
  /** No room was left for endpoints that have not answered yet. */
  #closed = false;
  /** Endpoints were left out of the last claim, for others'. */
  #othersLag = false;
  /** Room that matters came free since the last claim began. */
  #freed = false;
  /** When to wake (performance.now): the earliest time known at which rows become due. */
  #dueAt = Number.POSITIVE_INFINITY;
  #askedAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #resume: (() => void) | undefined;
  /** Ends a pause after an error, for `stop`. */
  #interrupt: (() => void) | undefined;

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
    this.#interrupt?.();
    await this.#running;
  }

  /** Rows are due now. */
  wake(): void {
    this.#woken = true;
    this.#resume?.();
  }

  /** Rows will be due in `waitMs`: be awake then. */
  wakeIn(waitMs: number): void {
    const at = performance.now() + waitMs;
    if (at >= this.#dueAt) return;
    this.#dueAt = at;
    if (this.#resume !== undefined) this.#sleepUntil(at);
  }

  /** Room came free: for one endpoint, or room in all that was set aside and not used. */
  onRoom(endpointId?: string): void {
    const { dispatcher } = this.#options;
    const mattersTo = (id: string) => this.#saturated.has(id) && dispatcher.isHungry(id);
    const matters = this.#full
      ? dispatcher.hungry
      : (endpointId !== undefined && mattersTo(endpointId)) || (this.#closed && dispatcher.takesUnproven);
    if (!matters) return;
    this.#freed = true;
    this.#resume?.();
  }

  async #run(): Promise<void> {
    let failures = 0;
    while (!this.#stopped) {
      this.#woken = false;
      this.#freed = false;
      try {
        const until = await this.#sweep();
        failures = 0;
        // Woken during the sweep: what woke it may have come after the statements looked.
        if (!this.#woken && !this.#freed) await this.#sleep(until);
      } catch (error) {
        failures++;
        if (worthALine(failures)) {
          this.#options.log.warn({ err: error, failures }, "nothing could be claimed; trying again");
        }
        // However often it is woken meanwhile: a database that is down is not asked any faster.
        await this.#pause(AFTER_ERROR_MS);
      }
    }
  }

  async #sleep(until: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#resume = resolve;
    this.#dueAt = Math.min(until, this.#dueAt);
    this.#sleepUntil(this.#dueAt);
    await promise;
    this.#resume = undefined;
    clearTimeout(this.#timer);
  }

  async #pause(milliseconds: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#interrupt = resolve;
    const timer = setTimeout(resolve, milliseconds);
    if (!this.#stopped) await promise;
    clearTimeout(timer);
    this.#interrupt = undefined;
  }

  #sleepUntil(at: number): void {
    clearTimeout(this.#timer);
    // Rounded up: a timer cut short by a fraction wakes before the row is due.
    this.#timer = setTimeout(() => this.#resume?.(), Math.max(0, Math.ceil(at - performance.now())));
  }

  /** Claims until nothing more can be; the time (performance.now) to sleep until then. */
  async #sweep(): Promise<number> {
    const { deliveries, dispatcher, metrics } = this.#options;
    const started = performance.now();
    const ask = started - this.#askedAt >= ASK_EVERY_MS || this.#dueAt <= started + SHORTEST_SLEEP_MS;
    // What is written from here on is not seen by the statements below, perhaps, and counts anew.
    if (ask) this.#dueAt = Number.POSITIVE_INFINITY;
    let lookedAt: string;
    for (;;) {
      this.#full = !dispatcher.hungry;
      this.#freed = false;
      if (this.#full) return started + LONGEST_SLEEP_MS;
      const due = await dispatcher.fill((room) => {
        this.#saturated = saturated(room, []);
        this.#closed = room.perEndpoint === 0;
        this.#othersLag = room.othersLag === true;
        return deliveries.claim(room).then((claimed) => {
          for (const endpointId of saturated(room, claimed.claims)) this.#saturated.add(endpointId);
          return claimed;
        });
      }, "sweep");
      if (due.parked > 0) metrics.ended.inc({ state: "parked" }, due.parked);
      if (due.superseded > 0) metrics.ended.inc({ state: "superseded" }, due.superseded);
      if (this.#stopped) return started;
      lookedAt = due.lookedAt;
      if (!due.more && !this.#freed) break;
    }
    const looked = performance.now() - started;
    const longest = this.#othersLag
      ? Math.min(LONGEST_SLEEP_MS, Math.max(LAGGING_TURN_MS, LAGGING_TURN_LOOKS * looked))
      : LONGEST_SLEEP_MS;
    if (!ask) return started + longest;
    // From the instant of the last look on, so that what fell due since is not slept past.
    this.#askedAt = performance.now();
    const next = (await deliveries.nextDueMs(lookedAt)) ?? longest;
    const until = this.#askedAt + Math.min(longest, Math.max(SHORTEST_SLEEP_MS, next));
    // Kept for the sweeps that follow closely and do not ask.
    this.#dueAt = Math.min(this.#dueAt, until);
    return until;
  }
}
