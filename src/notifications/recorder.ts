// Writes outcomes together: one statement for up to 64 of them, or for those of the last 5 ms. What it
// could not write it keeps and tries again; a claim whose lease ran out meanwhile is simply not found.
import { setTimeout as sleep } from "node:timers/promises";
import { DatabaseUnavailable } from "../database/database.ts";
import { isConflict } from "../database/sqlstate.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Deliveries, Outcome } from "./deliveries.ts";

const FLUSH_COUNT = 64;
const FLUSH_AFTER_MS = 5;
const TRY_AGAIN_MS = 250;

export interface RecorderOptions {
  deliveries: Pick<Deliveries, "record">;
  /** Told how soon the next retry of a batch just written is due. */
  onRetry: (waitMs: number) => void;
  metrics: Metrics;
  log: Logger;
}

export class Recorder {
  readonly #options: RecorderOptions;
  #waiting: Outcome[] = [];
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;

  constructor(options: RecorderOptions) {
    this.#options = options;
  }

  add(outcome: Outcome): void {
    this.#waiting.push(outcome);
    if (this.#waiting.length >= FLUSH_COUNT) void this.#write();
    else this.#writeIn(FLUSH_AFTER_MS);
  }

  /** Settles when nothing waits to be written, or after `limitMs`; how many outcomes are still unwritten. */
  async flush(limitMs: number): Promise<number> {
    const deadline = performance.now() + limitMs;
    for (;;) {
      const written = this.#write().then(() => this.#waiting.length === 0);
      const left = deadline - performance.now();
      const done = await Promise.race([written, sleep(Math.max(0, left), false, { ref: false })]);
      if (done || performance.now() >= deadline) break;
      // The database refused: it is asked again, not hammered.
      await sleep(Math.min(TRY_AGAIN_MS, Math.max(0, deadline - performance.now())));
    }
    clearTimeout(this.#timer);
    return this.#waiting.length;
  }

  #writeIn(milliseconds: number): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#write();
    }, milliseconds);
  }

  /** One batch at a time: what arrives meanwhile makes the next one fuller. */
  #write(): Promise<void> {
    this.#writing ??= this.#writeBatches().finally(() => {
      this.#writing = undefined;
      if (this.#waiting.length > 0) this.#writeIn(TRY_AGAIN_MS);
    });
    return this.#writing;
  }

  async #writeBatches(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.slice(0, FLUSH_COUNT);
      try {
        await this.#writeBatch(batch);
      } catch (error) {
        this.#options.log.warn({ err: error, waiting: this.#waiting.length }, "outcomes not recorded yet");
        return;
      }
      this.#waiting = this.#waiting.slice(batch.length);
    }
  }

  async #writeBatch(batch: Outcome[]): Promise<void> {
    const { deliveries, log } = this.#options;
    try {
      const recorded = await deliveries.record(batch);
      const stale = batch.length - recorded.size;
      if (stale > 0) log.warn({ stale }, "outcomes came after their claim had ended and were dropped");
      this.#account(batch.filter(({ deliveryId }) => recorded.has(deliveryId)));
    } catch (error) {
      if (error instanceof DatabaseUnavailable || isConflict(error)) throw error;
      // PostgreSQL refuses the values of one of them: it must not hold up the others. Its claim runs out,
      // and after the last attempt it is parked as unrecorded.
      if (batch.length > 1) for (const one of batch) await this.#writeBatch([one]);
      else log.error({ err: error, delivery: batch[0]?.deliveryId }, "an outcome cannot be recorded");
    }
  }

  #account(recorded: Outcome[]): void {
    let soonest = Number.POSITIVE_INFINITY;
    for (const { deliveryId, verdict, waitMs, error } of recorded) {
      if (verdict === "parked") this.#options.log.info({ delivery: deliveryId, error }, "delivery parked");
      if (verdict === "retry") soonest = Math.min(soonest, waitMs ?? 0);
      else if (verdict !== "released") this.#options.metrics.ended.inc({ state: verdict });
    }
    if (Number.isFinite(soonest)) this.#options.onRetry(soonest);
  }
}
