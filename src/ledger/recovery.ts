// Finds sends whose process died: holds those that may not be repeated, and sends the others again. Every
// process looks, so that none has to come back for it.
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "../telemetry/log.ts";
import type { Claims, Resumed } from "./claims.ts";
import type { Deliver } from "./deliver.ts";

const EVERY_MS = 6_000;
/** Sends that one look takes over; they go out side by side. */
const AT_ONCE = 16;

export interface RecoveryOptions {
  claims: Claims;
  /** Undefined where nothing may be sent from here: what can be sent again is left to others. */
  deliver: Pick<Deliver, "post"> | undefined;
  leaseMs: number;
  /** Sends of one delivery in all, the one that was cut off included. */
  maxAttempts: number;
  log: Logger;
}

export class Recovery {
  readonly #options: RecoveryOptions;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(options: RecoveryOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setTimeout(() => {
      this.#running = this.#look().finally(() => {
        if (!this.#stopped) this.start();
      });
    }, EVERY_MS);
  }

  /** Waits for what is under way, at most `graceMs`: another process takes over what is cut off then. */
  async stop(graceMs: number): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await Promise.race([this.#running, sleep(graceMs, undefined, { ref: false })]);
  }

  async #look(): Promise<void> {
    const { claims, deliver, leaseMs, log } = this.#options;
    // One that cannot be recorded is found again when its lease has run out; the others are not held up by it.
    const report = (error: unknown) =>
      log.warn({ err: error }, "a delivery that was sent again could not be recorded");
    try {
      const held = await claims.recover();
      if (held > 0) {
        log.warn(
          { held },
          "deliveries were in flight when their process died; they are held: see docs/ledger.md",
        );
      }
      if (deliver === undefined) return;
      const resumed = await claims.resume(AT_ONCE, leaseMs);
      await Promise.all(resumed.map((one) => this.#sendAgain(deliver, one).catch(report)));
    } catch (error) {
      log.warn({ err: error }, "deliveries in flight could not be recovered; trying again in a while");
    }
  }

  /** A retryable failure leaves the claim to run out, and the next look to take it over again. */
  async #sendAgain(deliver: Pick<Deliver, "post">, resumed: Resumed): Promise<void> {
    const { claims, maxAttempts, log } = this.#options;
    const { id, lease, disabled } = resumed;
    const { result } = disabled ? { result: undefined } : await deliver.post(resumed, resumed);
    if (result?.kind === "accepted") {
      await claims.complete(resumed);
      log.info({ delivery: id }, "a delivery that was in flight when its process died was sent again");
      return;
    }
    if (result?.kind === "aborted") return;
    if (result?.retryable === true && lease < maxAttempts) return;
    await claims.drop(resumed);
    log.warn(
      { delivery: id, error: result?.category },
      "a delivery cut off in flight could not be sent again",
    );
  }
}
