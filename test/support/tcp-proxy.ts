// A TCP proxy in front of PostgreSQL whose link can be cut, refused, or turned into a black hole that
// swallows everything and says nothing, as a firewall or a dead host does.
import { createServer, type Socket, connect as tcpConnect } from "node:net";

export interface TcpProxy {
  /** The given connection string, by way of the proxy. */
  url: string;
  /** Connections stay open and nothing passes any more, in either direction; new ones connect likewise. */
  blackHole(): void;
  /** Resets every connection; new ones pass again. */
  cut(): void;
  /** Resets every connection and refuses new ones until `heal`. */
  refuse(): Promise<void>;
  /** Lets new connections pass. */
  heal(): Promise<void>;
  /** Connections accepted so far. */
  readonly accepted: number;
  close(): Promise<void>;
}

export async function tcpProxy(databaseUrl: string): Promise<TcpProxy> {
  const target = new URL(databaseUrl);
  const sockets = new Set<Socket>();
  let swallowing = false;
  let accepted = 0;
  const server = createServer((client) => {
    accepted++;
    const upstream = tcpConnect(Number(target.port === "" ? 5432 : target.port), target.hostname);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on("data", (chunk) => {
        if (!swallowing) to.write(chunk);
      });
      from.on("end", () => {
        if (!swallowing) to.end();
      });
      from.on("error", () => {});
      from.on("close", () => {
        sockets.delete(from);
        if (!swallowing) to.destroy();
      });
    }
  });
  const listen = (port: number) =>
    new Promise<number>((resolve, reject) => {
      server.once("error", reject);
      server.listen(port, "127.0.0.1", () => {
        const address = server.address();
        resolve(typeof address === "object" && address !== null ? address.port : 0);
      });
    });
  const port = await listen(0);
  const reset = () => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  const url = new URL(databaseUrl);
  url.hostname = "127.0.0.1";
  url.port = String(port);
  return {
    url: url.href,
    blackHole() {
      swallowing = true;
    },
    cut() {
      swallowing = false;
      reset();
    },
    async refuse() {
      swallowing = false;
      const closed = new Promise((resolve) => server.close(resolve));
      reset();
      await closed;
    },
    async heal() {
      swallowing = false;
      if (!server.listening) await listen(port);
    },
    get accepted() {
      return accepted;
    },
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      reset();
      await closed;
    },
  };
}
