// A process of its own that posts while it has no file descriptor left, at a time when the list of this
// host's addresses has grown old. Prints one JSON document: the outcome of each post.

import { closeSync, openSync } from "node:fs";
import { createSender, parseDestinations } from "../../src/egress/index.ts";

const sender = createSender({
  destinations: parseDestinations("a.test, 93.184.216.34"),
  permitPrivate: false,
  timeoutMs: 2_000,
  userAgent: "taisce-notify/test",
  connectionsPerOrigin: 1,
  lookup: async () => [{ address: "93.184.216.34", family: 4 }],
});

const open: number[] = [];
let problem: unknown;
while (problem === undefined) {
  try {
    open.push(openSync("/dev/null", "r"));
  } catch (error) {
    problem = error;
  }
}
const now = performance.now.bind(performance);
performance.now = () => now() + 60_000;

const outcomes = [];
for (const url of ["https://a.test/", "https://93.184.216.34/"]) {
  outcomes.push(await sender.post(url, {}, "{}").catch((error: unknown) => `rejected: ${error}`));
}
for (const descriptor of open) closeSync(descriptor);
await sender.close();
console.log(JSON.stringify({ code: (problem as NodeJS.ErrnoException).code, outcomes }));
