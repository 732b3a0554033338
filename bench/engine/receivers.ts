// The receivers as the measures see them: started under one throwaway authority, asked what arrived.
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createAuthority } from "../../src/demo/authority.ts";
import { micros } from "./clock.ts";
import type { Receipts, ReceiverRequest } from "./receiver.ts";

export interface Receiver {
  pid: number;
  origin: string;
  count(): Promise<number>;
  /** What arrived since the last time. */
  take(): Promise<Receipts>;
  setDown(down: boolean): Promise<void>;
  close(): void;
}

export interface Receivers {
  /** The authority's certificate. */
  ca: string;
  /** A file that holds it. */
  caFile: string;
  /** The one that most measures use. */
  main: Receiver;
  start(): Promise<Receiver>;
  close(): void;
}

export async function startReceivers(): Promise<Receivers> {
  const authority = await createAuthority("bench");
  const { certPem, keyPem } = await authority.issue({ dns: ["localhost"], ip: ["127.0.0.1"] });
  const directory = mkdtempSync(join(tmpdir(), "taisce-bench-ca-"));
  const caFile = join(directory, "ca.pem");
  writeFileSync(caFile, authority.certPem);
  const remove = () => rmSync(directory, { recursive: true, force: true });
  process.once("exit", remove);
  const started = new Set<Receiver>();
  const start = async () => {
    const receiver = await startReceiver(certPem, keyPem);
    started.add(receiver);
    return receiver;
  };
  return {
    ca: authority.certPem,
    caFile,
    main: await start(),
    start,
    close() {
      for (const receiver of started) receiver.close();
      remove();
      process.off("exit", remove);
    },
  };
}

async function startReceiver(cert: string, key: string): Promise<Receiver> {
  const child = fork(new URL("./receiver.ts", import.meta.url), { serialization: "advanced" });
  // One question at a time: the answer is whatever comes back next.
  let last: Promise<unknown> = Promise.resolve();
  const ask = <Answer>(request: ReceiverRequest): Promise<Answer> => {
    const answer = last.then(async () => {
      child.send(request);
      const [message] = await once(child, "message");
      return message as Answer;
    });
    last = answer.catch(() => {});
    return answer;
  };
  const port = await ask<number>({ kind: "start", cert, key });
  return {
    pid: child.pid ?? 0,
    origin: `https://localhost:${port}`,
    count: () => ask({ kind: "count" }),
    take: () => ask({ kind: "take" }),
    setDown: async (down) => void (await ask({ kind: "down", down })),
    close() {
      if (child.connected) child.disconnect();
    },
  };
}

/** Waits until `count` requests arrived, or none did for `quietMs`; whether they did. */
export async function arrived(receiver: Receiver, count: number, quietMs = 20_000): Promise<boolean> {
  let before = -1;
  let changedAt = micros();
  for (;;) {
    const now = await receiver.count();
    if (now >= count) return true;
    if (now !== before) changedAt = micros();
    else if (micros() - changedAt > quietMs * 1_000) return false;
    before = now;
    await sleep(20);
  }
}
