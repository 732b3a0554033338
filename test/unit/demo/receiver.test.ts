// The receiver and its authority, over real sockets: what other tests lean on.

import { readFile } from "node:fs/promises";
import { Agent, type RequestOptions, request } from "node:https";
import { checkServerIdentity, connect } from "node:tls";
import { expect, it } from "vitest";
import { createAuthority } from "../../../src/demo/authority.ts";
import { sign } from "../../../src/signing/index.ts";
import { testAuthority, testReceiver } from "../../support/receivers.ts";

const secret = "ab".repeat(32);

async function post(
  url: string,
  body: string,
  options: RequestOptions = {},
): Promise<{ status: number; body: string }> {
  const { certPem } = await testAuthority();
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: "POST", ca: certPem, agent: false, ...options }, (response) => {
      response.setEncoding("utf8");
      let text = "";
      response.on("data", (chunk) => {
        text += chunk;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body: text }));
      response.on("error", reject);
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

function signed(body: string, timestamp = Math.floor(Date.now() / 1000)): Record<string, string> {
  return sign(Buffer.from(secret, "hex"), "0b5f7a1e-7c1d-4b53-9a53-5d0f0d2b6c11", timestamp, body);
}

it("records what arrived, and whether its signature held", async () => {
  await using receiver = await testReceiver({
    secretFor: (path) => (path.startsWith("/signed") ? secret : undefined),
  });
  const before = Date.now();
  expect(await post(receiver.url("/signed?a=1"), "{}", { headers: signed("{}") })).toMatchObject({
    status: 204,
  });
  await post(receiver.url("/signed"), "{} ", { headers: signed("{}") });
  await post(receiver.url("/signed"), "{}", { headers: signed("{}", 1) });
  await post(receiver.url("/signed"), "{}");
  await post(receiver.url("/unsigned"), "{}", { headers: signed("{}") });

  expect(receiver.received.map(({ verified }) => verified)).toEqual([true, false, false, false, undefined]);
  expect(receiver.received[0]).toMatchObject({
    method: "POST",
    path: "/signed?a=1",
    rawBody: Buffer.from("{}"),
  });
  expect(receiver.received[0]?.headers["taisce-delivery"]).toBe("0b5f7a1e-7c1d-4b53-9a53-5d0f0d2b6c11");
  expect(receiver.received[0]?.receivedAt).toBeGreaterThan(before - 5);
  expect(receiver.received[0]?.receivedAt).toBeLessThan(Date.now() + 5);
});

it("answers as told: status, headers, body, late", async () => {
  await using receiver = await testReceiver({
    answer: async ({ path }) => {
      if (path === "/number") return 503;
      if (path === "/throws") throw new Error("as told");
      return { status: 302, headers: { location: "/elsewhere" }, body: "moved", delayMs: 30 };
    },
  });
  expect(await post(receiver.url("/number"), "")).toEqual({ status: 503, body: "" });
  expect(await post(receiver.url("/throws"), "")).toEqual({ status: 500, body: "Error: as told" });
  const begun = performance.now();
  expect(await post(receiver.url("/late"), "")).toEqual({ status: 302, body: "moved" });
  expect(performance.now() - begun).toBeGreaterThan(25);
});

it("resets the connection below TLS", async () => {
  await using receiver = await testReceiver({ answer: () => "reset" });
  await expect(post(receiver.url("/"), "")).rejects.toMatchObject({ code: "ECONNRESET", syscall: "read" });
  expect(receiver.received).toHaveLength(1);
});

it("closes under a hung request, a late answer and a handshake that never came", async () => {
  const receiver = await testReceiver({
    answer: ({ path }) => (path === "/hang" ? "hang" : { status: 204, delayMs: 60_000 }),
  });
  const hung = expect(post(receiver.url("/hang"), "")).rejects.toThrow();
  const late = expect(post(receiver.url("/late"), "")).rejects.toThrow();
  await Promise.all([
    receiver.next(({ path }) => path === "/hang"),
    receiver.next(({ path }) => path === "/late"),
  ]);
  const waiting = expect(receiver.next()).rejects.toThrow("closed");
  await Promise.all([receiver.close(), receiver.close()]);
  await Promise.all([hung, late, waiting]);
  await expect(receiver.next()).rejects.toThrow("closed");
});

it("hands each request to one next, whether it came before or after the call", async () => {
  await using receiver = await testReceiver();
  const second = receiver.next(({ path }) => path === "/2");
  await post(receiver.url("/1"), "");
  await post(receiver.url("/2"), "");
  expect((await second).path).toBe("/2");
  expect((await receiver.next()).path).toBe("/1");
  await expect(receiver.next(undefined, 20)).rejects.toThrow("no such request in 20 ms; 2 arrived in all");
});

it("keeps a connection for the next request, and speaks HTTP/1.1 to whoever offers HTTP/2 too", async () => {
  await using receiver = await testReceiver();
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  for (let sent = 0; sent < 3; sent += 1) await post(receiver.url("/"), "", { agent });
  agent.destroy();
  expect(receiver.connections).toBe(1);

  const { certPem } = await testAuthority();
  const socket = connect({
    port: receiver.port,
    host: "127.0.0.1",
    servername: "localhost",
    ca: certPem,
    ALPNProtocols: ["h2", "http/1.1"],
  });
  await new Promise((resolve, reject) => socket.once("secureConnect", resolve).once("error", reject));
  expect(socket.alpnProtocol).toBe("http/1.1");
  socket.destroy();
});

it("is trusted through its authority alone, by its names alone, in its time alone", async () => {
  const authority = await testAuthority();
  expect(await readFile(authority.caFile, "utf8")).toBe(authority.certPem);
  await using good = await testReceiver();
  const stranger = await createAuthority();
  await expect(post(good.url("/"), "", { ca: stranger.certPem })).rejects.toThrow();

  await using other = await testReceiver({ certificate: await authority.issue({ dns: ["example.test"] }) });
  await expect(post(other.url("/"), "")).rejects.toMatchObject({ code: "ERR_TLS_CERT_ALTNAME_INVALID" });
  const named: RequestOptions = {
    checkServerIdentity: (_host, certificate) => checkServerIdentity("example.test", certificate),
  };
  expect(await post(other.url("/"), "", named)).toMatchObject({ status: 204 });

  const past = await authority.issue({
    dns: ["localhost"],
    notBefore: new Date(Date.now() - 2_000_000),
    notAfter: new Date(Date.now() - 1_000_000),
  });
  await using expired = await testReceiver({ certificate: past });
  await expect(post(expired.url("/"), "")).rejects.toMatchObject({ code: "CERT_HAS_EXPIRED" });
  expect([...good.received, ...expired.received]).toEqual([]);

  await expect(authority.issue({})).rejects.toThrow(TypeError);
});
