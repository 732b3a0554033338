// Delivers once: claims the key, sends or hands over, and records what came of it. What a claim promises is
// in docs/ledger.md; the states it passes through are those of a crash at any point.
import { setTimeout as sleep } from "node:timers/promises";
import { DatabaseUnavailable } from "../database/database.ts";
import { isConflict } from "../database/sqlstate.ts";
import type { FailureCategory, Sender } from "../egress/index.ts";
import { stringifyExact } from "../json/exact.ts";
import { isEndpointId } from "../notifications/endpoints.ts";
import { sign } from "../signing/index.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Claims, Destination, HeldClaim, Key } from "./claims.ts";
import { groupNameIn } from "./group-name.ts";
import type { HandedOff, HandOff } from "./groups.ts";
import { variablesHash } from "./hash.ts";
import { DELIVER_TARGET, LedgerError, type LedgerRow, newLedgerId } from "./ledger.ts";

/** Looks again for the outcome of somebody else's send of the same key, ever more rarely. */
const FIRST_LOOK_MS = 10;
const LONGEST_LOOK_MS = 200;
/** Callers of one key that wait in a process for its outcome; each looks for itself, and the pool is everyone's. */
const MOST_WAITING = 64;
/** Before recording again what the database did not take, and for how long. */
const TRY_AGAIN_MS = 250;
const RECORD_MS = 10_000;

export interface DeliverRequest {
  /** `https/deliver`, or `group:<name>`. */
  target: string;
  /** The endpoint's id; for a group the project's scope, which may be left out. */
  scope?: string | undefined;
  idempotency: string;
  identityId: string;
  runId: string;
  variables?: Record<string, unknown> | undefined;
  redeliver?: "never" | "on_change" | undefined;
}

export type DeliverAnswer =
  | { outcome: "accepted" | "already_delivered"; delivery: LedgerRow }
  /** Nobody knows whether the target has it; where this call found out so, by what its attempt ended in. */
  | { outcome: "held"; delivery: LedgerRow; category?: FailureCategory }
  /** The target has it not, or not these variables; `delivery` is the row of an earlier send. */
  | { outcome: "failed"; delivery: LedgerRow | null; category: FailureCategory };

export interface DeliverOptions {
  claims: Claims;
  /** Undefined where the operator lets nothing be sent by HTTPS. */
  sender: Pick<Sender, "post"> | undefined;
  groups: {
    permits(name: string): boolean;
    handOff(handoff: HandOff): Promise<HandedOff>;
  };
  /** One attempt in all, and how long its claim keeps others off: longer, by enough to record it. */
  timeoutMs: number;
  leaseMs: number;
  log: Logger;
}

/** Nothing is to be sent by HTTPS here. */
export class DeliverUnavailable extends Error {
  override readonly name = "DeliverUnavailable";
}

/** What a send is made of, whoever makes it. */
export interface Letter {
  url: string;
  secret: Buffer;
  body: string;
}

export class Deliver {
  readonly #options: DeliverOptions;
  readonly #underWay = new Set<Promise<unknown>>();
  /** How many callers of a key there are. */
  readonly #callers = new Map<string, number>();

  constructor(options: DeliverOptions) {
    this.#options = options;
  }

  /**
   * One send or handoff, ever, for each target, scope and idempotency key.
   *
   * @throws LedgerError, DeliverUnavailable, DatabaseUnavailable; after the last, the next call with the same
   * key tells what became of this one
   */
  async deliver(project: string, request: DeliverRequest): Promise<DeliverAnswer> {
    const group = groupNameIn(request.target);
    if (group !== undefined) return this.#handOff(project, group, request);
    if (request.target !== DELIVER_TARGET) {
      throw new LedgerError("invalid", `target must be "${DELIVER_TARGET}" or "group:<name>"`);
    }
    return this.#track(this.#inLine(project, request, () => this.#toEndpoint(project, request)));
  }

