// A process of its own whose host has a public address, given as the argument: posts to it by name and by
// number. Prints one JSON document: what came of each, and how many connections a listener there had.

import { type AddressInfo, createServer } from "node:net";
import { createSender, EgressRefusal, parseDestinations } from "../../../src/egress/index.ts";

const [address = ""] = process.argv.slice(2);
let connections = 0;
const server = createServer((socket) => {
  connections += 1;
  socket.end("no TLS\n");
});
await new Promise<void>((resolve) => server.listen(0, address, resolve));
const { port } = server.address() as AddressInfo;

const sending = (permitPrivate: boolean) =>
  createSender({
    destinations: parseDestinations(`a.test, ${address}`),
    permitPrivate,
    timeoutMs: 5_000,
    userAgent: "taisce-notify/test",
    connectionsPerOrigin: 1,
    lookup: async () => [{ address, family: 4 }],
  });

const by = sending(false);
const vetted = await by.vet(`https://a.test:${port}/`).then(
  () => "taken",
  (error: unknown) => (error instanceof EgressRefusal ? error.category : String(error)),
);
const posted = [];
for (const host of ["a.test", address]) posted.push(await by.post(`https://${host}:${port}/`, {}, "{}"));
const before = connections;
const permitting = sending(true);
const permitted = await permitting.post(`https://a.test:${port}/`, {}, "{}");
await Promise.all([by.close(), permitting.close()]);
server.close();
console.log(JSON.stringify({ vetted, posted, connections: before, permitted, connectionsThen: connections }));
