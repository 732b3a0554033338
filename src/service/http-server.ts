// The HTTP server under the Hono app: its address, its time limits, its answers to what never reaches
// the app, and a close that ends.
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { getRequestListener, RequestError } from "@hono/node-server";
import type { Api } from "../api/app.ts";
import { errorBody } from "../api/errors.ts";

/** Requests under way get this long to finish when the service stops. */
const CLOSE_LIMIT_MS = 2_000;

export const LIMITS = {
  // A client that sends its head or its body a byte at a time holds its connection no longer than this.
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  connectionsCheckingInterval: 2_000,
  // Longer than the 60 s after which load balancers usually drop an idle connection: where the server
  // drops it first, a request that was just put on it is lost.
  keepAliveTimeout: 65_000,
};

/** The address cannot be listened on; the message names what to change. */
export class ListenError extends Error {
  override readonly name = "ListenError";
}

export interface HttpServer {
  url: string;
  close(): Promise<void>;
}

/**
 * `limits` are Node's own options; tests make them short.
 *
 * @throws ListenError
 */
export async function startHttpServer(
  app: Api,
  host: string,
  port: number,
  limits: Partial<typeof LIMITS> = {},
): Promise<HttpServer> {
  const answer = getRequestListener(app.fetch, {
    // For requests without Host, which HTTP/1.0 permits and HAProxy's checks are. No route looks at it.
    hostname: "localhost",
    errorHandler: answerOutsideApp,
  });
  let closing = false;
  const server = createServer({ ...LIMITS, ...limits }, (request, response) => {
    response.once("close", () => {
      if (closing) server.closeIdleConnections();
    });
    void answer(request, response);
  });
  server.on("clientError", refuse);
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
  return {
    url: `http://${shown}:${actual}`,
    close() {
      closing = true;
      return close(server);
    },
  };
}

async function close(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeIdleConnections();
  const cut = setTimeout(() => server.closeAllConnections(), CLOSE_LIMIT_MS);
  await closed;
  clearTimeout(cut);
}

const UNREADABLE = "This is not a request that can be read; check its request line and its headers.";

/** A request target or Host that makes no URL; the app answers everything else itself. */
function answerOutsideApp(error: unknown): Response {
  const unreadable = error instanceof RequestError;
  return Response.json(
    unreadable ? errorBody("invalid_body", UNREADABLE) : errorBody("internal", "Something went wrong here."),
    { status: unreadable ? 400 : 500 },
  );
}

/** Answers what Node's parser or its time limits refuse, as Node itself would, but in the one error shape. */
function refuse(error: NodeJS.ErrnoException, stream: Duplex): void {
  const socket = stream as Socket & { _httpMessage?: ServerResponse | null };
  if (socket.writable && socket._httpMessage?.headersSent !== true) {
    const [status, message] =
      error.code === "ERR_HTTP_REQUEST_TIMEOUT"
        ? (["408 Request Timeout", "The request did not arrive whole in time."] as const)
        : error.code === "HPE_HEADER_OVERFLOW"
          ? (["431 Request Header Fields Too Large", "The URL and headers are too long."] as const)
          : (["400 Bad Request", UNREADABLE] as const);
    const body = JSON.stringify(errorBody("invalid_body", message));
    socket.write(
      `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
  }
  socket.destroySoon();
}
