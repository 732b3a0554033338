// Finds what no signal brought: compares watermarks with what was owed, at every (re)connect of the
// listener, whenever asked, and on a timer, rarely while signals are heard and every second while not.
import type { Owed } from "../notifications/deliveries.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { worthALine } from "../telemetry/sparingly.ts";
import { reconnectDelay } from "./backoff.ts";

/** How often watermarks are polled while nobody listens. */
const DEAF_INTERVAL_MS = 1_000;

export interface ReconcilerOptions {
  reconcile: () => Promise<Pick<Owed, "written" | "left" | "more">>;
  /** Told when rows were written that this process had no room to claim. */
  onLeft: () => void;
  hearing: () => boolean;
  intervalMs: number;
  metrics: Metrics;
  log: Logger;
}

export class Reconciler {
  readonly #options: ReconcilerOptions;
  #running: Promise<void> | undefined;
  #stopped = false;
  #asked = false;
  #failures = 0;
  #resume: (() => void) | undefined;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Looks now, or again at once where a look is under way: it may have begun too early. */
  ask(): void {
    this.#asked = true;
    this.#resume?.();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#resume?.();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      this.#asked = false;
      const wait = await this.#look();
      if (this.#asked && this.#failures === 0) continue;
      if (this.#stopped) return;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, wait);
        this.#resume = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#resume = undefined;
    }
  }

  /** One look; milliseconds until the next. */
  async #look(): Promise<number> {
    const { log, metrics, hearing, intervalMs } = this.#options;
    try {
      for (;;) {
        const owed = await this.#options.reconcile();
        if (owed.left > 0) this.#options.onLeft();
        if (owed.written > 0) {
          metrics.owed.inc({ by: "reconciler" }, owed.written);
          log.debug({ written: owed.written }, "owed what no signal brought");
        }
        if (!owed.more || this.#stopped) break;
      }
      this.#failures = 0;
      return hearing() ? intervalMs : Math.min(intervalMs, DEAF_INTERVAL_MS);
    } catch (error) {
      this.#failures++;
      const wait = Math.max(DEAF_INTERVAL_MS, reconnectDelay(this.#failures));
      if (worthALine(this.#failures)) {
        log.warn({ err: error, failures: this.#failures }, "watermarks could not be compared; trying again");
      }
      return wait;
    }
  }
}
