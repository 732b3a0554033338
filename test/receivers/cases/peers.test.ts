// What may stand at the address: nothing, something that is no TLS, and receivers whose certificate or
// protocol is not good enough. Each ends in its category, and no request is ever sent.

import type { Socket } from "node:net";
import type { TlsOptions } from "node:tls";
import { beforeAll, describe, expect, it } from "vitest";
import { createAuthority } from "../../../src/demo/authority.ts";
import type { Sender } from "../../../src/egress/index.ts";
import type { Receiver, ReceiverOptions, Told } from "../harness.ts";
import { answering, listenTcp, receive, sender, status } from "../harness.ts";
import { selfSigned } from "./certificates.ts";
import {
  answers,
  blackHole,
  closedPort,
  failure,
  posted,
  postFromProcess,
  refusing,
  serverNameIn,
  tap,
  versionsIn,
} from "./support.ts";

const OK = status("204 No Content");
const ACCEPTED = { kind: "accepted", status: 204 };
const TLS_FAILURE = failure("tls failure");
const DAY_MS = 86_400_000;
const daysOn = (days: number) => new Date(Date.now() + days * DAY_MS);

/** Nothing checks certificates in this process but what does it regardless. */
const CARELESS = { NODE_TLS_REJECT_UNAUTHORIZED: "0", NODE_NO_WARNINGS: "1" };

type Act = (socket: Socket) => void;

let by: Sender;

beforeAll(async () => {
  by = await sender();
});

describe("an address where", () => {
  const nothingThere: [what: string, report: string, addresses: string[]][] = [
    ["the port is closed", "loonflow #402", ["127.0.0.1"]],
    ["the port is closed, in IPv6", "loonflow #402", ["::1"]],
    ["the port is closed, as at the name's other one", "undici #5329", ["127.0.0.1", "::1"]],
    [
      "the port is closed, as at the name's other three",
      "undici #5329",
      ["::1", "127.0.0.1", "127.0.0.2", "127.0.0.3"],
    ],
  ];
  it.each(nothingThere)("%s is a refused connection (%s)", async (_what, _report, addresses) => {
    const by = refusing(".test", true, answers(addresses));
    expect(await posted(by, `https://a.test:${await closedPort()}/`, ...addresses)).toEqual(
      failure("connection refused"),
    );
  });

  const silence: [what: string, report: string, addresses: string[], timeoutMs: number][] = [
    ["no SYN is answered", "undici #5329", ["127.0.0.1"], 400],
    [
      "no SYN is answered, the name's other port being closed before",
      "undici #5329",
      ["127.0.0.2", "127.0.0.1"],
      400,
    ],
    [
      "no SYN is answered, the name's other port being closed after",
      "undici #5329",
      ["127.0.0.1", "127.0.0.2"],
      20_000,
    ],
  ];
  it.each(silence)("%s is a timeout (%s)", async (_what, _report, addresses, timeoutMs) => {
    const by = refusing(".test", true, answers(addresses), timeoutMs);
    expect(await posted(by, `https://a.test:${await blackHole()}/`, ...addresses)).toEqual(
      failure("timeout"),
    );
  });

  const noTls: [what: string, report: string, act: Act, outcome: object][] = [
    ["FIN answers the handshake", "nodejs ECONNRESET", (socket) => socket.end(), failure("network error")],
    ["RST answers the handshake", "nodejs ECONNRESET", (socket) => socket.resetAndDestroy(), failure("network error")],
    ["plain HTTP is spoken", "ERR_SSL_WRONG_VERSION_NUMBER", (socket) => socket.end("HTTP/1.1 200 OK\r\n\r\n"), TLS_FAILURE],
    ["SSH is spoken", "ERR_SSL_WRONG_VERSION_NUMBER", (socket) => socket.end("SSH-2.0-OpenSSH_9.9\r\n"), TLS_FAILURE],
    ["a TLS alert is all", "ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE", (socket) => socket.end("\x15\x03\x03\0\x02\x02\x28", "latin1"), TLS_FAILURE],
  ]; // biome-ignore format: a table
  it.each(noTls)("%s is (%s)", async (_what, _report, act, outcome) => {
    const listener = await listenTcp((socket) => socket.once("data", () => act(socket)));
    expect(await posted(by, `https://127.0.0.1:${listener.port}/`)).toEqual(outcome);
    expect(listener.connections).toBe(1);
  });
});

