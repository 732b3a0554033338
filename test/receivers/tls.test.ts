// Which TLS is spoken: no key exchange whose price the receiver sets, no cipher that the command line
// weakens, no second handshake.

import "../../src/demo/reflect.ts";
import { KeyObject, webcrypto } from "node:crypto";
import type { TLSSocket } from "node:tls";
import * as x509 from "@peculiar/x509";
import { describe, expect, it } from "vitest";
import { checkCertificates } from "../../src/egress/index.ts";
import { answering, authority, post, postAlone, receive, sender, status, timed } from "./harness.ts";

const OK = status("204 No Content");
const ACCEPTED = { kind: "accepted", status: 204 };
const TLS_FAILURE = { kind: "failed", category: "tls failure", retryable: true };

/** A certificate for `localhost` that is its own authority; DHE suites need an RSA key. */
async function rsaCertificate(): Promise<{ cert: string; key: string }> {
  const algorithm = { name: "RSASSA-PKCS1-v1_5", modulusLength: 2048, hash: "SHA-256" };
  const publicExponent = new Uint8Array([1, 0, 1]);
  const keys = await webcrypto.subtle.generateKey({ ...algorithm, publicExponent }, true, ["sign", "verify"]);
  const certificate = await x509.X509CertificateGenerator.createSelfSigned(
    {
      serialNumber: "01",
      name: "CN=localhost",
      notBefore: new Date(Date.now() - 60_000),
      notAfter: new Date(Date.now() + 3_600_000),
      signingAlgorithm: algorithm,
      keys,
      extensions: [new x509.SubjectAlternativeNameExtension([{ type: "dns", value: "localhost" }])],
    },
    webcrypto,
  );
  const key = KeyObject.from(keys.privateKey).export({ type: "pkcs8", format: "pem" }).toString();
  return { cert: `${certificate.toString("pem")}\n`, key };
}

describe("a receiver with finite-field Diffie-Hellman", () => {
  it("and nothing else gets no handshake, and so no say in the size of its group", async () => {
    const keys = await rsaCertificate();
    const by = await sender({ extraCa: keys.cert });
    const plain = await receive(answering(OK), { tls: { ...keys, maxVersion: "TLSv1.2" } });
    expect(await post(by, `https://localhost:${plain.port}/`)).toEqual(ACCEPTED);

    const tls = { ...keys, maxVersion: "TLSv1.2", ciphers: "DHE+AESGCM", dhparam: "auto" } as const;
    const receiver = await receive(answering(OK), { tls });
    const [outcome, ms] = await timed(() => post(by, `https://localhost:${receiver.port}/`));
    expect(outcome).toEqual(TLS_FAILURE);
    expect(ms).toBeLessThan(1_000);
    expect(receiver.handshakes).toBe(0);
  });
});

describe("the command line", () => {
  const relaxed = { NODE_TLS_REJECT_UNAUTHORIZED: "0", NODE_NO_WARNINGS: "1" };

  it("does not bring back ciphers that encrypt nothing", async () => {
    const tls = { maxVersion: "TLSv1.2", ciphers: "NULL:@SECLEVEL=0" } as const;
    const receiver = await receive(answering(OK), { tls });
    const extraCa = (await authority()).certPem;
    const weak = ["--tls-cipher-list=NULL:@SECLEVEL=0", "--tls-max-v1.2"];
    for (const asked of [{ extraCa }, {}]) {
      const told = await postAlone({ port: receiver.port, ...asked }, relaxed, weak);
      expect(told).toEqual({ outcome: TLS_FAILURE, plain: "TLSv1.2" });
    }
    expect(receiver.requests).toHaveLength(0);
  });

  it("may ask for more: with --tls-min-v1.3 nothing less is spoken", async () => {
    const extraCa = (await authority()).certPem;
    const old = await receive(answering(OK), { tls: { maxVersion: "TLSv1.2" } });
    const now = await receive(answering(OK), { tls: { minVersion: "TLSv1.3" } });
    const outcomes = [];
    for (const { port } of [old, now]) {
      outcomes.push((await postAlone({ port, extraCa }, relaxed, ["--tls-min-v1.3"])).outcome);
    }
    expect(outcomes).toEqual([TLS_FAILURE, ACCEPTED]);
    expect((await postAlone({ port: old.port, extraCa }, relaxed)).outcome).toEqual(ACCEPTED);
  });
});

describe("a second handshake", () => {
  it("that a receiver asks for on the same connection is refused", async () => {
    let again = 0;
    const renegotiate = (socket: TLSSocket) =>
      socket.renegotiate({}, (error) => {
        if (error !== null) socket.destroy();
        else if (++again < 50) renegotiate(socket);
        else socket.write(OK);
      });
    const receiver = await receive(renegotiate, { tls: { maxVersion: "TLSv1.2" } });
    const outcome = await post(await sender(), `https://localhost:${receiver.port}/`);
    expect(outcome).toMatchObject({ kind: "failed", retryable: true });
    expect(again).toBe(0);
    await receiver.allClosed();
  });
});

describe("a file of added authorities", () => {
  it("is checked with a sentence's end that says what is wrong with it", async () => {
    const { certPem } = await authority();
    expect(() => checkCertificates(`# ours\n${certPem}${certPem}`)).not.toThrow();
    const broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const cases: [string, string][] = [
      ["", "holds no PEM certificate"],
      ["-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "holds no PEM certificate"],
      [certPem.slice(0, -30), "holds a PEM certificate that has no end"],
      [`${certPem.slice(0, 200)}\n${certPem}`, "holds a PEM certificate that has no end"],
      [certPem + broken, "holds a PEM certificate that cannot be read, number 2"],
    ];
    for (const [pem, message] of cases) {
      expect(() => checkCertificates(pem)).toThrow(
        expect.objectContaining({ name: "CertificateAuthorityError", message }),
      );
    }
  });
});
