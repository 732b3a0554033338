// The receiver, in a process of its own: real HTTPS with checked signatures. `?ms=20` in an endpoint's URL
// says how long it thinks before it answers 204, so that something is in flight whenever a fault strikes.
// The first message from the parent holds the certificate and the secrets; what arrives goes back in batches.
import type { Certificate } from "../../src/demo/authority.ts";
import { type ReceivedRequest, startReceiver } from "../../src/demo/receiver.ts";

/** One request, as the parent gets to know of it. */
export interface Arrival {
  deliveryId: string;
  /** Path and query, which name the endpoint. */
  path: string;
  formedThrough: string;
  /** Unix ms. */
  at: number;
  /** The signature holds, and its time is within five minutes of this process's clock. */
  verified: boolean;
}

export type ToReceiver =
  | { kind: "start"; certificate: Certificate }
  | { kind: "secrets"; secrets: [path: string, secret: string][] }
  | { kind: "flush" };
export type FromReceiver =
  | { kind: "listening"; origin: string }
  | { kind: "arrivals"; arrivals: Arrival[] }
  | { kind: "flushed" };

const BATCH_MS = 50;

const secrets = new Map<string, string>();
let waiting: Arrival[] = [];

const tell = (message: FromReceiver) => void process.send?.(message);

function pass(): void {
  if (waiting.length > 0) tell({ kind: "arrivals", arrivals: waiting });
  waiting = [];
}

function arrived({ headers, path, rawBody, receivedAt, verified }: ReceivedRequest): void {
  const body = JSON.parse(rawBody.toString()) as { formed_through: number };
  waiting.push({
    deliveryId: String(headers["taisce-delivery"]),
    path,
    formedThrough: String(body.formed_through),
    at: receivedAt,
    verified: verified === true,
  });
}

process.on("message", (message: ToReceiver) => {
  if (message.kind === "start") void start(message.certificate);
  else if (message.kind === "secrets")
    for (const [path, secret] of message.secrets) secrets.set(path, secret);
  else {
    pass();
    tell({ kind: "flushed" });
  }
});

async function start(certificate: Certificate): Promise<void> {
  const receiver = await startReceiver({
    certificate,
    secretFor: (path) => secrets.get(path),
    answer(request) {
      arrived(request);
      const delayMs = Number(new URL(request.path, "https://localhost").searchParams.get("ms") ?? 0);
      return { status: 204, delayMs };
    },
  });
  setInterval(pass, BATCH_MS);
  tell({ kind: "listening", origin: receiver.url("/") });
}

// Without a parent there is nobody to tell. Ctrl-C is the parent's to act on.
process.on("disconnect", () => process.exit());
process.on("SIGINT", () => {});