/** Each by an authority that is trusted, unless it says so, and for `localhost` unless it is for another name. */
const certificates: [what: string, report: string, options: () => Promise<ReceiverOptions>][] = [
  ["self-signed", "DEPTH_ZERO_SELF_SIGNED_CERT", async () => ({ tls: await selfSigned("localhost") })],
  ["of an unknown authority", "UNABLE_TO_VERIFY_LEAF_SIGNATURE", async () => ({ tls: await byStranger() })],
  ["expired", "CERT_HAS_EXPIRED", async () => ({ notBefore: daysOn(-2), notAfter: daysOn(-1) })],
  ["not valid yet", "CERT_NOT_YET_VALID", async () => ({ notBefore: daysOn(1), notAfter: daysOn(2) })],
  ["for another name", "HackerOne 811502", async () => ({ dns: ["secret-name.corp"] })],
  ["for a name below", "RFC 6125 6.4.3", async () => ({ dns: ["*.localhost"] })],
  ["for an address, the host being a name", "RFC 9110 4.3.5", async () => ({ dns: [], ip: ["127.0.0.1"] })],
];

describe("a certificate", () => {
  it.each(certificates)("%s (%s) is refused each time", async (_what, _report, options) => {
    const receiver = await receive(answering(OK), await options());
    for (let times = 1; times <= 2; times++) {
      const outcome = await posted(by, `https://localhost:${receiver.port}/`, "localhost", "secret", "corp");
      expect(outcome).toEqual(TLS_FAILURE);
    }
    expect(receiver.connections).toBe(2);
    expect(receiver.requests).toHaveLength(0);
  });

  describe("with NODE_TLS_REJECT_UNAUTHORIZED=0, which a plain client obeys", () => {
    let receivers: Receiver[] = [];
    let told: Told[] = [];

    beforeAll(async () => {
      const made = certificates.map(async ([, , options]) => receive(answering(OK), await options()));
      receivers = await Promise.all(made);
      const ports = receivers.map(({ port }) => port);
      told = await postFromProcess(ports, CARELESS);
    });

    it.each(certificates.map(([what, report], index) => [what, report, index] as const))(
      "%s (%s) is refused",
      (_what, _report, index) => {
        expect(told[index]).toEqual({ outcome: TLS_FAILURE, plain: "TLSv1.3" });
        expect(receivers[index]?.requests).toEqual([]);
      },
    );
  });

  it("is checked anew, by name, after a connection that was good (HackerOne 811502)", async () => {
    const receiver = await receive(answering(OK), { dns: ["a.test"] });
    expect(await posted(by, `https://a.test:${receiver.port}/`)).toEqual(ACCEPTED);
    for (let times = 1; times <= 2; times++) {
      expect(await posted(by, `https://b.test:${receiver.port}/`, "a.test", "b.test")).toEqual(TLS_FAILURE);
    }
    expect(receiver.requests).toHaveLength(1);
  });
});

