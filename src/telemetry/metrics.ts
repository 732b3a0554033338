// What the service counts, in a registry of its own. Labels come from closed lists only: no host, URL,
// project or endpoint ever becomes one.
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";

export class Metrics {
  readonly registry = new Registry();
  readonly signals: Counter<"outcome">;
  readonly owed: Counter<"by">;
  readonly attempts: Counter<"outcome">;
  readonly attemptSeconds: Histogram;
  readonly ended: Counter<"state">;
  readonly requests: Counter<"status">;

  constructor() {
    const registers = [this.registry];
    collectDefaultMetrics({ register: this.registry });
    this.signals = new Counter({
      name: "taisce_notify_signals_total",
      help: "NOTIFY payloads heard, by what became of them",
      labelNames: ["outcome"],
      registers,
    });
    this.owed = new Counter({
      name: "taisce_notify_owed_total",
      help: "Deliveries written by this process, by what found them",
      labelNames: ["by"],
      registers,
    });
    this.attempts = new Counter({
      name: "taisce_notify_attempts_total",
      help: "Attempts that ended, by outcome category",
      labelNames: ["outcome"],
      registers,
    });
    this.attemptSeconds = new Histogram({
      name: "taisce_notify_attempt_seconds",
      help: "From the start of an attempt to its outcome",
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20],
      registers,
    });
    this.ended = new Counter({
      name: "taisce_notify_deliveries_ended_total",
      help: "Deliveries that reached an end in this process",
      labelNames: ["state"],
      registers,
    });
    this.requests = new Counter({
      name: "taisce_notify_http_requests_total",
      help: "API requests answered, by status",
      labelNames: ["status"],
      registers,
    });
  }

  /** Publishes how many attempts are under way, asked for when the metrics are read. */
  watchAttempts(underWay: () => number): void {
    new Gauge({
      name: "taisce_notify_attempts_in_flight",
      help: "Attempts under way",
      registers: [this.registry],
      collect() {
        this.set(underWay());
      },
    });
  }

  /** Publishes how a listener fares, read when the metrics are. Where nothing listens, there is no such metric. */
  watchListener(listener: { readonly up: boolean; readonly pulseAgeSeconds: number | undefined }): void {
    const registers = [this.registry];
    new Gauge({
      name: "taisce_notify_listener_up",
      help: "1 while signals are heard, 0 while watermarks are polled instead",
      registers,
      collect() {
        this.set(listener.up ? 1 : 0);
      },
    });
    new Gauge({
      name: "taisce_notify_listener_heartbeat_age_seconds",
      help: "Since the listening session last proved itself; -1 before the first time",
      registers,
      collect() {
        this.set(listener.pulseAgeSeconds ?? -1);
      },
    });
  }
  /** Publishes how many readers of groups wait, read when the metrics are. */
  watchReaders(readers: { readonly waiting: number }): void {
    new Gauge({
      name: "taisce_notify_readers_waiting",
      help: "Requests that wait for a group's next handoff",
      registers: [this.registry],
      collect() {
        this.set(readers.waiting);
      },
    });
  }
}
