// The receivers of the hostile campaign, in a process of their own: each a port with one way of misbehaving.
// Tells its parent the ports and the authority to trust; ends when the parent does.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { gzipSync } from "node:zlib";
import { createAuthority } from "../../src/demo/authority.ts";

const OK = "HTTP/1.1 200 OK\r\n";
const CHUNKED = `${OK}transfer-encoding: chunked\r\n\r\n`;
const EMPTY = "content-length: 0\r\n\r\n";
const BOMB = gzipSync(Buffer.alloc(10_000_000));

/** Writes the text, then the unit over and over as fast as it is taken, until the other side closes. */
const flood = (text: string, unit: string) => {
  const block = Buffer.from(unit.repeat(Math.ceil(65_536 / unit.length)), "latin1");
  return (socket: Socket) => {
    const pump = () => {
      if (!socket.destroyed && socket.write(block)) setImmediate(pump);
    };
    socket.on("drain", pump);
    socket.write(text, "latin1");
    pump();
  };
};

/** Writes the text, then the unit every few milliseconds, until the other side closes. */
const drip = (text: string, unit: string) => (socket: Socket) => {
  socket.write(text);
  const timer = setInterval(() => socket.write(unit), 20);
  socket.on("close", () => clearInterval(timer));
};

const say = (text: string) => (socket: Socket) => void socket.write(text, "latin1");

/** On TCP alone, as soon as the connection is there. */
const BELOW_TLS: Record<string, (socket: Socket) => void> = {
  "hung handshake": () => {},
  "FIN at once": (socket) => socket.end(),
  "RST at once": (socket) => socket.resetAndDestroy(),
  "RST on ClientHello": (socket) => socket.once("data", () => socket.resetAndDestroy()),
  "garbage for TLS": flood("", "\x16\x03\x03\xff\xff garbage"),
  "plain HTTP": say("HTTP/1.1 400 Bad Request\r\n\r\n"),
};

/** On TLS, each time a request has come in. */
const ABOVE_TLS: Record<string, (socket: TLSSocket) => void> = {
  "good answer": say(`HTTP/1.1 204 No Content\r\n${EMPTY}`),
  "wrong certificate": say(OK + EMPTY),
  "no answer": () => {},
  "FIN for an answer": (socket) => socket.end(),
  "RST for an answer": (socket) => socket.destroy(),
  "FIN in the head": (socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-le"),
  "dripped head": drip("HTTP/1.1 200 OK\r\nx: ", "x"),
  "endless head": flood("HTTP/1.1 200 OK\r\nx: ", "x"),
  "100,000 headers": flood(OK, "a: b\r\n".repeat(100_000)),
  "endless reason": flood("HTTP/1.1 200 ", "x"),
  "endless 1xx": flood("", "HTTP/1.1 103 Early Hints\r\n\r\n"),
  "dripped 1xx": drip("", "HTTP/1.1 102 Processing\r\n\r\n"),
  "blank lines": flood("", "\r\n"),
  "garbage answer": say("\x00\x01\x02 no HTTP at all\r\n\r\n"),
  upgrade: say("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
  redirect: say(`HTTP/1.1 307 T\r\nlocation: https://169.254.169.254/\r\n${EMPTY}`),
  "503, later": say(`HTTP/1.1 503 Busy\r\nretry-after: 99999999\r\n${EMPTY}`),
  "endless body": flood(CHUNKED, `4000\r\n${"x".repeat(0x4000)}\r\n`),
  "dripped body": drip(`${OK}content-length: 16000\r\n\r\n`, "x"),
  "body cut short": (socket) => socket.end(`${OK}content-length: 9\r\n\r\nshort`),
  "endless chunk extension": flood(`${CHUNKED}1;`, "x"),
  "endless trailer": flood(`${CHUNKED}0\r\nx: `, "x"),
  "gzip bomb": (socket) => {
    socket.write(`${OK}content-encoding: gzip\r\ncontent-length: ${BOMB.length}\r\n\r\n`);
    socket.write(BOMB);
  },
  "second answer unasked": say(`${OK}${EMPTY}HTTP/1.1 500 Forged\r\n${EMPTY}`),
  "blank lines while idle": flood(`HTTP/1.1 204 No Content\r\n${EMPTY}`, "\r\n"),
};

const authority = await createAuthority("hostile");
const { certPem, keyPem } = await authority.issue({ dns: ["receiver.test"] });
const stranger = await authority.issue({ dns: ["another.test"] });

async function listening(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

const ports: Record<string, number> = {};
for (const [kind, act] of Object.entries(BELOW_TLS)) {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.resume();
    act(socket);
  });
  ports[kind] = await listening(server);
}
for (const [kind, act] of Object.entries(ABOVE_TLS)) {
  const keys = kind === "wrong certificate" ? stranger : { certPem, keyPem };
  const server = createTlsServer({ cert: keys.certPem, key: keys.keyPem, noDelay: true }, (socket) => {
    socket.on("error", () => {});
    // The campaign's requests come in one piece, and end like this.
    socket.on("data", (chunk) => {
      if (chunk.at(-1) === 0x7d) act(socket);
    });
  });
  server.on("tlsClientError", () => {});
  server.on("connection", (socket) => socket.on("error", () => {}));
  ports[kind] = await listening(server);
}

/** Stopped once it listens: the kernel alone answers, until its queue of one is full. */
const STOPPED = `
  const server = require("node:net").createServer();
  server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => {
    process.stdout.write(String(server.address().port), () => process.kill(process.pid, "SIGSTOP"));
  });`;
const stopped = spawn(process.execPath, ["-e", STOPPED]);
const blackHole = Number(await new Promise((resolve) => stopped.stdout.once("data", resolve)));
ports["black hole"] = blackHole;
for (let i = 0; i < 6; i++) connect(blackHole, "127.0.0.1").on("error", () => {});

const closing = createServer();
ports["closed port"] = await listening(closing);
closing.close();

process.on("disconnect", () => {
  stopped.kill("SIGKILL");
  process.exit();
});
process.send?.({ ports, ca: authority.certPem });
