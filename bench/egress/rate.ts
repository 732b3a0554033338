// What the checks cost: sends a second over kept connections, of undici alone and of `createSender` with every
// check on, in turn, in one process, to a receiver in another.
//
//   node bench/egress/rate.ts [--rounds 7] [--seconds 3] [--connections 16]
//
// Both send the same headers and body over as many connections, one request at a time on each. undici alone is
// a `Pool` and a dispatch handler that reads the status line and waits for the end. The processor time beside
// each rate is this process's own, all threads, a send; it is steadier than the rate on a busy machine.

import { fork } from "node:child_process";
import { once } from "node:events";
import { getCACertificates } from "node:tls";
import { parseArgs } from "node:util";
import { type Dispatcher, Pool } from "undici";
import { createSender, parseDestinations } from "../../src/egress/index.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "7" },
    seconds: { type: "string", default: "3" },
    connections: { type: "string", default: "16" },
  },
});
const rounds = Math.max(5, Number(values.rounds));
const roundMs = Number(values.seconds) * 1_000;
const connections = Number(values.connections);

const child = fork(new URL("./receiver.ts", import.meta.url));
const [{ port, ca }] = (await once(child, "message")) as [{ port: number; ca: string }];
const origin = `https://localhost:${port}`;

const userAgent = "taisce-notify/bench";
const headers = {
  "content-type": "application/json",
  "taisce-signature": `v1 t=1789128260 s=${"0".repeat(64)}`,
  "taisce-delivery": "0b5f7a1e-7c1d-4b53-9a53-5d0f0d2b6c11",
  "webhook-id": "0b5f7a1e-7c1d-4b53-9a53-5d0f0d2b6c11",
  "webhook-timestamp": "1789128260",
  "webhook-signature": "v1,CEN2e7Kj7runOFsRiv64LxR3sv8BLgjoWLjqQKdiFn0=",
};
const body =
  '{"version":"taisce-notification/v1","scope":"p1","formed_through":412,"stored_through":418,"parked_turns":0,"occurred_at":"2026-09-11T09:44:20Z"}';

const pool = new Pool(origin, {
  connections,
  pipelining: 1,
  allowH2: false,
  headersTimeout: 0,
  bodyTimeout: 0,
  connect: { ca: [...getCACertificates("default"), ca], maxCachedSessions: 0 },
});
const headerList = Object.entries({ "user-agent": userAgent, ...headers }).flat();

/** As little as undici can be used with. */
function sendPlain(): Promise<number> {
  return new Promise((resolve, reject) => {
    let status = 0;
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart() {},
      onResponseStart(_controller, code) {
        status = code;
      },
      onResponseData() {},
      onResponseEnd: () => resolve(status),
      onResponseError: (_controller, error) => reject(error),
    };
    pool.dispatch({ method: "POST", path: "/in", headers: headerList, body }, handler);
  });
}

const sender = createSender({
  destinations: parseDestinations("localhost, .example.com"),
  permitPrivate: true,
  extraCa: ca,
  timeoutMs: 5_000,
  userAgent,
  connectionsPerOrigin: connections,
});

async function sendChecked(): Promise<number> {
  const outcome = await sender.post(`${origin}/in`, headers, body);
  return outcome.kind === "accepted" ? outcome.status : 0;
}

interface Round {
  readonly perSecond: number;
  readonly cpuMicros: number;
}

async function round(send: () => Promise<number>, ms: number): Promise<Round> {
  let sent = 0;
  const cpu = process.cpuUsage();
  const startedAt = performance.now();
  const endsAt = startedAt + ms;
  await Promise.all(
    Array.from({ length: connections }, async () => {
      while (performance.now() < endsAt) {
        if ((await send()) !== 204) throw new Error("a send was not taken");
        sent += 1;
      }
    }),
  );
  const { user, system } = process.cpuUsage(cpu);
  return { perSecond: (sent * 1_000) / (performance.now() - startedAt), cpuMicros: (user + system) / sent };
}

const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? Number.NaN;
const spread = (numbers: number[]) => `${Math.min(...numbers).toFixed(3)}-${Math.max(...numbers).toFixed(3)}`;

for (const send of [sendPlain, sendChecked]) await round(send, 2_000);

console.log(
  `${connections} connections, ${rounds} rounds of ${roundMs / 1_000} s each, Node ${process.version}\n`,
);
console.log("round   undici/s   sender/s   ratio   undici µs   sender µs   ratio");
const rates: number[] = [];
const costs: number[] = [];
for (let i = 0; i < rounds; i++) {
  // Who goes first changes, so that a machine that slows down favours neither.
  const order = i % 2 === 0 ? [sendPlain, sendChecked] : [sendChecked, sendPlain];
  const results = new Map<() => Promise<number>, Round>();
  for (const send of order) results.set(send, await round(send, roundMs));
  const plain = results.get(sendPlain) as Round;
  const checked = results.get(sendChecked) as Round;
  rates.push(checked.perSecond / plain.perSecond);
  costs.push(checked.cpuMicros / plain.cpuMicros);
  console.log(
    [
      String(i + 1).padStart(5),
      plain.perSecond.toFixed(0).padStart(10),
      checked.perSecond.toFixed(0).padStart(10),
      (rates.at(-1) ?? 0).toFixed(3).padStart(7),
      plain.cpuMicros.toFixed(1).padStart(11),
      checked.cpuMicros.toFixed(1).padStart(11),
      (costs.at(-1) ?? 0).toFixed(3).padStart(7),
    ].join(" "),
  );
}
console.log(
  `\nrate, sender to undici:           median ${median(rates).toFixed(3)}, spread ${spread(rates)}`,
);
console.log(`processor time, sender to undici: median ${median(costs).toFixed(3)}, spread ${spread(costs)}`);

await sender.close();
await pool.close();
child.disconnect();
