// Sends what was claimed, as soon as there is room for it, and says what came of each.
import type { Sender, Outcome as SendOutcome } from "../egress/index.ts";
import { sign } from "../signing/index.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Claim, Heir, Looked, Outcome, Room } from "./deliveries.ts";
import { type Claimant, Lanes } from "./lanes.ts";
import { notificationBody } from "./payload.ts";
import type { Recorder } from "./recorder.ts";
import { retryWait } from "./retry.ts";

export interface DispatcherOptions {
  sender: Pick<Sender, "post" | "abort">;
  recorder: Pick<Recorder, "add">;
  concurrency: number;
  endpointConcurrency: number;
  maxAttempts: number;
  backoffMs: number;
  /** Told whenever an attempt to an endpoint ended and its room came free. */
  onRoom: (endpointId: string) => void;
  metrics: Metrics;
  log: Logger;
}

export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #lanes: Lanes;
  /** The child for the one outcome that is frequent: finding it by its label costs as much as the rest. */
  readonly #accepted: { inc(): void };
  #draining = false;
  #idle: (() => void) | undefined;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#lanes = new Lanes(options.concurrency, options.endpointConcurrency);
    this.#accepted = options.metrics.attempts.labels({ outcome: "accepted" });
    options.metrics.watchAttempts(() => this.#lanes.inFlight);
  }

  /**
   * Runs a claiming statement with the room there is now, and takes in what it claimed. The total is set
   * aside meanwhile, but for some where it looks through the table; where statements that overlapped took more for one
   * endpoint than it may have, the surplus is given back.
   */
  async fill<Result extends { claims: Claim[]; leftTo?: string[]; looked?: Looked }>(
    claim: (room: Room) => Promise<Result>,
    claimant?: Claimant,
  ): Promise<Result> {
    const room = this.#lanes.room(claimant);
    const unreserve = this.#lanes.reserve(room);
    const began = performance.now();
    try {
      const result = await claim(room);
      for (const one of result.claims) {
        if (this.#draining || !this.#lanes.add(one, room)) this.#giveBack(one);
      }
      if (result.leftTo !== undefined) this.#lanes.left(result.leftTo);
      if (result.looked !== undefined) this.#lanes.looked(room, result.looked, began);
      return result;
    } finally {
      unreserve();
      this.#sendWaiting();
    }
  }

  /** Whether a claiming statement is worth its price now: in all, and for one endpoint. */
  get hungry(): boolean {
    return this.#lanes.hungry;
  }

  get takesUnproven(): boolean {
    return this.#lanes.takesUnproven;
  }

  isHungry(endpointId: string): boolean {
    return this.#lanes.isHungry(endpointId);
  }

  /** The endpoint was disabled: what waits for it is not sent any more. */
  forget(endpointId: string): void {
    for (const claim of this.#lanes.takeWaiting(endpointId)) this.#giveBack(claim);
  }

  /**
   * Waits for the attempts under way, at most `graceMs`, then cuts the rest off: their claims are given
   * back, and no attempt is counted for them. What a late statement claims is given back unsent.
   */
  async drain(graceMs: number): Promise<void> {
    this.#draining = true;
    for (const claim of this.#lanes.takeWaiting()) this.#giveBack(claim);
    if (this.#lanes.inFlight === 0) return;
    const idle = new Promise<void>((resolve) => {
      this.#idle = resolve;
    });
    const cut = setTimeout(() => this.#options.sender.abort(), graceMs);
    await idle;
    clearTimeout(cut);
  }

  #giveBack({ deliveryId, lease }: Claim): void {
    this.#options.recorder.add({ deliveryId, lease, verdict: "released" });
  }

  #sendWaiting(): void {
    for (;;) {
      const { claim, stale } = this.#lanes.next();
      for (const late of stale) this.#giveBack(late);
      if (claim === undefined) break;
      void this.#send(claim);
    }
  }

  async #send(claim: Claim): Promise<void> {
    const started = performance.now();
    const result = await this.#attempt(claim);
    const ms = performance.now() - started;
    const { metrics, log, recorder, onRoom } = this.#options;
    if (result.kind !== "aborted") {
      metrics.attemptSeconds.observe(ms / 1_000);
      if (result.kind === "accepted") this.#accepted.inc();
      else metrics.attempts.inc({ outcome: result.category });
    }
    log.debug({ delivery: claim.deliveryId, attempt: claim.attempts, result }, "attempt ended");
    const how =
      result.kind === "failed" && result.retryable
        ? "failed"
        : result.kind === "accepted"
          ? "accepted"
          : "other";
    for (const waiting of this.#lanes.ended(claim.endpointId, how, ms)) this.#giveBack(waiting);
    const outcome = this.#judge(claim, result);
    recorder.add(claim.latest && outcome.verdict === "retry" ? this.#held(claim, outcome) : outcome);
    this.#sendWaiting();
    if (this.#lanes.inFlight === 0) this.#idle?.();
    onRoom(claim.endpointId);
  }

  async #attempt(claim: Claim): Promise<SendOutcome> {
    const { sender, log } = this.#options;
    try {
      const body = notificationBody(claim.news);
      // The database's clock: as it was when the claim was made, and what has passed since.
      const stamp = Math.floor((claim.databaseMs + performance.now() - claim.claimedAt) / 1_000);
      const headers = sign(claim.key, claim.deliveryId, stamp, body);
      return await sender.post(claim.url, { "content-type": "application/json", ...headers }, body);
    } catch (error) {
      // The sender never throws; whatever this is, the delivery is retried and the error is seen.
      log.error({ err: error, delivery: claim.deliveryId }, "an attempt could not be made");
      return { kind: "failed", category: "network error", retryable: true };
    }
  }

  /** Until the failure is recorded, news that takes its place would not know of it and be sent at once. */
  #held({ endpointId }: Claim, outcome: Outcome): Outcome {
    const letGo = this.#lanes.hold(endpointId);
    const onSettled = () => {
      letGo();
      this.#sendWaiting();
      this.#options.onRoom(endpointId);
    };
    return { ...outcome, onSettled };
  }

  /** Contract section 9. */
  #judge(claim: Claim, result: SendOutcome): Outcome {
    const { deliveryId, lease, news } = claim;
    const attempts = claim.attempts + claim.carried;
    // A row that takes this one's place waits with it only where this one had failed before.
    const anew = attempts > 1 ? heirOf(claim, 0, 0) : undefined;
    if (result.kind === "accepted") {
      return { deliveryId, lease, verdict: "delivered", status: result.status, news, heir: anew };
    }
    if (result.kind === "aborted") return { deliveryId, lease, verdict: "released" };
    const failed = { deliveryId, lease, status: result.status, error: result.category };
    if (!result.retryable || attempts >= this.#options.maxAttempts)
      return { ...failed, verdict: "parked", heir: anew };
    const waitMs = retryWait(attempts, this.#options.backoffMs, result.retryAfterMs);
    return { ...failed, verdict: "retry", waitMs, heir: heirOf(claim, attempts, waitMs) };
  }
}

function heirOf({ latest, endpointId, news }: Claim, carried: number, waitMs: number): Heir | undefined {
  return latest ? { endpointId, formedThrough: news.formedThrough, carried, waitMs } : undefined;
}
