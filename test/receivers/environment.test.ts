// Whom a sender trusts: the process's own trust, and with it what the operator adds. That the environment
// moves no request and weakens no check: cases/process.test.ts, cases/peers.test.ts.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { createAuthority } from "../../src/demo/authority.ts";
import { CertificateAuthorityError, createSender, parseDestinations } from "../../src/egress/index.ts";
import { answering, authority, postAlone, receive, status } from "./harness.ts";

const OK = status("204 No Content");
const ACCEPTED = { kind: "accepted", status: 204 };

describe("trust", () => {
  it("is in an added authority besides the process's own trust, not instead of it", async () => {
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
    "is in no text that is no authority: %j",
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

  it("is in every certificate of a bundle", async () => {
    const receiver = await receive(answering(OK));
    const extraCa = `# ours\n${(await createAuthority("another")).certPem}\n${(await authority()).certPem}`;
    expect((await postAlone({ port: receiver.port, extraCa })).outcome).toEqual(ACCEPTED);
  });
});
