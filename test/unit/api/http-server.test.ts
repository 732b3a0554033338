// The HTTP server on real connections: what reaches the app, what is answered without it, and what
// becomes of the connection.

import { once } from "node:events";
import { Agent, request as httpRequest } from "node:http";
import type { HttpBindings } from "@hono/node-server";
import { Hono } from "hono";
import { afterEach, describe, expect, it } from "vitest";
import { MAX_BODY_BYTES, readBytes } from "../../../src/api/body.ts";
import { answerError } from "../../../src/api/errors.ts";
import { type HttpServer, LIMITS, startHttpServer } from "../../../src/service/http-server.ts";
import { quietLog } from "../../support/quiet.ts";
import { type RawAnswer, rawConnection, rawRequest } from "../../support/raw-http.ts";

const started: HttpServer[] = [];
afterEach(async () => {
  for (const server of started.splice(0)) await server.close();
});

/** An app that answers with the length of the body, refuses unread ones, and holds a request at will. */
async function server(limits: Parameters<typeof startHttpServer>[3] = {}) {
  const app = new Hono<{ Bindings: HttpBindings }>();
  const held = Promise.withResolvers<void>();
  const holding = Promise.withResolvers<void>();
  app.onError((error, context) => answerError(error, context, quietLog));
  app.get("/health", (context) => context.text("ok"));
  app.post("/length", async (context) =>
    context.text(String((await readBytes(context.env.incoming)).length)),
  );
  app.post("/unread", (context) => context.text("no", 403));
  app.get("/hold", async (context) => {
    holding.resolve();
    await held.promise;
    return context.text("held");
  });
  const http = await startHttpServer(app, "127.0.0.1", 0, limits);
  started.push(http);
  return { url: http.url, http, held, holding: holding.promise };
}

const post = (path: string, headers: string, body = "") =>
  `POST ${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n\r\n${body}`;

function errorOf({ body }: RawAnswer): { code: string; message: string } {
  const { error, ...rest } = JSON.parse(body);
  expect(rest).toEqual({});
  return error;
}

describe("a body", () => {
  it("is read to its end, by its length or in chunks, up to 1 MiB exactly", async () => {
    const { url } = await server();
    const connection = await rawConnection(url);
    const whole = "x".repeat(MAX_BODY_BYTES);
    for (const [headers, body, length] of [
      ["Content-Length: 0", "", 0],
      ["X: no length at all", "", 0],
      ["Content-Length: 5", "hello", 5],
      ["Transfer-Encoding: chunked", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 5],
      [`Content-Length: ${MAX_BODY_BYTES}`, whole, MAX_BODY_BYTES],
      [
        "Transfer-Encoding: chunked",
        `${MAX_BODY_BYTES.toString(16)}\r\n${whole}\r\n0\r\n\r\n`,
        MAX_BODY_BYTES,
      ],
    ] as const) {
      connection.send(post("/length", headers, body));
      expect(await connection.answer(), headers).toMatchObject({ status: 200, body: String(length) });
    }
    connection.close();
  });

  it("over 1 MiB is refused by its Content-Length alone, before it is sent", async () => {
    const { url } = await server();
    const answer = await rawRequest(url, post("/length", `Content-Length: ${MAX_BODY_BYTES + 1}`));
    expect(answer.status).toBe(400);
    expect(errorOf(answer)).toEqual({
      code: "invalid_body",
      message: "The body is larger than 1048576 bytes.",
    });
  });

  it("over 1 MiB in chunks is refused while it is still being sent", async () => {
    const { url } = await server();
    const size = MAX_BODY_BYTES + 1;
    const chunk = `${size.toString(16)}\r\n${"x".repeat(size)}\r\n`;
    const answer = await rawRequest(url, post("/length", "Transfer-Encoding: chunked", chunk));
    expect(answer.status).toBe(400);
    expect(errorOf(answer).code).toBe("invalid_body");
  });

  it("that was refused or left unread, once sent, leaves the connection to the next request", async () => {
    const { url } = await server();
    const size = MAX_BODY_BYTES * 2;
    const body = "x".repeat(size);
    const refused = [
      post("/length", `Content-Length: ${size}`, body),
      post("/length", "Transfer-Encoding: chunked", `${size.toString(16)}\r\n${body}\r\n0\r\n\r\n`),
      post("/unread", `Content-Length: ${size}`, body),
    ];
    const outlive = async (bytes: string) => {
      const connection = await rawConnection(url);
      connection.send(bytes);
      expect((await connection.answer()).status).toBeGreaterThanOrEqual(400);
      // The server cuts half a second later what it did not get drained.
      const end = performance.now() + 700;
      while (performance.now() < end) {
        connection.send(post("/length", "Content-Length: 2", "{}"));
        expect(await connection.answer()).toMatchObject({ status: 200, body: "2" });
      }
      connection.close();
    };
    await Promise.all(refused.map(outlive));
  });

  it("that never ends holds no connection that was answered", async () => {
    const { url } = await server();
    const connection = await rawConnection(url);
    connection.send(post("/unread", "Content-Length: 100000", "{"));
    expect((await connection.answer()).status).toBe(403);
    await connection.ended();
  });

  it("that breaks off is no failure of the service", async () => {
    const failures: unknown[] = [];
    const app = new Hono<{ Bindings: HttpBindings }>();
    const reading = Promise.withResolvers<void>();
    const over = Promise.withResolvers<void>();
    app.post("/", async (context) => {
      const bytes = readBytes(context.env.incoming);
      reading.resolve();
      await bytes.catch((error: unknown) => failures.push(error));
      over.resolve();
      return context.text("");
    });
    const http = await startHttpServer(app, "127.0.0.1", 0);
    started.push(http);
    const connection = await rawConnection(http.url);
    connection.send(post("/", "Content-Length: 100", "{"));
    await reading.promise;
    connection.close();
    await over.promise;
    expect(failures).toMatchObject([{ code: "invalid_body", message: "The body did not arrive whole." }]);
  });
});

