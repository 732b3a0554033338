// Hears NOTIFY channels for as long as the service runs: a session of its own, a heartbeat with a
// time limit, and a new session, for ever, whenever one ends. Being deaf costs latency and nothing
// else, because what is owed is looked up at every (re)connect and on a timer.
import type { Logger } from "../telemetry/log.ts";
import { worthALine } from "../telemetry/sparingly.ts";
import { reconnectDelay } from "./backoff.ts";
import { ListenerSession, type SessionOptions } from "./listener-session.ts";

/** A half-open link is noticed within their sum, and hearing again takes a reconnect more: under 16 s. */
const PULSE_INTERVAL_MS = 8_000;
const PULSE_LIMIT_MS = 5_000;

export interface ListenerOptions extends Omit<SessionOptions, "onEnd"> {
  /** Listening has (re)started: from here on nothing is missed, so what came before is looked up now. */
  onUp: () => void;
  onDown: () => void;
  log: Logger;
}

export class Listener {
  readonly #options: ListenerOptions;
  #stopped = false;
  #running: Promise<void> | undefined;
  /** Ends whatever the loop is waiting for. */
  #interrupt: (reason: string) => void = () => {};
  #up = false;
  #lastPulse: number | undefined;

  constructor(options: ListenerOptions) {
    this.#options = options;
  }

  /** Whether signals are being heard. */
  get up(): boolean {
    return this.#up;
  }

  /** Seconds since a heartbeat last came back; undefined before the first. */
  get pulseAgeSeconds(): number | undefined {
    return this.#lastPulse === undefined ? undefined : (performance.now() - this.#lastPulse) / 1_000;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Stops hearing; settles when the session is closed. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#interrupt("stopped");
    await this.#running;
  }

  async #run(): Promise<void> {
    let failures = 0;
    while (!this.#stopped) {
      const { reason, heard } = await this.#hear();
      if (this.#stopped) return;
      failures = heard ? 1 : failures + 1;
      const wait = reconnectDelay(failures);
      if (worthALine(failures)) {
        this.#options.log.warn({ reason, failures, wait_ms: wait }, "not listening; polling meanwhile");
      }
      await this.#pause(wait);
    }
  }

  async #pause(milliseconds: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<unknown>();
    this.#interrupt = resolve;
    const timer = setTimeout(resolve, milliseconds);
    await promise;
    clearTimeout(timer);
  }

  /** One session from connect to its end; why it ended, and whether it ever heard. */
  async #hear(): Promise<{ reason: string; heard: boolean }> {
    const over = Promise.withResolvers<string>();
    this.#interrupt = over.resolve;
    const session = new ListenerSession({ ...this.#options, onEnd: over.resolve });
    let open = true;
    let timer: NodeJS.Timeout | undefined;
    const beat = async (prove: () => Promise<void>) => {
      try {
        await prove();
        if (!open) return;
        this.#lastPulse = performance.now();
        if (!this.#up) this.#rise();
        timer = setTimeout(() => beat(() => session.pulse(PULSE_LIMIT_MS)), PULSE_INTERVAL_MS);
      } catch (error) {
        over.resolve(error instanceof Error ? error.message : String(error));
      }
    };
    void beat(async () => {
      await session.open();
      await session.pulse(PULSE_LIMIT_MS);
    });
    const reason = await over.promise;
    open = false;
    clearTimeout(timer);
    session.close();
    const heard = this.#up;
    if (this.#up) {
      this.#up = false;
      this.#options.onDown();
    }
    return { reason, heard };
  }

  #rise(): void {
    this.#up = true;
    this.#options.log.info({ channels: this.#options.channels.map(({ name }) => name) }, "listening");
    this.#options.onUp();
  }
}
