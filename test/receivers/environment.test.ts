// No environment variable, command-line switch or global of the process moves a request or weakens its
// checks. Where a switch moves or weakens a plain client, that is shown beside it.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { createAuthority } from "../../src/demo/authority.ts";
import { CertificateAuthorityError, createSender, parseDestinations } from "../../src/egress/index.ts";
import { answering, authority, listenTcp, postAlone, receive, status } from "./harness.ts";

const OK = status("204 No Content");
const ACCEPTED = { kind: "accepted", status: 204 };
const TLS_FAILURE = { kind: "failed", category: "tls failure", retryable: true };

/** From 22.21 and 24.5 on. */
const NODE_CAN_USE_PROXIES = process.allowedNodeEnvironmentFlags.has("--use-env-proxy");

type ProxyWay = [how: string, env: NodeJS.ProcessEnv, execArgv: string[], asked: object, movesFetch: boolean];

/** On Node 22 the undici that the sender imports takes the place of Node's own, proxy and all. */
const NODES_OWN_STAYS = Number.parseInt(process.versions.node, 10) >= 24;

const NODES_OWN_WAYS: ProxyWay[] = [
  ["and NODE_USE_ENV_PROXY", { NODE_USE_ENV_PROXY: "1" }, [], {}, NODES_OWN_STAYS],
  ["and --use-env-proxy", {}, ["--use-env-proxy"], {}, NODES_OWN_STAYS],
];

const PROXY_WAYS: ProxyWay[] = [
  ["in the environment", {}, [], {}, false],
  ...(NODE_CAN_USE_PROXIES ? NODES_OWN_WAYS : []),
  ["and a global dispatcher set to use it", {}, [], { globalProxy: true }, true],
];

describe("a proxy", () => {
  it.each(PROXY_WAYS)("%s hears nothing", async (_how, env, execArgv, asked, movesFetch) => {
    let heard = "";
    const proxy = await listenTcp((socket) => {
      socket.on("data", (chunk) => {
        heard += chunk.toString("latin1");
        socket.end("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n");
      });
    });
    const receiver = await receive(answering(OK));
    const url = `http://127.0.0.1:${proxy.port}`;
    const names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].flatMap((name) => [name, name.toLowerCase()]);
    const proxies = Object.fromEntries(names.map((name) => [name, url]));
    const extraCa = (await authority()).certPem;
    const { outcome } = await postAlone(
      { port: receiver.port, extraCa, ...asked },
      { ...proxies, ...env },
      execArgv,
    );
    expect(outcome).toEqual(ACCEPTED);
    expect(heard).not.toContain("localhost");
    expect(heard.includes("control.invalid")).toBe(movesFetch);
    expect(proxy.connections).toBe(movesFetch ? 1 : 0);
  });
});

describe("TLS", () => {
  it("checks certificates with NODE_TLS_REJECT_UNAUTHORIZED=0", async () => {
    const receiver = await receive(answering(OK));
    const told = await postAlone(
      { port: receiver.port },
      { NODE_TLS_REJECT_UNAUTHORIZED: "0", NODE_NO_WARNINGS: "1" },
    );
    expect(told).toEqual({ outcome: TLS_FAILURE, plain: "TLSv1.3" });
    expect(receiver.requests).toHaveLength(0);
  });

  it("is 1.2 or newer with --tls-min-v1.0", async () => {
    const old = { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" } as const;
    const receiver = await receive(answering(OK), { tls: old });
    const extraCa = (await authority()).certPem;
    const weak = ["--tls-min-v1.0", "--tls-cipher-list=DEFAULT@SECLEVEL=0"];
    const env = { NODE_TLS_REJECT_UNAUTHORIZED: "0", NODE_NO_WARNINGS: "1" };
    const told = await postAlone({ port: receiver.port, extraCa }, env, weak);
    expect(told).toEqual({ outcome: TLS_FAILURE, plain: "TLSv1.1" });
  });

  it("trusts an added authority besides the process's own trust, not instead of it", async () => {
    const receiver = await receive(answering(OK));
    const directory = await mkdtemp(join(tmpdir(), "taisce-egress-"));
    const file = join(directory, "ca.pem");
    await writeFile(file, (await authority()).certPem);
    const extraCa = (await createAuthority("another")).certPem;
    const told = await postAlone({ port: receiver.port, extraCa }, { NODE_EXTRA_CA_CERTS: file });
    await rm(directory, { recursive: true });
    expect(told.outcome).toEqual(ACCEPTED);
  });

  it.each(["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])(
    "takes no text for an authority that is none: %j",
    (extraCa) => {
      const options = {
        permitPrivate: false,
        timeoutMs: 1_000,
        userAgent: "x",
        connectionsPerOrigin: 1,
        extraCa,
      };
      expect(() => createSender({ ...options, destinations: parseDestinations("") })).toThrow(
        CertificateAuthorityError,
      );
    },
  );

  it("takes every certificate of a bundle", async () => {
    const receiver = await receive(answering(OK));
    const extraCa = `# ours\n${(await createAuthority("another")).certPem}\n${(await authority()).certPem}`;
    expect((await postAlone({ port: receiver.port, extraCa })).outcome).toEqual(ACCEPTED);
  });
});
