// Deletes deliveries that ended longer ago than the retention, in small batches, beside everything else.
import type { Logger } from "../telemetry/log.ts";
import type { Deliveries } from "./deliveries.ts";

const EVERY_MS = 60_000;
/** Rows of one statement: small enough that no claim notices. */
const BATCH = 1_000;

export interface RetentionOptions {
  deliveries: Pick<Deliveries, "expire">;
  retentionMs: number;
  log: Logger;
  /** For tests. */
  everyMs?: number;
}

export class Retention {
  readonly #options: RetentionOptions;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(options: RetentionOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setTimeout(() => {
      this.#running = this.#deleteAll().finally(() => {
        if (!this.#stopped) this.start();
      });
    }, this.#options.everyMs ?? EVERY_MS);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  async #deleteAll(): Promise<void> {
    const { deliveries, retentionMs, log } = this.#options;
    let deleted = 0;
    try {
      for (let batch = BATCH; batch === BATCH && !this.#stopped; deleted += batch) {
        batch = await deliveries.expire(retentionMs, BATCH);
      }
    } catch (error) {
      log.warn(
        { err: error },
        "deliveries past their retention could not be deleted; trying again in a while",
      );
    }
    if (deleted > 0) log.info({ deleted }, "deleted deliveries past their retention");
  }
}
