// One job is one signed POST: the same body, headers, signature and kept connections as this product's, by
// undici used as sparingly as it can be.
import { getCACertificates } from "node:tls";
import { type Dispatcher, Pool } from "undici";
import { notificationBody } from "../../../src/notifications/payload.ts";
import { sign, signingKey } from "../../../src/signing/index.ts";
import type { Job, WorkerConfig } from "./config.ts";

export interface Poster {
  /** Resolves where it was answered 2xx, rejects otherwise. */
  post(id: string, job: Job): Promise<void>;
  /** The same with everything made once: what undici alone can do. */
  repeat(path: string): () => Promise<void>;
  close(): Promise<void>;
}

export function createPoster({ origin, ca, concurrency, secret }: WorkerConfig): Poster {
  const pool = new Pool(origin, {
    connections: concurrency,
    pipelining: 1,
    allowH2: false,
    connect: { ca: [...getCACertificates("default"), ca] },
  });
  const key = signingKey(Buffer.from(secret, "hex"));

  const send = (path: string, headers: Record<string, string>, body: string) =>
    new Promise<void>((resolve, reject) => {
      let status = 0;
      const handler: Dispatcher.DispatchHandler = {
        onRequestStart() {},
        onResponseStart(_controller, code) {
          status = code;
        },
        onResponseData() {},
        onResponseEnd: () =>
          status >= 200 && status < 300 ? resolve() : reject(new Error(`answered ${status}`)),
        onResponseError: (_controller, error) => reject(error),
      };
      pool.dispatch({ method: "POST", path, headers, body }, handler);
    });

  const headersFor = (id: string, body: string) => ({
    "user-agent": "bench",
    "content-type": "application/json",
    ...sign(key, id, Math.floor(Date.now() / 1_000), body),
  });

  const bodyOf = (job: Job) =>
    notificationBody({
      ...job,
      formedThrough: BigInt(job.formedThrough),
      storedThrough: BigInt(job.storedThrough),
    });

  return {
    post(id, job) {
      const body = bodyOf(job);
      return send(job.path, headersFor(id, body), body);
    },
    repeat(path) {
      const body = bodyOf({
        path,
        scope: "p0",
        formedThrough: 0,
        storedThrough: 0,
        parkedTurns: 0,
        occurredAt: "2026-09-11T09:44:20Z",
      });
      const headers = headersFor("0b5f7a1e-7c1d-4b53-9a53-5d0f0d2b6c11", body);
      return () => send(path, headers, body);
    },
    close: () => pool.close(),
  };
}