describe("an address in place of a name", () => {
  const literals: [what: string, report: string, host: string, names: ReceiverOptions, outcome: object][] = [
    ["IPv4", "undici getServerName", "127.0.0.1", { dns: [] }, ACCEPTED],
    ["IPv6", "undici getServerName", "::1", { dns: [] }, ACCEPTED],
    ["IPv4, a certificate without any", "undici getServerName", "127.0.0.1", { dns: ["localhost", "127.0.0.1.test"], ip: [] }, TLS_FAILURE],
    ["IPv6, a certificate without any", "undici getServerName", "::1", { dns: ["localhost"], ip: [] }, TLS_FAILURE],
    ["IPv4, a certificate for others", "RFC 9110 4.3.5", "127.0.0.1", { dns: [], ip: ["127.0.0.2", "::1"] }, TLS_FAILURE],
    ["IPv6, a certificate for others", "RFC 9110 4.3.5", "::1", { dns: [], ip: ["127.0.0.1", "::2"] }, TLS_FAILURE],
    ["IPv4, written as a certificate's name", "RFC 9110 4.3.5", "127.0.0.1", { dns: ["127.0.0.1"], ip: [] }, TLS_FAILURE],
  ]; // biome-ignore format: a table

  it.each(literals)("%s (%s): no name is asked for in TLS", async (_what, _report, host, names, outcome) => {
    const receiver = await receive(answering(OK), { host, ...names });
    const tapped = await tap(receiver.port, { host });
    const url = `https://${host.includes(":") ? `[${host}]` : host}:${tapped.port}/`;
    expect(await posted(by, url, host)).toEqual(outcome);
    expect(tapped.first.map(serverNameIn)).toEqual([undefined]);
    expect(receiver.requests).toHaveLength(outcome === ACCEPTED ? 1 : 0);
  });

  it("is what that is about: a name is asked for, without the dot that was written", async () => {
    const receiver = await receive(answering(OK), { dns: ["a.test"] });
    const tapped = await tap(receiver.port);
    expect(await posted(by, `https://A.test.:${tapped.port}/`)).toEqual(ACCEPTED);
    expect(tapped.first.map(serverNameIn)).toEqual(["a.test"]);
  });
});

const OLD = { minVersion: "TLSv1", ciphers: "DEFAULT@SECLEVEL=0" } as const;

const demands: [what: string, report: string, tls: TlsOptions][] = [
  ["TLS 1.0 alone", "RFC 8996", { ...OLD, maxVersion: "TLSv1" }],
  ["TLS 1.1 alone", "RFC 8996", { ...OLD, minVersion: "TLSv1.1", maxVersion: "TLSv1.1" }],
  ["HTTP/2 alone", "undici allowH2", { ALPNProtocols: ["h2"] }],
  ["a client's certificate in TLS 1.2", "RFC 5246 7.4.6", { requestCert: true, maxVersion: "TLSv1.2" }],
  ["a client's certificate in TLS 1.3", "RFC 8446 4.4.2.4", { requestCert: true, minVersion: "TLSv1.3" }],
];

describe("a receiver that demands", () => {
  it.each(demands)("%s (%s) is refused each time", async (_what, _report, tls) => {
    const receiver = await receive(answering(OK), { tls });
    for (let times = 1; times <= 2; times++) {
      expect(await posted(by, `https://localhost:${receiver.port}/`)).toEqual(TLS_FAILURE);
    }
    expect(receiver.requests).toHaveLength(0);
  });

  it("TLS 1.0 or 1.1 alone is refused with --tls-min-v1.0, which a plain client obeys (nodejs --tls-min)", async () => {
    const old = demands.slice(0, 2).map(([, , tls]) => receive(answering(OK), { tls }));
    const receivers = await Promise.all(old);
    const ports = receivers.map(({ port }) => port);
    const NODE_OPTIONS = "--tls-min-v1.0 --tls-cipher-list=DEFAULT@SECLEVEL=0";
    expect(await postFromProcess(ports, { ...CARELESS, NODE_OPTIONS })).toEqual([
      { outcome: TLS_FAILURE, plain: "TLSv1" },
      { outcome: TLS_FAILURE, plain: "TLSv1.1" },
    ]);
    expect(receivers.flatMap(({ requests }) => requests)).toEqual([]);
  });

  it("is offered TLS 1.3 and 1.2, and nothing older with --tls-min-v1.0 (RFC 8996)", async () => {
    const receiver = await receive(answering(OK));
    const tapped = await tap(receiver.port);
    const NODE_OPTIONS = "--tls-min-v1.0 --tls-cipher-list=DEFAULT@SECLEVEL=0";
    const [told] = await postFromProcess([tapped.port], { ...CARELESS, NODE_OPTIONS });
    expect(told).toEqual({ outcome: ACCEPTED, plain: "TLSv1.3" });
    expect(tapped.first.map(versionsIn)).toEqual([
      ["0304", "0303"],
      // The plain client's, which obeys.
      ["0304", "0303", "0302", "0301"],
    ]);
  });
});

async function byStranger(): Promise<TlsOptions> {
  const { certPem, keyPem } = await (await createAuthority("stranger")).issue({ dns: ["localhost"] });
  return { cert: certPem, key: keyPem };
}
