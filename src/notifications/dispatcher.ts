// Sends what was claimed, within this process's room, and says what came of each. A slow or failing
// endpoint takes only its own room: a few attempts at once, and one while it keeps failing.
import type { Sender, Outcome as SendOutcome } from "../egress/index.ts";
import { sign } from "../signing/index.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Claim, Outcome, Room } from "./deliveries.ts";
import { notificationBody } from "./payload.ts";
import type { Recorder } from "./recorder.ts";
import { retryWait } from "./retry.ts";

export interface DispatcherOptions {
  sender: Pick<Sender, "post">;
  recorder: Pick<Recorder, "add">;
  concurrency: number;
  endpointConcurrency: number;
  maxAttempts: number;
  backoffMs: number;
  /** Told whenever an attempt ended and its room came free. */
  onRoom: (endpointId: string) => void;
  metrics: Metrics;
  log: Logger;
}

interface EndpointState {
  inFlight: number;
  /** When its last attempt failed in a way that is retried (performance.now); 0 while it answers. */
  failedAt: number;
}

/** How long a failure is remembered for: a forgotten one costs the endpoint's usual few attempts. */
const FAILURE_MEMORY_MS = 600_000;

export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #endpoints = new Map<string, EndpointState>();
  readonly #abort = new AbortController();
  #inFlight = 0;
  #reserved = 0;
  #draining = false;
  #idle: (() => void) | undefined;

  constructor(options: DispatcherOptions) {
    this.#options = options;
  }

  /**
   * Runs a claiming statement with the room there is now, and dispatches what it claimed. The total is set
   * aside meanwhile; where statements that overlapped took more for one endpoint than it may have, the
   * surplus is given back.
   */
  async fill<Result extends { claims: Claim[] }>(claim: (room: Room) => Promise<Result>): Promise<Result> {
    const room = this.room();
    this.#reserved += room.total;
    try {
      const result = await claim(room);
      for (const one of result.claims) {
        if (this.#draining || this.#roomOf(this.#endpoints.get(one.endpointId)) === 0) this.#giveBack(one);
        else this.#send(one);
      }
      return result;
    } finally {
      this.#reserved -= room.total;
    }
  }

  room(): Room {
    const { concurrency, endpointConcurrency } = this.#options;
    const busy: Room["busy"] = [];
    const forget = performance.now() - FAILURE_MEMORY_MS;
    for (const [endpointId, state] of this.#endpoints) {
      if (state.inFlight === 0 && state.failedAt < forget) this.#endpoints.delete(endpointId);
      else busy.push({ endpointId, room: this.#roomOf(state) });
    }
    return {
      total: Math.max(0, concurrency - this.#inFlight - this.#reserved),
      perEndpoint: endpointConcurrency,
      busy,
    };
  }

  /** A few attempts at once, and one while it keeps failing. */
  #roomOf(state: EndpointState | undefined): number {
    const { inFlight, failedAt } = state ?? { inFlight: 0, failedAt: 0 };
    return Math.max(0, (failedAt > 0 ? 1 : this.#options.endpointConcurrency) - inFlight);
  }

  /**
   * Waits for the attempts under way, at most `graceMs`, then cuts the rest off: their claims are given
   * back, and no attempt is counted for them. What a late statement claims is given back unsent.
   */
  async drain(graceMs: number): Promise<void> {
    this.#draining = true;
    if (this.#inFlight === 0) return;
    const idle = new Promise<void>((resolve) => {
      this.#idle = resolve;
    });
    const cut = setTimeout(() => this.#abort.abort(), graceMs);
    await idle;
    clearTimeout(cut);
  }

  #giveBack({ deliveryId, lease }: Claim): void {
    this.#options.recorder.add({ deliveryId, lease, verdict: "released" });
  }

  #send(claim: Claim): void {
    const endpoint = this.#endpoints.get(claim.endpointId) ?? { inFlight: 0, failedAt: 0 };
    this.#endpoints.set(claim.endpointId, endpoint);
    endpoint.inFlight++;
    this.#inFlight++;
    this.#options.metrics.inFlight.set(this.#inFlight);
    void this.#attempt(claim).then((result) => {
      const outcome = this.#judge(claim, result);
      endpoint.inFlight--;
      if (result.kind === "failed" && result.retryable) endpoint.failedAt = performance.now();
      else if (result.kind === "accepted") endpoint.failedAt = 0;
      if (endpoint.inFlight === 0 && endpoint.failedAt === 0) this.#endpoints.delete(claim.endpointId);
      this.#inFlight--;
      this.#options.metrics.inFlight.set(this.#inFlight);
      this.#options.recorder.add(outcome);
      if (this.#inFlight === 0) this.#idle?.();
      this.#options.onRoom(claim.endpointId);
    });
  }

  async #attempt(claim: Claim): Promise<SendOutcome> {
    const { sender, metrics, log } = this.#options;
    const started = performance.now();
    let result: SendOutcome;
    try {
      const body = notificationBody(claim.news);
      // The database's clock, as it was when the claim was made a moment ago.
      const headers = sign(claim.secret, claim.deliveryId, Math.floor(claim.databaseMs / 1_000), body);
      result = await sender.post(
        claim.url,
        { "content-type": "application/json", ...headers },
        body,
        this.#abort.signal,
      );
    } catch (error) {
      // The sender never throws; whatever this is, the delivery is retried and the error is seen.
      log.error({ err: error, delivery: claim.deliveryId }, "an attempt could not be made");
      result = { kind: "failed", category: "network error", retryable: true };
    }
    if (result.kind !== "aborted") {
      metrics.attemptSeconds.observe((performance.now() - started) / 1_000);
      metrics.attempts.inc({ outcome: result.kind === "accepted" ? "accepted" : result.category });
    }
    log.debug({ delivery: claim.deliveryId, attempt: claim.attempts, result }, "attempt ended");
    return result;
  }

  /** Contract section 9. */
  #judge(claim: Claim, result: SendOutcome): Outcome {
    const { deliveryId, lease, attempts } = claim;
    if (result.kind === "accepted") return { deliveryId, lease, verdict: "delivered", status: result.status };
    if (result.kind === "aborted") return { deliveryId, lease, verdict: "released" };
    const failed = { deliveryId, lease, status: result.status, error: result.category };
    if (!result.retryable || attempts >= this.#options.maxAttempts) return { ...failed, verdict: "parked" };
    return {
      ...failed,
      verdict: "retry",
      waitMs: retryWait(attempts, this.#options.backoffMs, result.retryAfterMs),
    };
  }
}
