/**
 * One request from the check of its address to its status line, under one time limit; what is left of the
 * answer afterwards is read in the background, a little and briefly.
 */
import type { Dispatcher } from "undici";
import { type Connection, MAX_BODY_BYTES } from "./connection.ts";
import type { Borrower, Connections } from "./connections.ts";
import {
  categoryOf,
  EgressError,
  type FailureCategory,
  failed,
  type Outcome,
  outcomeOfStatus,
} from "./failure.ts";
import { retryAfterMs } from "./retry-after.ts";

/** Milliseconds that the rest of an answer may take, once its status line has decided. */
const DRAIN_MS = 1_000;
/** Kept connections found closed before anything was written, until the attempt counts as failed. */
const MAX_STALE = 3;
/** Informational answers before the real one; parsing each costs this thread some 10 µs. */
const MAX_INFORMATIONAL = 32;

export interface AttemptRequest {
  readonly origin: string;
  readonly path: string;
  /** Names and values in turn, as undici takes them. */
  readonly headers: string[];
  readonly body: string | Buffer;
  /** Milliseconds in all. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  /** Told before the first byte is written. */
  readonly onWritten?: (() => void) | undefined;
}

/** What the check before the send found: a reason not to, or nothing against it. */
export type Verdict = FailureCategory | undefined;

/** The check before the send. It may throw or reject: the attempt has then failed by that error's category. */
export type Check = () => Verdict | Promise<Verdict>;

export type Done = (attempt: Attempt, outcome: Outcome) => void;

type Headers = Record<string, string | string[] | undefined>;

/** undici calls the `on…` methods; they are one object's, since a request on a kept connection is short. */
export class Attempt implements Borrower, Dispatcher.DispatchHandler {
  readonly #request: AttemptRequest;
  readonly #connections: Connections;
  readonly #done: Done;
  #deadline: NodeJS.Timeout | undefined;
  #drainTimer: NodeJS.Timeout | undefined;
  #givenUp: AbortController | undefined;
  #connection: Connection | undefined;
  #settled = false;
  #written = false;
  #readToEnd = false;
  #tooLong = false;
  #stale = 0;
  #informational = 0;

  /** `done` is called exactly once, not before `start`. */
  constructor(request: AttemptRequest, connections: Connections, done: Done) {
    this.#request = request;
    this.#connections = connections;
    this.#done = done;
  }

  /** Fires when the attempt ends before its status line; for what the check waits for. */
  get givenUp(): AbortSignal {
    this.#givenUp ??= new AbortController();
    return this.#givenUp.signal;
  }

  /** Starts the clock, and sends when the check has found nothing against it. */
  start(check: Check): void {
    const { timeoutMs, signal } = this.#request;
    this.#deadline = setTimeout(onDeadline, timeoutMs, this);
    signal?.addEventListener("abort", this, { once: true });
    try {
      const verdict = check();
      if (typeof verdict !== "object") this.#proceed(verdict);
      else verdict.then((known) => this.#proceed(known)).catch((error: unknown) => this.#fail(error));
    } catch (error) {
      this.#fail(error);
    }
  }

  #proceed(verdict: Verdict): void {
    if (this.#settled) return;
    if (verdict !== undefined) this.#settle(failed(verdict));
    else this.#borrow();
  }

  #borrow(): void {
    try {
      this.#connections.borrow(this.#request.origin, this);
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    this.cut(failed(categoryOf(error)));
  }

  use(connection: Connection): void {
    this.#connection = connection;
    const { path, headers, body } = this.#request;
    try {
      connection.dispatch({ method: "POST", path, headers, body }, this);
    } catch (error) {
      this.#fail(error);
    }
  }

  refuse(error: EgressError): void {
    this.#fail(error);
  }

  /** The caller's signal fired: this object is its own listener. */
  handleEvent(): void {
    this.cut({ kind: "aborted" });
  }

  /**
   * Ends the attempt now and frees whatever it holds, down to a socket that is still connecting: undici's
   * own ways to give up a request leave that one to its fate.
   */
  cut(outcome: Outcome): void {
    if (this.#settled) return;
    this.#settle(outcome);
    this.#givenUp?.abort();
    if (this.#connection === undefined) this.#connections.withdraw(this.#request.origin, this);
    else this.#connections.drop(this.#connection);
  }

  #settle(outcome: Outcome): void {
    this.#settled = true;
    clearTimeout(this.#deadline);
    this.#request.signal?.removeEventListener("abort", this);
    this.#done(this, outcome);
  }

  onRequestStart(): void {
    this.#written = true;
    this.#request.onWritten?.();
    this.#connection?.expectAnswer();
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: Headers): void {
    if (this.#settled) return;
    if (status < 200) {
      // They decide nothing; 101 among them makes undici fail the request.
      this.#informational += 1;
      if (this.#informational > MAX_INFORMATIONAL) {
        controller.abort(new EgressError("EGRESS_DROPPED", "informational answers without end"));
      }
      return;
    }
    this.#connection?.answered();
    this.#tooLong = Number(headers["content-length"]) > MAX_BODY_BYTES;
    // By then the parser has gone through what came with the head, mostly the whole answer. It is asked for
    // before the caller is told, so that a caller's next post finds this connection free.
    queueMicrotask(() => this.#afterHead());
    this.#settle(outcomeOfHead(status, headers));
  }

  #afterHead(): void {
    const connection = this.#connection;
    if (connection === undefined) return;
    if (this.#tooLong) this.#connections.drop(connection);
    else if (this.#readToEnd) this.#connections.giveBack(connection);
    else if (this.#connections.drains(connection)) {
      this.#drainTimer = setTimeout(onDrainDeadline, DRAIN_MS, this.#connections, connection);
    }
  }

  /** The body says nothing to us; undici wants the method, and counts the bytes itself. */
  onResponseData(): void {}

  onResponseEnd(): void {
    this.#readToEnd = true;
    if (this.#drainTimer === undefined) return;
    clearTimeout(this.#drainTimer);
    queueMicrotask(() => this.#afterHead());
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    clearTimeout(this.#drainTimer);
    const connection = this.#connection;
    this.#connection = undefined;
    const again = !this.#settled && this.#mayBorrowAgain(error);
    if (!this.#settled && !again) this.#settle(failed(categoryOf(connection?.failure ?? error)));
    if (connection !== undefined) this.#connections.drop(connection);
    if (again) this.#borrow();
  }

  /** Only what was never written goes to another connection: no request is sent twice. */
  #mayBorrowAgain(error: Error): boolean {
    if (this.#written || !(error instanceof EgressError) || error.code !== "EGRESS_STALE") return false;
    this.#stale += 1;
    return this.#stale <= MAX_STALE;
  }
}

function outcomeOfHead(status: number, headers: Headers): Outcome {
  const outcome = outcomeOfStatus(status);
  if (outcome.kind === "failed" && (status === 429 || status === 503)) {
    const wait = retryAfterMs(headers["retry-after"]);
    if (wait !== undefined) outcome.retryAfterMs = wait;
  }
  return outcome;
}

function onDeadline(attempt: Attempt): void {
  attempt.cut(failed("timeout"));
}

function onDrainDeadline(connections: Connections, connection: Connection): void {
  connections.drop(connection);
}
