// HTTP as bytes on a TCP connection, for requests that no HTTP client would send and for seeing what
// becomes of the connection.
import { once } from "node:events";
import { connect } from "node:net";
import { until } from "./until.ts";

export interface RawAnswer {
  status: number;
  /** Names in lower case. */
  headers: Record<string, string>;
  body: string;
}

export interface RawConnection {
  send(bytes: string | Buffer): void;
  /** The next answer on this connection; fails where the connection ends before it. */
  answer(): Promise<RawAnswer>;
  /** Resolves when the other side has closed the connection. */
  ended(): Promise<void>;
  close(): void;
}

export async function rawConnection(base: string): Promise<RawConnection> {
  const { hostname, port } = new URL(base);
  const socket = connect(Number(port), hostname);
  let received: Buffer = Buffer.alloc(0);
  let over = false;
  socket.on("data", (chunk) => {
    received = Buffer.concat([received, chunk]);
  });
  socket.on("error", () => {});
  socket.once("close", () => {
    over = true;
  });
  await once(socket, "connect");
  return {
    send: (bytes) => void socket.write(bytes),
    answer: () =>
      until("an answer", () => {
        const taken = firstAnswer(received);
        if (taken === undefined) {
          if (over) throw new Error(`the connection ended after ${JSON.stringify(received.toString())}`);
          return undefined;
        }
        received = taken.rest;
        return taken.answer;
      }),
    async ended() {
      await until("the end of the connection", () => over);
    },
    close: () => void socket.destroy(),
  };
}

/** One request on a connection of its own. */
export async function rawRequest(base: string, bytes: string | Buffer): Promise<RawAnswer> {
  const connection = await rawConnection(base);
  try {
    connection.send(bytes);
    return await connection.answer();
  } finally {
    connection.close();
  }
}

function firstAnswer(bytes: Buffer): { answer: RawAnswer; rest: Buffer } | undefined {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd < 0) return undefined;
  const [statusLine = "", ...lines] = bytes.subarray(0, headEnd).toString("latin1").split("\r\n");
  const headers = Object.fromEntries(
    lines.map((line) => [
      line.slice(0, line.indexOf(":")).toLowerCase(),
      line.slice(line.indexOf(":") + 1).trim(),
    ]),
  );
  const bodyStart = headEnd + 4;
  const bodyEnd = bodyStart + Number(headers["content-length"] ?? 0);
  if (bytes.length < bodyEnd) return undefined;
  return {
    answer: {
      status: Number(statusLine.split(" ")[1]),
      headers,
      body: bytes.subarray(bodyStart, bodyEnd).toString(),
    },
    rest: bytes.subarray(bodyEnd),
  };
}
