// The HTTP server under the Hono app: its address, its own errors, and a close that ends.
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import type { Hono } from "hono";

/** Requests under way get this long to finish when the service stops. */
const CLOSE_LIMIT_MS = 2_000;

/** The address cannot be listened on; the message names what to change. */
export class ListenError extends Error {
  override readonly name = "ListenError";
}

export interface HttpServer {
  url: string;
  close(): Promise<void>;
}

/** @throws ListenError */
export async function startHttpServer(app: Hono, host: string, port: number): Promise<HttpServer> {
  const server = createAdaptorServer({ fetch: app.fetch }) as Server;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const problem =
        error.code === "EADDRINUSE"
          ? "the port is in use; set TAISCE_PORT to another, or to 0 for a free one"
          : `${error.code ?? error.message}; check TAISCE_HOST and TAISCE_PORT`;
      reject(new ListenError(`cannot listen on ${host}:${port}: ${problem}`, { cause: error }));
    });
    server.listen(port, host, resolve);
  });
  const { port: actual } = server.address() as AddressInfo;
  const shown = host.includes(":") ? `[${host}]` : host;
  return { url: `http://${shown}:${actual}`, close: () => close(server) };
}

async function close(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeIdleConnections();
  const cut = setTimeout(() => server.closeAllConnections(), CLOSE_LIMIT_MS);
  await closed;
  clearTimeout(cut);
}
