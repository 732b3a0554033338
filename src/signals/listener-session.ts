// One LISTEN session on one connection, by pg-listen with its own recovery switched off: whatever goes
// wrong ends the session, once, and the listener opens a new one on a new connection.
import { randomUUID } from "node:crypto";
import { Socket } from "node:net";
import pgListen, { type Subscriber } from "pg-listen";

// pg-listen is CommonJS with a default export, which Node hands over as a member of the module.
const createSubscriber = pgListen.default;

/** One connection attempt, and one statement on the session. */
const CONNECT_LIMIT_MS = 5_000;
const QUERY_LIMIT_MS = 5_000;

export interface Channel {
  name: string;
  /** Called with each payload, in order. Must not throw. */
  onPayload: (payload: string) => void;
}

export interface SessionOptions {
  url: string;
  /** All heard on this one session. */
  channels: Channel[];
  applicationName: string;
  /** Called once the session can no longer be trusted, with the reason; perhaps more than once. */
  onEnd: (reason: string) => void;
}

export class ListenerSession {
  readonly #subscriber: Subscriber;
  readonly #options: SessionOptions;
  readonly #pulseChannel = `taisce_pulse_${randomUUID().replaceAll("-", "")}`;
  #socket: Socket | undefined;
  #onPulse: ((nonce: string) => void) | undefined;

  constructor(options: SessionOptions) {
    this.#options = options;
    this.#subscriber = createSubscriber(
      {
        connectionString: options.url,
        application_name: options.applicationName,
        connectionTimeoutMillis: CONNECT_LIMIT_MS,
        query_timeout: QUERY_LIMIT_MS,
        keepAlive: true,
        keepAliveInitialDelayMillis: 10_000,
        // The socket is kept at hand: on a half-open link nothing else closes a connection in time.
        stream: () => {
          this.#socket = new Socket();
          return this.#socket;
        },
      },
      // A limit of one makes pg-listen's reconnect loop end before its first round. Its heartbeat has
      // no time limit of its own and does not notice a lost LISTEN; `pulse` does both.
      {
        retryLimit: 1,
        paranoidChecking: false,
        parse: (payload: string) => payload,
        serialize: (text: string) => text,
      },
    );
    // pg-listen reports every lost connection as an error, once.
    this.#subscriber.events.on("error", (error) => options.onEnd(error.message));
    this.#subscriber.events.on("notification", ({ channel, payload }) => {
      if (channel === this.#pulseChannel) this.#onPulse?.(String(payload));
      else {
        const text = typeof payload === "string" ? payload : "";
        for (const { name, onPayload } of options.channels) if (name === channel) onPayload(text);
      }
    });
  }

  /** Connects and listens. @throws where the connection or LISTEN fails. */
  async open(): Promise<void> {
    await this.#subscriber.connect();
    // One after the other: statements piled onto one client are deprecated in pg.
    for (const { name } of this.#options.channels) await this.#subscriber.listenTo(name);
    await this.#subscriber.listenTo(this.#pulseChannel);
  }

  /**
   * Sends a NOTIFY to this very session and waits until it comes back: proof that the link, the server
   * and the LISTEN all work, which also unmasks a pooler that hands sessions around.
   *
   * @throws where it does not come back within `limitMs`.
   */
  async pulse(limitMs: number): Promise<void> {
    const nonce = randomUUID();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => reject(new Error("no heartbeat came back in time")), limitMs);
    this.#onPulse = (received) => {
      if (received === nonce) resolve();
    };
    try {
      await Promise.all([promise, this.#subscriber.notify(this.#pulseChannel, nonce)]);
    } finally {
      clearTimeout(timer);
      this.#onPulse = undefined;
    }
  }

  /** Ends the session at once: a goodbye where the link still works, the socket closed in any case. */
  close(): void {
    this.#subscriber.close().catch(() => {});
    const socket = this.#socket;
    if (socket === undefined) return;
    socket.on("error", () => {});
    socket.end(() => socket.destroy());
    setTimeout(() => socket.destroy(), 500).unref();
  }
}
