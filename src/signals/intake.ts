// From payloads to deliveries owed. The first signal is owed at once; those that arrive while that
// statement runs are owed together by the next. Signals are hints: when they cannot be owed they are
// dropped and the reconciler is asked to look.
import { isConflict } from "../database/sqlstate.ts";
import type { Owed } from "../notifications/deliveries.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { worthALine } from "../telemetry/sparingly.ts";
import { parseSignal, type Signal } from "./signal.ts";

/** Signals of one statement, at most; and rows, as far as those of the statement before let it be foreseen. */
const BATCH = 256;
const BATCH_ROWS = 1_000;
/** More than this waiting means the database cannot keep up; one reconciliation owes them all. */
const MOST_WAITING = 10_000;

const MAX_INT4 = 2_147_483_647;

export interface IntakeOptions {
  owe: (signals: Signal[]) => Promise<Pick<Owed, "written" | "left">>;
  /** Told when rows were written that this process had no room to claim. */
  onLeft: () => void;
  /** Asks the reconciler to look at the watermarks now. */
  reconcile: () => void;
  coalesceMs: number;
  metrics: Metrics;
  log: Logger;
}

export class Intake {
  readonly #options: IntakeOptions;
  #waiting: Signal[] = [];
  /** While coalescing: the newest signal of each project that is being gathered. */
  readonly #gathered = new Map<string, Signal>();
  #owing: Promise<void> | undefined;
  #unreadable = 0;
  /** Deliveries that a signal of the last statement was worth. */
  #rowsPerSignal = 1;
  #stopped = false;

  constructor(options: IntakeOptions) {
    this.#options = options;
  }

  /**
   * Takes one payload; the signal in it, if it is one. Never throws: it is called from the connection's data
   * handler.
   */
  take(payload: string): Signal | undefined {
    if (this.#stopped) return undefined;
    const signal = parseSignal(payload);
    if (signal === undefined) {
      this.#options.metrics.signals.inc({ outcome: "unreadable" });
      this.#unreadable++;
      // Any role in the database may NOTIFY anything: it must not be able to fill the log.
      if (worthALine(this.#unreadable)) {
        const { length: bytes } = payload;
        this.#options.log.warn(
          { bytes, count: this.#unreadable },
          "a NOTIFY payload is no signal and was ignored",
        );
      }
      return undefined;
    }
    this.#options.metrics.signals.inc({ outcome: "taken" });
    this.offer(signal);
    return signal;
  }

  /** Takes a signal that was read and counted already. */
  offer(signal: Signal): void {
    if (this.#stopped) return;
    if (this.#options.coalesceMs > 0) this.#gather(signal);
    else this.#queue(signal);
  }

  /** Takes nothing more; settles when what was taken is owed. Gathered signals are left to the reconciler. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#gathered.clear();
    await this.#owing;
  }

  #gather(signal: Signal): void {
    const known = this.#gathered.get(signal.scope);
    if (known === undefined) {
      this.#gathered.set(signal.scope, signal);
      setTimeout(() => {
        const newest = this.#gathered.get(signal.scope);
        this.#gathered.delete(signal.scope);
        if (newest !== undefined) this.#queue(newest);
      }, this.#options.coalesceMs).unref();
      return;
    }
    const newest = signal.formedThrough > known.formedThrough ? signal : known;
    const formedTurns = Math.min(MAX_INT4, known.formedTurns + signal.formedTurns);
    this.#gathered.set(signal.scope, { ...newest, formedTurns });
  }

  #queue(signal: Signal): void {
    if (this.#waiting.length >= MOST_WAITING) {
      this.#options.metrics.signals.inc({ outcome: "dropped" });
      this.#options.reconcile();
      return;
    }
    this.#waiting.push(signal);
    this.#owing ??= this.#oweAll().finally(() => {
      this.#owing = undefined;
    });
  }

  async #oweAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const size = Math.max(1, Math.min(BATCH, Math.floor(BATCH_ROWS / this.#rowsPerSignal)));
      const batch = this.#waiting.slice(0, size);
      this.#waiting = this.#waiting.slice(size);
      try {
        const owed = await this.#owe(batch);
        this.#rowsPerSignal = Math.max(1, owed.written / batch.length);
        this.#options.metrics.owed.inc({ by: "signal" }, owed.written);
        if (owed.left > 0) this.#options.onLeft();
      } catch (error) {
        this.#options.log.warn(
          { err: error, signals: batch.length },
          "signals not owed; reconciling instead",
        );
        this.#options.reconcile();
      }
    }
  }

  async #owe(batch: Signal[]): Promise<Pick<Owed, "written" | "left">> {
    try {
      return await this.#options.owe(batch);
    } catch (error) {
      if (!isConflict(error)) throw error;
      return await this.#options.owe(batch);
    }
  }
}