  /** Waits for sends under way, at most `graceMs`: what is cut off then is held, or sent again. */
  async drain(graceMs: number): Promise<void> {
    await Promise.race([Promise.allSettled(this.#underWay), sleep(graceMs, undefined, { ref: false })]);
  }

  async #handOff(project: string, group: string, request: DeliverRequest): Promise<DeliverAnswer> {
    const { scope = project, idempotency, identityId, runId, variables = {} } = request;
    if (scope !== project) {
      throw new LedgerError("invalid", "for a group, scope must be left out: it is the project's");
    }
    if (request.redeliver === "on_change") {
      throw new LedgerError(
        "invalid",
        "a group appends, so redeliver must be never: it would hand over twice",
      );
    }
    const { groups } = this.#options;
    if (!groups.permits(group)) {
      throw new LedgerError(
        "destination",
        "This group is not permitted. The operator lists group:<name> or group:* in TAISCE_NOTIFY_DESTINATIONS.",
      );
    }
    return groups.handOff({
      project,
      group,
      identityId,
      scope,
      idempotency,
      runId,
      variables,
      variablesHash: variablesHash(variables),
    });
  }

  async #toEndpoint(project: string, request: DeliverRequest): Promise<DeliverAnswer> {
    const { claims, leaseMs, sender } = this.#options;
    if (sender === undefined) throw new DeliverUnavailable("no host may be sent to");
    const destination = await this.#destination(project, request);
    const key: Key = { target: DELIVER_TARGET, scope: destination.id, idempotency: request.idempotency };
    const { variables = {} } = request;
    const hash = variablesHash(variables);
    const body = stringifyExact(variables);
    const stands = (row: LedgerRow | undefined, again = false): boolean => {
      if (row === undefined) return false;
      if (row.status === "unconfirmed") return true;
      return !again && !(request.redeliver === "on_change" && row.variables_hash !== hash);
    };

    // A second more than the lease, so that a caller right behind a claim that dies is told what became of it.
    const deadline = performance.now() + leaseMs + 1_000;
    for (let wait = FIRST_LOOK_MS; ; wait = Math.min(LONGEST_LOOK_MS, wait * 2)) {
      const { row, claim } = await claims.look(key);
      if (row !== undefined && stands(row, claim === "resumable")) return answerOf(row);
      if (claim === "dead") await claims.recover();
      else if (claim !== "live") {
        if (destination.disabled) {
          throw new LedgerError("destination", "This endpoint is disabled; register its URL again first.");
        }
        const taken = await claims.take(
          {
            ...key,
            project,
            leaseMs,
            id: newLedgerId(),
            variablesHash: hash,
            identityId: request.identityId,
            runId: request.runId,
            body: destination.idempotency === "native" ? body : undefined,
          },
          stands,
        );
        if (taken !== undefined && "status" in taken) return answerOf(taken);
        if (taken !== undefined) {
          const { url, secret, idempotency } = destination;
          return this.#send(key, taken, { url, secret, body }, idempotency === "native", row);
        }
      }
      if (performance.now() > deadline) throw busy();
      await sleep(wait);
    }
  }

  async #destination(project: string, { scope, redeliver }: DeliverRequest): Promise<Destination> {
    if (scope === undefined || scope === "") {
      throw new LedgerError(
        "invalid",
        `scope must be the id of a registered endpoint for "${DELIVER_TARGET}"`,
      );
    }
    const found = isEndpointId(scope) ? await this.#options.claims.endpoint(project, scope) : undefined;
    if (found === undefined) {
      throw new LedgerError(
        "not found",
        "This project has no such endpoint; list its endpoints for their ids.",
      );
    }
    if (!found.url.startsWith("https:")) {
      throw new LedgerError(
        "destination",
        "This endpoint is a group; deliver to it as the target group:<name>.",
      );
    }
    if (redeliver === "on_change" && found.idempotency !== "native") {
      throw new LedgerError(
        "invalid",
        'redeliver on_change needs an endpoint that updates in place: register it with "idempotency":"native"',
      );
    }
    return found;
  }

