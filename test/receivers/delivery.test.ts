// What a receiver gets, and that an answer's body costs nobody anything once its status line has decided.
// What each status line means: cases/answers.test.ts.

import { describe, expect, it } from "vitest";
import { answering, post, receive, sender, status } from "./harness.ts";

const OK = status("204 No Content");

describe("a delivery", () => {
  it("arrives as it was given, byte for byte", async () => {
    const receiver = await receive(answering(OK));
    const body = Buffer.from('{"scope":"p1","é":"\u2028"}');
    const headers = { "Content-Type": "application/json", "Taisce-Signature": "v1 t=1 s=00" };
    const outcome = await (await sender()).post(
      `https://localhost:${receiver.port}/in?a=b%20c`,
      headers,
      body,
    );
    expect(outcome).toEqual({ kind: "accepted", status: 204 });
    expect(receiver.requests).toEqual([
      [
        "POST /in?a=b%20c HTTP/1.1",
        `host: localhost:${receiver.port}`,
        "connection: keep-alive",
        "user-agent: taisce-notify/test",
        "Content-Type: application/json",
        "Taisce-Signature: v1 t=1 s=00",
        `content-length: ${body.length}`,
        "",
        body.toString("latin1"),
      ].join("\r\n"),
    ]);
  });

  it("asks for the URL's own host whatever host the caller's headers name", async () => {
    const receiver = await receive(answering(OK));
    const headers = { Host: "evil.test", "USER-AGENT": "x", "x-a": "1" };
    await (await sender()).post(`https://localhost:${receiver.port}/`, headers, "{}");
    const [request = ""] = receiver.requests;
    expect(request.match(/^host: .*$/gim)).toEqual([`host: localhost:${receiver.port}`]);
    expect(request.match(/^user-agent: .*$/gim)).toEqual(["user-agent: taisce-notify/test"]);
    expect(request).toContain("x-a: 1");
  });

  it("goes to an IPv4 address and to an IPv6 address, with no name asked for in TLS", async () => {
    const asked: (string | false | null)[] = [];
    const answer = (socket: { servername?: string | false | null; write(text: string): void }) => {
      asked.push(socket.servername ?? false);
      socket.write(OK);
    };
    const four = await receive(answer, { dns: [] });
    const six = await receive(answer, { dns: [], host: "::1" });
    const by = await sender();
    expect(await post(by, `https://127.0.0.1:${four.port}/`)).toEqual({ kind: "accepted", status: 204 });
    expect(await post(by, `https://[::1]:${six.port}/`)).toEqual({ kind: "accepted", status: 204 });
    expect(asked).toEqual([false, false]);
    expect(six.requests[0]).toContain(`host: [::1]:${six.port}`);
  });

  it("falls back to the next of a name's addresses when the first takes no connection", async () => {
    const receiver = await receive(answering(OK), { dns: ["two.test"] });
    const lookup = async () => [
      { address: "::1", family: 6 },
      { address: "127.0.0.1", family: 4 },
    ];
    const by = await sender({ lookup });
    expect(await post(by, `https://two.test:${receiver.port}/`)).toEqual({ kind: "accepted", status: 204 });
  });
});

describe("a status line", () => {
  it("is all that a post waits for: the body may go on for ever", async () => {
    const receiver = await receive((socket) => {
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nslow");
    });
    const by = await sender({ connectionsPerOrigin: 1, timeoutMs: 3_000 });
    const url = `https://localhost:${receiver.port}/`;
    expect(await post(by, url)).toEqual({ kind: "accepted", status: 200 });
    const startedAt = performance.now();
    // The only connection still reads; it makes way at once.
    expect(await post(by, url)).toEqual({ kind: "accepted", status: 200 });
    expect(performance.now() - startedAt).toBeLessThan(900);
    expect(receiver.connections).toBe(2);
    await receiver.allClosed();
    expect(performance.now() - startedAt).toBeLessThan(1_700);
  });

  it("is all that one who waits for the connection waits for", async () => {
    const receiver = await receive((socket) => {
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nslow");
    });
    const by = await sender({ connectionsPerOrigin: 1 });
    const url = `https://localhost:${receiver.port}/`;
    const startedAt = performance.now();
    expect(await Promise.all([post(by, url), post(by, url)])).toEqual(
      Array(2).fill({ kind: "accepted", status: 200 }),
    );
    expect(performance.now() - startedAt).toBeLessThan(900);
  });

  it("leaves a connection good to use whose body came later, longer than a body may take", async () => {
    const { promise: bodySent, resolve: sent } = Promise.withResolvers<void>();
    const receiver = await receive((socket, request) => {
      if (request.includes("/held")) setTimeout(() => socket.write(OK), 1_100);
      else {
        socket.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nla");
        setImmediate(() => socket.write("te", () => sent()));
      }
    });
    const other = await receive(answering(OK));
    const by = await sender({ connectionsPerOrigin: 1 });
    const url = `https://localhost:${receiver.port}`;
    await post(by, `${url}/late`);
    await bodySent;
    // While this goes to and fro, the rest of that body is read.
    await post(by, `https://localhost:${other.port}/`);
    expect(await post(by, `${url}/held`)).toEqual({ kind: "accepted", status: 204 });
    expect(receiver.connections).toBe(1);
  });

  it.each([
    ["announces more than 16 KiB", "content-length: 16385\r\n\r\nx"],
    ["sends more than 16 KiB", `transfer-encoding: chunked\r\n\r\n4001\r\n${"x".repeat(0x4001)}\r\n`],
    ["sends until it closes", `connection: close\r\n\r\n${"x".repeat(0x4001)}`],
  ])("stands although the body %s, whose connection is dropped at once", async (_what, rest) => {
    const receiver = await receive(answering(`HTTP/1.1 200 OK\r\n${rest}`));
    const by = await sender();
    expect(await post(by, `https://localhost:${receiver.port}/`)).toEqual({ kind: "accepted", status: 200 });
    const startedAt = performance.now();
    await receiver.allClosed();
    expect(performance.now() - startedAt).toBeLessThan(700);
  });
});
