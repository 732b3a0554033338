// The delivery engine of one process: signals in, deliveries out, wired together, started in the order
// in which nothing is missed and stopped in the order in which nothing is lost.
import { setTimeout as sleep } from "node:timers/promises";
import type { Database } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import type { Sender } from "../egress/index.ts";
import { Deliveries, type Owed, type Room } from "../notifications/deliveries.ts";
import { Dispatcher } from "../notifications/dispatcher.ts";
import type { Claimant } from "../notifications/lanes.ts";
import { Recorder } from "../notifications/recorder.ts";
import { Retention } from "../notifications/retention.ts";
import { Sweeper } from "../notifications/sweeper.ts";
import type { Settings } from "../settings/settings.ts";
import { Intake } from "../signals/intake.ts";
import { Listener } from "../signals/listener.ts";
import type { Channel } from "../signals/listener-session.ts";
import { Reconciler } from "../signals/reconciler.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { APPLICATION_NAME } from "./connection.ts";
import { HandoffFeed } from "./handoff-feed.ts";
import { RUN_ID } from "./run-id.ts";

/**
 * What a lease leaves beyond one attempt's time limit, for a claim that waited for the event loop or an
 * outcome that waited for the database. With the longest time limit, 20 s, a lease is 30 s.
 */
const LEASE_MARGIN_MS = 10_000;

/**
 * A clean stop waits at most this long for statements under way (a dead link would answer none), then for
 * attempts, then to record them. With the pool's own second that is 9.5 s, inside the 10 s that a container
 * gets by default.
 */
const SETTLE_MS = 2_000;
const DRAIN_MS = 5_000;
const FLUSH_MS = 1_500;

export interface EngineOptions {
  db: Database;
  namespace: Namespace;
  listenUrl: string;
  sender: Sender;
  settings: Settings;
  /** What else is heard on the listening session, and what to do once it hears anew. */
  alsoHear?: { channel: Channel; onUp: () => void } | undefined;
  metrics: Metrics;
  log: Logger;
}

export class Engine {
  readonly #sweeper: Sweeper;
  readonly #retention: Retention;
  readonly #dispatcher: Dispatcher;
  readonly #recorder: Recorder;
  readonly #reconciler: Reconciler;
  readonly #intake: Intake;
  readonly #handoffs: HandoffFeed | undefined;
  readonly #listener: Listener | undefined;
  readonly #log: Logger;

  constructor({ db, namespace, listenUrl, sender, settings, alsoHear, metrics, log }: EngineOptions) {
    this.#log = log;
    const deliveries = new Deliveries(db, namespace, {
      leaseMs: settings.timeoutMs + LEASE_MARGIN_MS,
      maxAttempts: settings.attempts,
      ledgerRun: settings.ledgerNotifications ? RUN_ID : undefined,
    });
    const recorder = new Recorder({
      deliveries,
      onRetry: (waitMs) => this.#sweeper.wakeIn(waitMs),
      metrics,
      log,
    });
    const dispatcher = new Dispatcher({
      sender,
      recorder,
      concurrency: settings.concurrency,
      endpointConcurrency: settings.endpointConcurrency,
      maxAttempts: settings.attempts,
      backoffMs: settings.backoffMs,
      onRoom: (endpointId) => this.#sweeper.onRoom(endpointId),
      metrics,
      log,
    });
    this.#recorder = recorder;
    this.#dispatcher = dispatcher;
    this.#sweeper = new Sweeper({ deliveries, dispatcher, metrics, log });
    this.#retention = new Retention({ deliveries, retentionMs: settings.retentionMs, log });
    const onLeft = () => this.#sweeper.wake();
    // Room set aside for a statement that then used little of it is news to a sweeper that found none.
    const owing = async (owe: (room: Room) => Promise<Owed>, claimant: Claimant) => {
      const owed = await dispatcher.fill(owe, claimant).finally(() => this.#sweeper.onRoom());
      if (owed.superseded > 0) metrics.ended.inc({ state: "superseded" }, owed.superseded);
      return owed;
    };
    const hearing = () => this.#listener?.up === true;
    this.#reconciler = new Reconciler({
      reconcile: () => owing((room) => deliveries.reconcile(room), "comparison"),
      onLeft,
      hearing,
      intervalMs: settings.reconcileMs,
      metrics,
      log,
    });
    this.#intake = new Intake({
      owe: async (signals) => {
        const projects = new Set(signals.map(({ scope }) => scope));
        const owed = await owing((room) => deliveries.owe(signals, room), projects);
        if (!owed.more) return owed;
        if (owed.left > 0) onLeft();
        const rest = await owing((room) => deliveries.oweLatest(signals, room), projects);
        return { written: owed.written + rest.written, left: rest.left };
      },
      onLeft,
      reconcile: () => this.#reconciler.ask(),
      coalesceMs: settings.coalesceMs,
      metrics,
      log,
    });
    this.#handoffs = settings.groups.empty
      ? undefined
      : new HandoffFeed({ db, namespace, settings, hearing, metrics, log });
    const compare = () => {
      this.#reconciler.ask();
      this.#handoffs?.look();
    };
    this.#listener = settings.listen
      ? new Listener({
          url: listenUrl,
          channels: [
            { name: settings.channel, onPayload: (payload) => this.#take(payload) },
            ...(alsoHear === undefined ? [] : [alsoHear.channel]),
          ],
          applicationName: `${APPLICATION_NAME} listener`,
          onUp: () => {
            compare();
            alsoHear?.onUp();
          },
          onDown: compare,
          log,
        })
      : undefined;
    if (this.#listener !== undefined) metrics.watchListener(this.#listener);
  }

  get listener(): "up" | "down" | "off" {
    if (this.#listener === undefined) return "off";
    return this.#listener.up ? "up" : "down";
  }

  start(): void {
    this.#listener?.start();
    this.#reconciler.start();
    this.#handoffs?.start();
    this.#sweeper.start();
    this.#retention.start();
  }

  #take(payload: string): void {
    const signal = this.#intake.take(payload);
    if (signal !== undefined) this.#handoffs?.offer(signal);
  }

  /** The endpoint was disabled. */
  forget(endpointId: string): void {
    this.#dispatcher.forget(endpointId);
  }

  /** Hears and claims nothing more, finishes or gives back what is under way, and records all of it. */
  async stop(): Promise<void> {
    await this.#listener?.stop();
    await Promise.race([
      Promise.all([
        this.#intake.stop(),
        this.#reconciler.stop(),
        this.#handoffs?.stop(),
        this.#sweeper.stop(),
        this.#retention.stop(),
      ]),
      sleep(SETTLE_MS, undefined, { ref: false }),
    ]);
    await this.#dispatcher.drain(DRAIN_MS);
    const unwritten = await this.#recorder.flush(FLUSH_MS);
    if (unwritten > 0) {
      this.#log.warn({ unwritten }, "outcomes could not be recorded; those deliveries may arrive twice");
    }
  }
}
