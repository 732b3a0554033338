// Writes outcomes together: when there are 64 of them, or for those of the last 5 ms. What it could not
// write it keeps and tries again; a claim whose lease ran out meanwhile is simply not found.
import { setTimeout as sleep } from "node:timers/promises";
import { refusesValues } from "../database/sqlstate.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Deliveries, Outcome } from "./deliveries.ts";

const FLUSH_COUNT = 64;
const FLUSH_AFTER_MS = 5;
/** Outcomes of one statement, where more than 64 came in while the one before was under way. */
const MOST_AT_ONCE = 256;
const TRY_AGAIN_MS = 250;

export interface RecorderOptions {
  deliveries: Pick<Deliveries, "record" | "passOn">;
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
  #closed = false;

  constructor(options: RecorderOptions) {
    this.#options = options;
  }

  add(outcome: Outcome): void {
    this.#waiting.push(outcome);
    if (this.#waiting.length >= FLUSH_COUNT) void this.#write();
    else this.#writeIn(FLUSH_AFTER_MS);
  }

  /**
   * Writes what waits, at most `limitMs`, and closes: what is added or left after that is given up. How
   * many outcomes are unwritten.
   */
  async flush(limitMs: number): Promise<number> {
    const deadline = performance.now() + limitMs;
    while (this.#waiting.length > 0 || this.#writing !== undefined) {
      const left = deadline - performance.now();
      if (left <= 0) break;
      await Promise.race([this.#write(), sleep(left, undefined, { ref: false })]);
      // The database refused, or somebody holds a row: it is asked again, not hammered.
      if (this.#waiting.length > 0)
        await sleep(Math.min(TRY_AGAIN_MS, Math.max(0, deadline - performance.now())));
    }
    this.#closed = true;
    clearTimeout(this.#timer);
    return this.#waiting.length;
  }

  #writeIn(milliseconds: number): void {
    if (this.#closed) return;
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
    const locked: Outcome[] = [];
    try {
      while (this.#waiting.length > 0) {
        const batch = this.#waiting.slice(0, MOST_AT_ONCE);
        locked.push(...(await this.#writeBatch(batch)));
        this.#waiting = this.#waiting.slice(batch.length);
      }
    } catch (error) {
      this.#options.log.warn({ err: error, waiting: this.#waiting.length }, "outcomes not recorded yet");
    }
    this.#waiting.push(...locked);
  }

  /** Those of a batch whose rows are locked. */
  async #writeBatch(batch: Outcome[]): Promise<Outcome[]> {
    const { deliveries, log } = this.#options;
    try {
      const { recorded, locked } = await deliveries.record(batch);
      const stale = batch.length - recorded.size - locked.size;
      if (stale > 0) log.warn({ stale }, "outcomes came after their claim had ended and were dropped");
      const written = batch.filter(({ deliveryId }) => recorded.has(deliveryId));
      await this.#passOn(written);
      this.#account(written);
      for (const { deliveryId, onSettled } of batch) if (!locked.has(deliveryId)) onSettled?.();
      return batch.filter(({ deliveryId }) => locked.has(deliveryId));
    } catch (error) {
      if (!refusesValues(error)) throw error;
      // PostgreSQL refuses the values of one of them: it must not hold up the others. Its claim runs out,
      // and after the last attempt it is parked as unrecorded.
      const locked: Outcome[] = [];
      if (batch.length > 1) for (const one of batch) locked.push(...(await this.#writeBatch([one])));
      else {
        log.error({ err: error, delivery: batch[0]?.deliveryId }, "an outcome cannot be recorded");
        batch[0]?.onSettled?.();
      }
      return locked;
    }
  }

  /** Where this fails, a row that waits for what it follows does so until that one's lease would have ended. */
  async #passOn(recorded: Outcome[]): Promise<void> {
    const heirs = recorded.flatMap(({ heir }) => heir ?? []);
    if (heirs.length === 0) return;
    const { deliveries, log } = this.#options;
    await deliveries.passOn(heirs).catch((error) => {
      log.warn(
        { err: error, deliveries: heirs.length },
        "newer deliveries were not told what came of earlier ones",
      );
    });
  }

  #account(recorded: Outcome[]): void {
    let soonest = Number.POSITIVE_INFINITY;
    let delivered = 0;
    for (const { deliveryId, verdict, waitMs, error, heir } of recorded) {
      soonest = Math.min(soonest, heir?.waitMs ?? soonest);
      if (verdict === "delivered") delivered++;
      else if (verdict === "parked") {
        this.#options.metrics.ended.inc({ state: "parked" });
        this.#options.log.info({ delivery: deliveryId, error }, "delivery parked");
        // What was given back is due at once.
      } else soonest = Math.min(soonest, waitMs ?? 0);
    }
    if (delivered > 0) this.#options.metrics.ended.inc({ state: "delivered" }, delivered);
    if (Number.isFinite(soonest)) this.#options.onRetry(soonest);
  }
}
