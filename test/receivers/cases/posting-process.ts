// A process of its own that posts to `localhost` at each of the ports given, for what only the environment of
// a process can set. Prints one JSON document: of each port the outcome, and what a plain TLS client gets.

import { connect } from "node:tls";
import { createSender, parseDestinations } from "../../../src/egress/index.ts";

const { ports, extraCa }: { ports: number[]; extraCa: string } = JSON.parse(process.argv[2] ?? "{}");
const sender = createSender({
  destinations: parseDestinations("localhost"),
  permitPrivate: true,
  extraCa,
  timeoutMs: 10_000,
  userAgent: "taisce-notify/test",
  connectionsPerOrigin: 1,
});

const plain = (port: number) =>
  new Promise<string>((resolve) => {
    const socket = connect({ host: "localhost", port, servername: "localhost" });
    socket.once("secureConnect", () => {
      resolve(socket.getProtocol() ?? "");
      socket.destroy();
    });
    socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? "error"));
  });

const told = [];
for (const port of ports) {
  told.push({ outcome: await sender.post(`https://localhost:${port}/`, {}, "{}"), plain: await plain(port) });
}
await sender.close();
console.log(JSON.stringify(told));
