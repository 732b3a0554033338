// The link between a replica and PostgreSQL: a TCP proxy that can fall silent, be cut, refused or slowed.
//
// Unlike the proxy of the tests, silence here loses nothing: as on a real network, what was sent meanwhile
// arrives when the link comes back, however late, and so does the end of a connection. A statement that its
// process gave up long ago then still runs.
import { createServer, type Socket, connect as tcpConnect } from "node:net";

interface Parcel {
  at: number;
  /** Undefined: the end of the connection. */
  bytes: Buffer | undefined;
}

/** One direction of one connection: bytes on their way, in order. */
class Lane {
  readonly #to: Socket;
  readonly #link: Link;
  #silent = false;
  #parcels: Parcel[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(link: Link, from: Socket, to: Socket) {
    this.#link = link;
    this.#to = to;
    from.on("data", (bytes) => this.#take(bytes));
    from.on("close", () => this.#take(undefined));
    from.on("error", () => {});
  }

  set silent(silent: boolean) {
    this.#silent = silent;
    this.#pass();
  }

  #take(bytes: Buffer | undefined): void {
    this.#parcels.push({ at: performance.now() + this.#link.delayMs, bytes });
    this.#pass();
  }

  #pass(): void {
    clearTimeout(this.#timer);
    if (this.#silent) return;
    for (let next = this.#parcels[0]; next !== undefined; next = this.#parcels[0]) {
      const wait = next.at - performance.now();
      if (wait > 0) {
        this.#timer = setTimeout(() => this.#pass(), Math.ceil(wait));
        return;
      }
      this.#parcels.shift();
      if (next.bytes === undefined) this.#to.end();
      else if (this.#to.writable) this.#to.write(next.bytes);
    }
  }
}

export class Link {
  /** Each direction of what is sent from now on takes this long. */
  delayMs = 0;
  readonly #server = createServer((client) => this.#accept(client));
  readonly #connections = new Map<Socket, { upstream: Socket; lanes: Lane[] }>();
  readonly #target: URL;
  #silent = false;
  #port = 0;

  private constructor(target: string) {
    this.#target = new URL(target);
  }

  static async open(target: string): Promise<Link> {
    const link = new Link(target);
    await link.#listen();
    return link;
  }

  /** The target's connection string, by way of this link, with settings such as `faults.replica=r1`. */
  url(settings: Record<string, string>): string {
    const url = new URL(this.#target);
    url.port = String(this.#port);
    const options = Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`);
    url.searchParams.set("options", options.join(" "));
    return url.href;
  }

  /** Open connections stay open and nothing passes; new ones do too, unless they are to pass. */
  silence({ newOnes }: { newOnes: "pass" | "silent" }): void {
    this.#silent = newOnes === "silent";
    this.#hush(true);
  }

  /** Resets every connection; new ones pass. */
  cut(): void {
    for (const [client, { upstream }] of this.#connections) {
      client.resetAndDestroy();
      upstream.resetAndDestroy();
    }
    this.#connections.clear();
  }

  /** Resets every connection and refuses new ones until `heal`. */
  async refuse(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.cut();
    await closed;
  }

  /** As good as new; what was held back passes now. */
  async heal(): Promise<void> {
    this.delayMs = 0;
    this.#silent = false;
    this.#hush(false);
    if (!this.#server.listening) await this.#listen();
  }

  async close(): Promise<void> {
    if (this.#server.listening) await this.refuse();
  }

  #hush(silent: boolean): void {
    for (const { lanes } of this.#connections.values()) for (const lane of lanes) lane.silent = silent;
  }

  #accept(client: Socket): void {
    const upstream = tcpConnect(Number(this.#target.port), this.#target.hostname);
    for (const socket of [client, upstream]) socket.setNoDelay(true);
    const lanes = [new Lane(this, client, upstream), new Lane(this, upstream, client)];
    for (const lane of lanes) lane.silent = this.#silent;
    this.#connections.set(client, { upstream, lanes });
    const forget = () => {
      if (client.closed && upstream.closed) this.#connections.delete(client);
    };
    client.once("close", forget);
    upstream.once("close", forget);
  }

  async #listen(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(this.#port, "127.0.0.1", () => {
        this.#server.off("error", reject);
        const address = this.#server.address();
        if (typeof address === "object" && address !== null) this.#port = address.port;
        resolve();
      });
    });
  }
}
