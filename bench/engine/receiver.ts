// A receiver in a process of its own: HTTPS, connections kept, as little work as it can be done with. It keeps
// the arrival of every request's head, whose endpoint the path says and whose offset the body.
// `/e/N` is answered 204, `/busy/N` 503, `/hang/N` never; while it is `down`, everything waits unanswered.
import { createServer, type TLSSocket } from "node:tls";
import { micros } from "./clock.ts";

export interface Receipts {
  endpoints: Int32Array;
  offsets: Float64Array;
  /** micros(). */
  times: Float64Array;
  /** The first requests as they came, to have their signatures checked. */
  examples: string[];
  /** Connections open at once, at most, and opened in all. */
  mostOpen: number;
  opened: number;
}

export type ReceiverRequest =
  | { kind: "start"; cert: string; key: string }
  | { kind: "count" }
  | { kind: "take" }
  | { kind: "down"; down: boolean };

const OK = Buffer.from("HTTP/1.1 204 No Content\r\n\r\n");
const BUSY = Buffer.from("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
const EXAMPLES = 5;

class Column<A extends Int32Array | Float64Array> {
  #array: A;
  readonly #grow: (length: number) => A;
  length = 0;
  constructor(grow: (length: number) => A) {
    this.#grow = grow;
    this.#array = grow(65_536);
  }
  push(value: number): void {
    if (this.length === this.#array.length) {
      const larger = this.#grow(this.length * 2);
      larger.set(this.#array);
      this.#array = larger;
    }
    this.#array[this.length++] = value;
  }
  take(): A {
    const taken = this.#array.slice(0, this.length) as A;
    this.length = 0;
    return taken;
  }
}

const endpoints = new Column((length) => new Int32Array(length));
const offsets = new Column((length) => new Float64Array(length));
const times = new Column((length) => new Float64Array(length));
let examples: string[] = [];
let open = 0;
let mostOpen = 0;
let opened = 0;
let down = false;

/** Nothing is pipelined here: a request ends where its data does. */
function serve(socket: TLSSocket): void {
  open++;
  opened++;
  mostOpen = Math.max(mostOpen, open);
  let text = "";
  let arrivedAt = 0;
  socket.on("error", () => {});
  socket.on("close", () => {
    open--;
  });
  socket.on("data", (chunk) => {
    if (text === "") arrivedAt = micros();
    text += chunk.toString("latin1");
    const head = text.indexOf("\r\n\r\n");
    if (head === -1) return;
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(text)?.[1] ?? 0);
    if (text.length < head + 4 + length) return;
    const pathEnd = text.indexOf(" ", 5);
    const digits = text.lastIndexOf("/", pathEnd) + 1;
    endpoints.push(Number(text.slice(digits, pathEnd)));
    const field = text.indexOf('"formed_through":', head) + 17;
    offsets.push(Number.parseInt(text.slice(field, field + 20), 10));
    times.push(arrivedAt);
    if (examples.length < EXAMPLES) examples.push(text);
    const kind = text.charCodeAt(6);
    text = "";
    if (down || kind === 104) return;
    socket.write(kind === 98 ? BUSY : OK);
  });
}

process.on("message", (request: ReceiverRequest) => {
  switch (request.kind) {
    case "start": {
      const server = createServer({ cert: request.cert, key: request.key, noDelay: true }, serve);
      server.listen(0, "127.0.0.1", 4_096, () => {
        const address = server.address();
        if (typeof address === "object") process.send?.(address?.port);
      });
      break;
    }
    case "count":
      process.send?.(times.length);
      break;
    case "down":
      down = request.down;
      process.send?.(true);
      break;
    case "take": {
      const receipts: Receipts = {
        endpoints: endpoints.take(),
        offsets: offsets.take(),
        times: times.take(),
        examples,
        mostOpen,
        opened,
      };
      examples = [];
      mostOpen = open;
      opened = 0;
      process.send?.(receipts);
    }
  }
});
process.on("disconnect", () => process.exit());
