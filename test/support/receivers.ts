// Real HTTPS receivers for tests, under one authority a test file. Importing this registers the clean-up.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { type Authority, type Certificate, createAuthority } from "../../src/demo/authority.ts";
import { type Receiver, type ReceiverOptions, startReceiver } from "../../src/demo/receiver.ts";

export interface TestAuthority extends Authority {
  /** A file that holds `certPem`, for `TAISCE_NOTIFY_CA_FILE`. */
  readonly caFile: string;
  /** A certificate for localhost, 127.0.0.1 and ::1. */
  readonly localhost: Certificate;
}

let made: Promise<TestAuthority> | undefined;
let directory: string | undefined;
const started = new Set<Receiver>();

/** The test file's own authority, made at the first call. */
export function testAuthority(): Promise<TestAuthority> {
  made ??= makeAuthority();
  return made;
}

/** Starts a receiver that the test file's authority vouches for; it closes with the file at the latest. */
export async function testReceiver(options: Partial<ReceiverOptions> = {}): Promise<Receiver> {
  const { localhost } = await testAuthority();
  const receiver = await startReceiver({ certificate: localhost, ...options });
  started.add(receiver);
  return receiver;
}

async function makeAuthority(): Promise<TestAuthority> {
  const authority = await createAuthority();
  directory = await mkdtemp(join(tmpdir(), "taisce-authority-"));
  const caFile = join(directory, "ca.pem");
  await writeFile(caFile, authority.certPem);
  const localhost = await authority.issue({ dns: ["localhost"], ip: ["127.0.0.1", "::1"] });
  return { ...authority, caFile, localhost };
}

afterAll(async () => {
  await Promise.all(Array.from(started, (receiver) => receiver.close()));
  if (directory !== undefined) await rm(directory, { recursive: true, force: true });
});
