// Each category from its real cause, on real sockets; and that an outcome names nothing but its category.

import { createServer } from "node:net";
import { describe, expect, it } from "vitest";
import { createAuthority } from "../../src/demo/authority.ts";
import { createSender, type Outcome, parseDestinations } from "../../src/egress/index.ts";
import { answering, authority, listenTcp, post, receive, sender, status } from "./harness.ts";

const OK = status("204 No Content");
const DAY_MS = 86_400_000;
const failure = (category: string) => ({ kind: "failed", category, retryable: true });

describe("connection refused", () => {
  it("is a closed port, at one address or at all of them", async () => {
    const port = await closedPort();
    expect(await post(await sender(), `https://127.0.0.1:${port}/`)).toEqual(failure("connection refused"));
    const lookup = async () => [
      { address: "127.0.0.1", family: 4 },
      { address: "::1", family: 6 },
    ];
    expect(await post(await sender({ lookup }), `https://a.test:${port}/`)).toEqual(
      failure("connection refused"),
    );
  });
});

describe("tls failure", () => {
  it.each([
    ["for another name", { dns: ["other.test"] }],
    ["for an address, where the host is a name", { dns: [], ip: ["127.0.0.1"] }],
    [
      "expired",
      {
        dns: ["a.test"],
        notBefore: new Date(Date.now() - 2 * DAY_MS),
        notAfter: new Date(Date.now() - DAY_MS),
      },
    ],
    [
      "not valid yet",
      {
        dns: ["a.test"],
        notBefore: new Date(Date.now() + DAY_MS),
        notAfter: new Date(Date.now() + 2 * DAY_MS),
      },
    ],
  ])("is a certificate %s, each time, and no request is sent", async (_why, names) => {
    const receiver = await receive(answering(OK), names);
    const by = await sender();
    for (let i = 0; i < 2; i++) {
      expect(await post(by, `https://a.test:${receiver.port}/`)).toEqual(failure("tls failure"));
    }
    expect(receiver.requests).toHaveLength(0);
    expect(receiver.connections).toBe(2);
  });

  it.each([
    ["127.0.0.1", ["127.0.0.2", "::1"]],
    ["::1", ["127.0.0.1", "::2"]],
  ])("is a certificate without the address, where the host is one: %s", async (host, ip) => {
    const receiver = await receive(answering(OK), { host, dns: ["127.0.0.1.test", "localhost"], ip });
    const authority = host.includes(":") ? `[${host}]` : host;
    expect(await post(await sender(), `https://${authority}:${receiver.port}/`)).toEqual(
      failure("tls failure"),
    );
    expect(receiver.requests).toHaveLength(0);
  });

  it("is a certificate of an authority nobody trusts", async () => {
    const stranger = await (await createAuthority("stranger")).issue({ dns: ["a.test"] });
    const receiver = await receive(answering(OK), { tls: { cert: stranger.certPem, key: stranger.keyPem } });
    const url = `https://a.test:${receiver.port}/`;
    expect(await post(await sender(), url)).toEqual(failure("tls failure"));
    const { certPem } = await authority();
    const trusting = await receive(answering(OK), { dns: ["a.test"] });
    expect(await post(await sender({ extraCa: certPem }), `https://a.test:${trusting.port}/`)).toMatchObject({
      kind: "accepted",
    });
  });

  it("is the host's name checked anew although the connection before was to a good certificate", async () => {
    const receiver = await receive(answering(OK), { dns: ["a.test"] });
    const by = await sender();
    expect(await post(by, `https://a.test:${receiver.port}/`)).toMatchObject({ kind: "accepted" });
    expect(await post(by, `https://b.test:${receiver.port}/`)).toEqual(failure("tls failure"));
    expect(await post(by, `https://b.test:${receiver.port}/`)).toEqual(failure("tls failure"));
    expect(receiver.requests).toHaveLength(1);
  });

  it.each([
    [
      "TLS 1.1 at most",
      { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" } as const,
    ],
    ["only HTTP/2", { ALPNProtocols: ["h2"] }],
    ["a certificate of the client's", { requestCert: true, maxVersion: "TLSv1.2" } as const],
  ])("is a receiver that speaks %s", async (_what, tls) => {
    const receiver = await receive(answering(OK), { dns: ["a.test"], tls });
    expect(await post(await sender(), `https://a.test:${receiver.port}/`)).toEqual(failure("tls failure"));
    expect(receiver.requests).toHaveLength(0);
  });

  it("is a port that speaks plain HTTP", async () => {
    const plain = await listenTcp((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    expect(await post(await sender(), `https://127.0.0.1:${plain.port}/`)).toEqual(failure("tls failure"));
  });
});

describe("network error", () => {
  it.each([
    ["FIN", (socket: { end(): void }) => socket.end()],
    ["RST", (socket: { resetAndDestroy(): void }) => socket.resetAndDestroy()],
  ])("is a %s in place of the handshake", async (_what, act) => {
    const listener = await listenTcp((socket) => socket.once("data", () => act(socket)));
    expect(await post(await sender(), `https://127.0.0.1:${listener.port}/`)).toEqual(
      failure("network error"),
    );
    expect(listener.connections).toBe(1);
  });

  it.each([
    ["FIN instead of an answer", (socket: { end(): void }) => socket.end()],
    ["RST instead of an answer", (socket: { destroy(): void; resetAndDestroy?(): void }) => socket.destroy()],
    ["FIN in the head", (socket: { end(text: string): void }) => socket.end("HTTP/1.1 200 OK\r\ncontent-le")],
  ])("is a %s, with exactly one request sent", async (_what, act) => {
    const receiver = await receive((socket) => act(socket));
    expect(await post(await sender(), `https://localhost:${receiver.port}/`)).toEqual(
      failure("network error"),
    );
    expect(receiver.requests).toHaveLength(1);
    expect(receiver.connections).toBe(1);
  });

  it("is a reset of a kept connection under the request, which is not sent again", async () => {
    let answered = 0;
    const receiver = await receive((socket) => {
      answered += 1;
      if (answered === 1) socket.write(OK);
      else socket.destroy();
    });
    const by = await sender();
    expect(await post(by, `https://localhost:${receiver.port}/`)).toMatchObject({ kind: "accepted" });
    expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual(failure("network error"));
    expect(receiver.requests).toHaveLength(2);
    expect(receiver.connections).toBe(1);
  });

  it.each([
    ["garbage", "\x00\x01\x02 no HTTP at all\r\n\r\n"],
    ["another protocol", "SSH-2.0-OpenSSH_9.9\r\n"],
    ["a status below 100", "HTTP/1.1 099 What\r\ncontent-length: 0\r\n\r\n"],
    ["a status of two digits", "HTTP/1.1 20 OK\r\n\r\n"],
    ["two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nok"],
    [
      "101 with an upgrade",
      "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    ],
    ["100, which nobody asked for and undici takes for a fault", "HTTP/1.1 100 Continue\r\n\r\n"],
    ["101 without one", "HTTP/1.1 101 Switching Protocols\r\n\r\n"],
    ["a head of more than 16 KiB", `HTTP/1.1 200 OK\r\nx: ${"x".repeat(17_000)}\r\n\r\n`],
    ["100,000 headers", `HTTP/1.1 200 OK\r\n${"a: b\r\n".repeat(100_000)}\r\n`],
  ])("is an answer of %s, with exactly one request sent", async (_what, answer) => {
    const receiver = await receive((socket) => socket.write(answer, "latin1"));
    expect(await post(await sender(), `https://localhost:${receiver.port}/`)).toEqual(
      failure("network error"),
    );
    expect(receiver.requests).toHaveLength(1);
    await receiver.allClosed();
  });

  it.each([
    ["does not resolve", async () => Promise.reject(Object.assign(new Error("x"), { code: "ENOTFOUND" }))],
    ["resolves to nothing", async () => []],
    ["resolves to something that is no address", async () => [{ address: "localhost", family: 4 }]],
    [
      "has a resolver that refuses connections",
      async () => Promise.reject(Object.assign(new Error("x"), { code: "ECONNREFUSED" })),
    ],
  ])("is a name that %s, asked about once", async (_what, lookup) => {
    let asked = 0;
    const counted = () => {
      asked += 1;
      return lookup();
    };
    expect(await post(await sender({ lookup: counted }), "https://a.test/")).toEqual(
      failure("network error"),
    );
    expect(asked).toBe(1);
  });

  it("is a name that the system's own resolver does not know", async () => {
    const destinations = parseDestinations(".invalid");
    const by = createSender({
      destinations,
      permitPrivate: false,
      timeoutMs: 10_000,
      userAgent: "x",
      connectionsPerOrigin: 1,
    });
    expect(await post(by, "https://no-such-host.invalid/")).toEqual(failure("network error"));
    await by.close();
  });

  it("is what a header with a line break in it comes to: nothing is sent", async () => {
    const receiver = await receive(answering(OK));
    const by = await sender();
    const outcome = await by.post(`https://localhost:${receiver.port}/`, { "x-a": "1\r\nx-b: 2" }, "{}");
    expect(outcome).toEqual(failure("network error"));
    expect(receiver.connections).toBe(0);
  });
});

describe("an outcome", () => {
  it("says nothing but its category and status, whatever the failure", async () => {
    const wrongName = await receive(answering(OK), { dns: ["secret-internal-name.corp"] });
    const reset = await listenTcp((socket) => socket.resetAndDestroy());
    const garbage = await receive((socket) => socket.write("secret bytes\r\n\r\n"));
    const by = await sender();
    const outcomes: Outcome[] = await Promise.all([
      post(by, `https://a.test:${wrongName.port}/`),
      post(by, `https://127.0.0.1:${reset.port}/`),
      post(by, `https://localhost:${garbage.port}/`),
      post(by, `https://127.0.0.1:${await closedPort()}/`),
    ]);
    for (const outcome of outcomes) {
      expect(Object.keys(outcome).sort()).toEqual(["category", "kind", "retryable"]);
      expect(JSON.stringify(outcome)).not.toMatch(/127|secret|corp|test|ECONN|CERT|\d/);
    }
  });
});

/** A port nothing listens on: the kernel gave it a moment ago, and it was closed. */
async function closedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address !== null ? address.port : 0;
}
