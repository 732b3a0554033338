// What a receiver's answer means: every status, what is no answer, and bodies that would cost whoever read
// them. One request each, and nobody else hears of it.

import type { TLSSocket } from "node:tls";
import zlib from "node:zlib";
import { beforeAll, describe, expect, it, vi } from "vitest";
import type { Outcome, Sender } from "../../../src/egress/index.ts";
import { answering, type Listener, listenTcp, type Receiver, receive, sender, status } from "../harness.ts";
import { failure, posted, tap, watchDials } from "./support.ts";

const accepted = (code: number): Outcome => ({ kind: "accepted", status: code });
const redirect = (code: number): Outcome => final("redirect not followed", code);
const refused = (code: number): Outcome => final(`destination refused with ${code}`, code);
const answered = (code: number, more: { retryAfterMs?: number } = {}): Outcome => ({
  kind: "failed",
  category: `destination answered ${code}`,
  status: code,
  retryable: true,
  ...more,
});
const IN_SEVEN_SECONDS = { retryAfterMs: 7_000 };

/** Each with a Location inside and a Retry-After, whether it means anything there or not. */
const statuses: [line: string, report: string, outcome: Outcome][] = [
  ["200 OK", "Standard Webhooks", accepted(200)],
  ["201 Created", "Standard Webhooks", accepted(201)],
  ["202 Accepted", "Standard Webhooks", accepted(202)],
  ["203 Non-Authoritative Information", "Standard Webhooks", accepted(203)],
  ["204 No Content", "Standard Webhooks", accepted(204)],
  ["205 Reset Content", "Standard Webhooks", accepted(205)],
  ["206 Partial Content", "Standard Webhooks", accepted(206)],
  ["226 IM Used", "Standard Webhooks", accepted(226)],
  ["299 Fine", "Standard Webhooks", accepted(299)],
  ["300 Multiple Choices", "Standard Webhooks", redirect(300)],
  ["301 Moved Permanently", "CVE-2020-28168", redirect(301)],
  ["302 Found", "CVE-2023-28155", redirect(302)],
  ["303 See Other", "mcp-searxng #82", redirect(303)],
  ["304 Not Modified", "Standard Webhooks", redirect(304)],
  ["305 Use Proxy", "RFC 9110 15.4.6", redirect(305)],
  ["306 Switch Proxy", "RFC 9110 15.4.7", redirect(306)],
  ["307 Temporary Redirect", "CVE-2020-28168", redirect(307)],
  ["308 Permanent Redirect", "CVE-2020-28168", redirect(308)],
  ["399 What", "Standard Webhooks", redirect(399)],
  ["400 Bad Request", "Standard Webhooks", refused(400)],
  ["401 Unauthorized", "Standard Webhooks", refused(401)],
  ["403 Forbidden", "Standard Webhooks", refused(403)],
  ["404 Not Found", "Standard Webhooks", refused(404)],
  ["407 Proxy Authentication Required", "RFC 9110 15.5.8", refused(407)],
  ["408 Request Timeout", "any other 4xx is final", refused(408)],
  ["410 Gone", "Standard Webhooks", refused(410)],
  ["413 Content Too Large", "Standard Webhooks", refused(413)],
  ["421 Misdirected Request", "any other 4xx is final", refused(421)],
  ["425 Too Early", "any other 4xx is final", refused(425)],
  ["426 Upgrade Required", "any other 4xx is final", refused(426)],
  ["451 Unavailable For Legal Reasons", "Standard Webhooks", refused(451)],
  ["499 What", "any other 4xx is final", refused(499)],
  ["429 Too Many Requests", "RFC 6585 4", answered(429, IN_SEVEN_SECONDS)],
  ["500 Internal Server Error", "Standard Webhooks", answered(500)],
  ["502 Bad Gateway", "Standard Webhooks", answered(502)],
  ["503 Service Unavailable", "RFC 9110 10.2.3", answered(503, IN_SEVEN_SECONDS)],
  ["504 Gateway Timeout", "Standard Webhooks", answered(504)],
  ["599 What", "Standard Webhooks", answered(599)],
  ["600 What", "no status class", answered(600)],
  ["999 What", "no status class", answered(999)],
];

