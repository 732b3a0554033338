// Formation on its way to groups: an intake and a reconciler of their own beside those of HTTPS endpoints, so
// that neither waits for the other, and where no group is listed nothing is asked of the database.
import type { Database } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { FormationHandoffs } from "../ledger/group-formation.ts";
import type { Settings } from "../settings/settings.ts";
import { Intake } from "../signals/intake.ts";
import { Reconciler } from "../signals/reconciler.ts";
import type { Signal } from "../signals/signal.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { RUN_ID } from "./run-id.ts";

export interface HandoffFeedOptions {
  db: Database;
  namespace: Namespace;
  settings: Settings;
  /** Whether signals are being heard. */
  hearing: () => boolean;
  metrics: Metrics;
  log: Logger;
}

export class HandoffFeed {
  readonly #intake: Intake;
  readonly #reconciler: Reconciler;

  constructor({ db, namespace, settings, hearing, metrics, log }: HandoffFeedOptions) {
    const { groups, listen: notify } = settings;
    const handoffs = new FormationHandoffs({ db, namespace, groups, notify, runId: RUN_ID });
    const onLeft = () => {};
    this.#reconciler = new Reconciler({
      reconcile: () => handoffs.reconcile(),
      onLeft,
      hearing,
      intervalMs: settings.reconcileMs,
      metrics,
      log,
    });
    this.#intake = new Intake({
      owe: (signals) => handoffs.owe(signals),
      onLeft,
      reconcile: () => this.look(),
      coalesceMs: settings.coalesceMs,
      metrics,
      log,
    });
  }

  start(): void {
    this.#reconciler.start();
  }

  offer(signal: Signal): void {
    this.#intake.offer(signal);
  }

  /** Compares watermarks with what was handed over, now. */
  look(): void {
    this.#reconciler.ask();
  }

  async stop(): Promise<void> {
    await Promise.all([this.#intake.stop(), this.#reconciler.stop()]);
  }
}