  async #send(
    key: Key,
    claim: HeldClaim,
    letter: Letter,
    native: boolean,
    before: LedgerRow | undefined,
  ): Promise<DeliverAnswer> {
    const { claims, log } = this.#options;
    const { result, left } = await this.post(claim, letter);
    log.debug({ delivery: claim.id, result }, "a delivery's attempt ended");
    if (result.kind === "accepted") {
      const row = (await this.#recorded(() => claims.complete(claim))) ?? (await claims.look(key)).row;
      if (row === undefined) throw busy();
      return { outcome: row.id === claim.id ? "accepted" : "already_delivered", delivery: row };
    }
    const category = result.kind === "failed" ? result.category : "network error";
    const refused = !left || (result.kind === "failed" && isRefusal(result.status));
    if (refused || native) {
      await this.#recorded(() => claims.drop(claim));
      return { outcome: "failed", delivery: before ?? null, category };
    }
    const row = (await this.#recorded(() => claims.hold(claim))) ?? (await claims.look(key)).row;
    if (row === undefined) throw busy();
    return row.status === "unconfirmed" ? { outcome: "held", delivery: row, category } : answerOf(row);
  }

  /** One attempt under a claim; `left`: whether the receiver may have anything of it. */
  async post(claim: HeldClaim, { url, secret, body }: Letter) {
    const { sender, timeoutMs, leaseMs, log } = this.#options;
    let left = false;
    const held = performance.now() - claim.claimedAt;
    // A process that stood still may find its lease at its end: nothing leaves that could outlast it.
    if (sender === undefined || held > leaseMs - timeoutMs) {
      return { left, result: { kind: "aborted" as const } };
    }
    const stamp = Math.floor((claim.databaseMs + held) / 1_000);
    try {
      const headers = { "content-type": "application/json", ...sign(secret, claim.id, stamp, body) };
      const result = await sender.post(url, headers, body, undefined, () => {
        left = true;
      });
      return { left, result };
    } catch (error) {
      // The sender never throws; whatever this is, it is seen, and what had left is not sent again.
      log.error({ err: error, delivery: claim.id }, "a delivery's attempt could not be made");
      return { left, result: { kind: "aborted" as const } };
    }
  }

  /** Tells the database an outcome, for a while; the claim it was made under runs out by itself. */
  async #recorded<Result>(record: () => Promise<Result>): Promise<Result> {
    const deadline = performance.now() + RECORD_MS;
    for (;;) {
      try {
        return await record();
      } catch (error) {
        const over = performance.now() > deadline;
        if (!(error instanceof DatabaseUnavailable || isConflict(error)) || over) throw error;
        await sleep(TRY_AGAIN_MS);
      }
    }
  }

  /** Takes a place among the callers of a key. @throws LedgerError where there are too many. */
  async #inLine<Result>(
    project: string,
    { scope, idempotency }: DeliverRequest,
    work: () => Promise<Result>,
  ): Promise<Result> {
    const key = JSON.stringify([project, scope, idempotency]);
    const callers = this.#callers.get(key) ?? 0;
    if (callers >= MOST_WAITING) throw busy();
    this.#callers.set(key, callers + 1);
    try {
      return await work();
    } finally {
      const left = (this.#callers.get(key) ?? 1) - 1;
      if (left > 0) this.#callers.set(key, left);
      else this.#callers.delete(key);
    }
  }

  async #track<Result>(work: Promise<Result>): Promise<Result> {
    this.#underWay.add(work);
    try {
      return await work;
    } finally {
      this.#underWay.delete(work);
    }
  }
}

/** Of an answer: a gateway that gave up on the target does not speak for it. */
function isRefusal(status: number | undefined): boolean {
  return status !== undefined && status !== 408 && status !== 502 && status !== 504;
}

function answerOf(delivery: LedgerRow): DeliverAnswer {
  return { outcome: delivery.status === "unconfirmed" ? "held" : "already_delivered", delivery };
}

function busy(): LedgerError {
  return new LedgerError("busy", "Others are sending under this key just now; try again in a second.");
}