const OK = status("204 No Content");
const NO_ANSWER = failure("network error");
const CHALLENGE = 'Basic realm="internal.corp"';

const repeated = (count: number) => "content-encoding: gzip\r\n".repeat(count);
const listed = (count: number) => `content-encoding: ${Array(count).fill("gzip").join(",")}\r\n`;
const BOMB = zlib.gzipSync(Buffer.alloc(8_000_000)).toString("latin1");
const withBody = (headers: string, body: string) =>
  `HTTP/1.1 200 OK\r\n${headers}content-length: ${body.length}\r\n\r\n${body}`;

const heads: [what: string, report: string, answer: string, outcome: Outcome | object][] = [
  ["garbage", "llhttp HPE_INVALID_CONSTANT", "\x00\x01\x02 secret bytes\r\n\r\n", NO_ANSWER],
  ["garbage with no end of line", "llhttp HPE_INVALID_CONSTANT", "secret bytes", NO_ANSWER],
  ["another protocol", "llhttp HPE_INVALID_CONSTANT", "SSH-2.0-OpenSSH_9.9\r\n", NO_ANSWER],
  ["status 099", "undici AssertionError", "HTTP/1.1 099 What\r\ncontent-length: 0\r\n\r\n", NO_ANSWER],
  ["status 000", "undici AssertionError", "HTTP/1.1 000 What\r\ncontent-length: 0\r\n\r\n", NO_ANSWER],
  ["a status of two digits", "llhttp HPE_INVALID_STATUS", "HTTP/1.1 20 OK\r\n\r\n", NO_ANSWER],
  ["a status of four digits", "llhttp HPE_INVALID_STATUS", "HTTP/1.1 2000 OK\r\n\r\n", NO_ANSWER],
  ["two lengths", "RFC 9112 6.3", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nok", NO_ANSWER],
  ["101 and an upgrade", "undici http-100.js", "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", NO_ANSWER],
  ["101 and none", "undici http-100.js", "HTTP/1.1 101 Switching Protocols\r\n\r\n", NO_ANSWER],
  ["100, which nobody asked for", "undici http-100.js", "HTTP/1.1 100 Continue\r\n\r\n", NO_ANSWER],
  ["a header of more than 16 KiB", "CVE-2018-12121", `HTTP/1.1 200 OK\r\nx: ${"x".repeat(17_000)}\r\n\r\n`, NO_ANSWER],
  ["100,000 headers", "CVE-2018-12121", `HTTP/1.1 200 OK\r\n${"a: b\r\n".repeat(100_000)}\r\n`, NO_ANSWER],
  // Past 16 KiB of head it is refused for its length; below, the encodings are read by nobody.
  ["gzip a thousand times, a header each", "CVE-2026-22036", withBody(repeated(1_000), BOMB), NO_ANSWER],
  ["gzip a thousand times in one header", "CVE-2026-22036", withBody(listed(1_000), BOMB), accepted(200)],
  ["gzip six hundred times, a header each", "CVE-2026-22036", withBody(repeated(600), BOMB), accepted(200)],
  ["a gzip bomb of 8 MB", "CVE-2026-22036", withBody(repeated(1), BOMB), accepted(200)],
  ["a body that ends early", "the status line decides", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", accepted(200)],
  ["brotli that is none", "CVE-2026-22036", withBody("content-encoding: br\r\n", "secret bytes"), accepted(200)],
]; // biome-ignore format: a table

let by: Sender;
let inside: Listener;
let receiver: Receiver;

beforeAll(async () => {
  by = await sender();
  inside = await listenTcp(undefined, "::");
  const more = ["retry-after: 7", `proxy-authenticate: ${CHALLENGE}`, `www-authenticate: ${CHALLENGE}`];
  const location = `location: https://127.0.0.1:${inside.port}/`;
  receiver = await receive((socket, request) => {
    const [, line = "", bare] = /^POST \/(.*?)(\?bare)? HTTP/.exec(request) ?? [];
    const headers = bare ? more : [...more, location];
    socket.write(status(decodeURIComponent(line), ...headers));
  });
});

/** Nothing but the receiver is connected to; one request is made, with no more in it than any other has. */
async function expectOneRequest(path: string, outcome: Outcome): Promise<void> {
  const before = receiver.requests.length;
  const dials = watchDials(receiver.port);
  expect(await posted(by, `https://localhost:${receiver.port}/${path}`, "corp", "Basic")).toEqual(outcome);
  // None where a kept connection serves.
  expect(dials.filter((dial) => dial !== `localhost ${receiver.port}`)).toEqual([]);
  const requests = receiver.requests.slice(before);
  expect(requests).toHaveLength(1);
  expect(requests[0]).not.toMatch(/authorization|accept-encoding|cookie/i);
  expect(inside.connections).toBe(0);
}

describe("a status line", () => {
  it.each(statuses)("of %s decides (%s)", (line, _report, outcome) =>
    expectOneRequest(encodeURIComponent(line), outcome),
  );

  const redirects = statuses.filter(([line]) => line.startsWith("3"));
  it.each(redirects)("of %s decides, be there no Location (%s)", (line, _report, outcome) =>
    expectOneRequest(`${encodeURIComponent(line)}?bare`, outcome),
  );

  it.each([
    "http://169.254.169.254/latest/meta-data/",
    "//169.254.169.254/",
    "/elsewhere",
    "file:///etc/passwd",
    "\\\\internal.corp\\x",
  ])("of a redirect to %s leads nowhere (CVE-2020-28168)", async (location) => {
    const elsewhere = await receive(answering(status("307 Temporary Redirect", `location: ${location}`)));
    const dials = watchDials(elsewhere.port);
    const outcome = await posted(by, `https://localhost:${elsewhere.port}/`, "corp", "latest");
    expect(outcome).toEqual(redirect(307));
    expect(dials).toHaveLength(1);
    expect(elsewhere.requests).toHaveLength(1);
  });
});

describe("an answer of", () => {
  it.each(heads)(
    "%s is judged by its status line alone, and decompressed by nobody (%s)",
    async (_what, _report, answer, outcome) => {
      const opened = (
        ["createGunzip", "createUnzip", "createInflate", "createBrotliDecompress"] as const
      ).map((way) => vi.spyOn(zlib, way));
      const one = await receive((socket) => socket.end(answer, "latin1"));
      const dials = watchDials(one.port);
      expect(await posted(by, `https://localhost:${one.port}/`, "secret", "gzip")).toEqual(outcome);
      await one.allClosed();
      for (const way of opened) {
        expect(way).not.toHaveBeenCalled();
        way.mockRestore();
      }
      expect(dials).toHaveLength(1);
      expect(one.requests).toHaveLength(1);
    },
  );
});

describe("a connection that ends", () => {
  type Act = (socket: TLSSocket) => unknown;
  const ends: [how: string, report: string, act: Act, reset?: boolean][] = [
    ["by FIN, instead of an answer", "UND_ERR_SOCKET", (socket) => socket.end()],
    ["by RST, instead of an answer", "ECONNRESET", (socket) => socket.destroy(), true],
    ["by FIN alone, without TLS's own", "ECONNRESET", (socket) => socket.destroy()],
    ["in the head", "UND_ERR_SOCKET", (socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-le")],
    ["in the head, by RST", "ECONNRESET", (socket) => socket.end("HTTP/1.1 200 OK\r\n"), true],
  ];

  it.each(ends)("%s (%s), has had its request once", async (_how, _report, act, reset = false) => {
    const one = await receive((socket) => act(socket));
    const { port } = await tap(one.port, { reset });
    expect(await posted(by, `https://localhost:${port}/`)).toEqual(NO_ANSWER);
    expect(one.requests).toHaveLength(1);
    expect(one.connections).toBe(1);
  });

  it.each(ends)(
    "%s (%s), under a second request, has had that one once",
    async (_how, _report, act, reset = false) => {
      const one = await receive((socket) => (one.requests.length === 1 ? socket.write(OK) : act(socket)));
      const { port } = await tap(one.port, { reset });
      const url = `https://localhost:${port}/`;
      expect([await posted(by, url), await posted(by, url)]).toEqual([accepted(204), NO_ANSWER]);
      expect(one.requests).toHaveLength(2);
      expect(one.connections).toBe(1);
    },
  );
});

function final(
  category: "redirect not followed" | `destination refused with ${number}`,
  code: number,
): Outcome {
  return { kind: "failed", category, status: code, retryable: false };
}