describe("a request that takes its time", () => {
  it("is answered 408 and cut: its head, its body, or a connection that says nothing", async () => {
    const { url } = await server({
      headersTimeout: 150,
      requestTimeout: 300,
      connectionsCheckingInterval: 30,
    });
    for (const bytes of ["", "GET /health HTTP/1.1\r\nHost", post("/length", "Content-Length: 10", "{")]) {
      const connection = await rawConnection(url);
      connection.send(bytes);
      const answer = await connection.answer();
      expect(answer.status, bytes).toBe(408);
      expect(errorOf(answer).code).toBe("invalid_body");
      await connection.ended();
    }
  });

  it("has limits of seconds where nothing else is said", () => {
    expect(LIMITS.headersTimeout).toBeLessThanOrEqual(10_000);
    expect(LIMITS.requestTimeout).toBeLessThanOrEqual(30_000);
    expect(LIMITS.connectionsCheckingInterval).toBeLessThanOrEqual(2_000);
  });
});

describe("what is not HTTP", () => {
  it("is answered in the one error shape, without the app, and ends the connection", async () => {
    const { url } = await server();
    const smuggled = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    for (const [what, bytes, status] of [
      ["no request line", "hello\r\n\r\n", 400],
      ["two lengths", post("/length", "Content-Length: 2\r\nContent-Length: 3", "{}"), 400],
      ["one length twice", post("/length", "Content-Length: 2\r\nContent-Length: 2", "{}"), 400],
      [
        "a length and chunks",
        post("/length", "Content-Length: 5\r\nTransfer-Encoding: chunked", `0\r\n\r\n${smuggled}`),
        400,
      ],
      ["chunks of another name", post("/length", "Transfer-Encoding: xchunked", `0\r\n\r\n${smuggled}`), 400],
      ["a bare line feed", `GET /health HTTP/1.1\nHost: x\n\n`, 400],
      ["a space before the colon", post("/length", "Content-Length : 2", "{}"), 400],
      ["a folded header", post("/length", "X: 1\r\n Content-Length: 2", "{}"), 400],
      ["a very long URL", `GET /${"a".repeat(20_000)} HTTP/1.1\r\nHost: x\r\n\r\n`, 431],
      ["too many headers", post("/length", `X: ${"a".repeat(20_000)}`), 431],
    ] as const) {
      const connection = await rawConnection(url);
      connection.send(bytes);
      const answer = await connection.answer();
      expect(answer.status, what).toBe(status);
      expect(answer.headers, what).toMatchObject({ connection: "close", "content-type": "application/json" });
      expect(errorOf(answer).code, what).toBe("invalid_body");
      await connection.ended();
    }
  });

  it("is a target or a Host that makes no URL", async () => {
    const { url } = await server();
    for (const head of [
      "GET /health HTTP/1.1\r\nHost: a b",
      "GET /health HTTP/1.1\r\nHost: x@evil.test:99999",
      "GET /health HTTP/1.1\r\nHost: evil.test/hold?",
      "GET /he\\alth HTTP/1.1\r\nHost: x",
      "OPTIONS * HTTP/1.1\r\nHost: x",
    ]) {
      const answer = await rawRequest(url, `${head}\r\n\r\n`);
      expect(answer.status, head).toBe(400);
      expect(errorOf(answer).code, head).toBe("invalid_body");
    }
  });
});

describe("a Host", () => {
  it("has no say in the answer, and HTTP/1.0 needs none", async () => {
    const { url } = await server();
    for (const head of [
      "GET /health HTTP/1.0",
      "GET /health HTTP/1.1\r\nHost: evil.test",
      "GET /health HTTP/1.1\r\nHost: [::1]:8080",
      "GET /health HTTP/1.1\r\nHost: EXAMPLE.com:80",
      "GET /health HTTP/1.1\r\nHost: 10.0.0.7:31245",
      "GET http://evil.test/health HTTP/1.1\r\nHost: x",
    ]) {
      expect(await rawRequest(url, `${head}\r\n\r\n`), head).toMatchObject({ status: 200, body: "ok" });
    }
  });
});

describe("closing", () => {
  it("answers what is under way and ends at once then, kept connections included", async () => {
    const { url, http, held, holding } = await server();
    const agent = new Agent({ keepAlive: true });
    const request = httpRequest(`${url}/hold`, { agent }).end();
    const response = once(request, "response");
    await holding;
    const idle = await rawConnection(url);
    idle.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    await idle.answer();

    const begun = performance.now();
    const closed = http.close();
    await idle.ended();
    held.resolve();
    const [answer] = await response;
    expect(answer.statusCode).toBe(200);
    answer.resume();
    await closed;
    expect(performance.now() - begun).toBeLessThan(1_500);
    agent.destroy();
  });

  it("cuts what does not end", async () => {
    const { url, http } = await server();
    const connection = await rawConnection(url);
    connection.send(post("/length", "Content-Length: 100", "{"));
    await http.close();
    await connection.ended();
  });
});
