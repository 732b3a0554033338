// A process of its own that makes one post, for what only the environment or the command line of a process
// can set. Prints one JSON document: the outcome, and what a plain TLS client in the same process gets.

import { connect } from "node:tls";
import { EnvHttpProxyAgent, setGlobalDispatcher } from "undici";
import { createSender, parseDestinations } from "../../src/egress/index.ts";

const { port, extraCa, globalProxy }: { port: number; extraCa?: string; globalProxy?: boolean } = JSON.parse(
  process.argv[2] ?? "{}",
);
if (globalProxy) setGlobalDispatcher(new EnvHttpProxyAgent());

const sender = createSender({
  destinations: parseDestinations("localhost"),
  permitPrivate: true,
  ...(extraCa === undefined ? {} : { extraCa }),
  timeoutMs: 5_000,
  userAgent: "taisce-notify/test",
  connectionsPerOrigin: 1,
});
const outcome = await sender.post(`https://localhost:${port}/`, {}, "{}");
await sender.close();

// Goes by a proxy wherever one is in use; the name resolves nowhere.
await fetch("http://control.invalid/").catch(() => {});

const plain = await new Promise<string>((resolve) => {
  const socket = connect({ host: "localhost", port, servername: "localhost" });
  socket.once("secureConnect", () => {
    resolve(socket.getProtocol() ?? "");
    socket.destroy();
  });
  socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? "error"));
});

console.log(JSON.stringify({ outcome, plain }));
