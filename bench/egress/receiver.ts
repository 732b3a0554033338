// The receiver of the rate bench, in a process of its own: HTTPS, connections kept, 204 to everything, with as
// little work as it can be done with. Tells its parent the port and the authority to trust.

import { createServer, type TLSSocket } from "node:tls";
import { createAuthority } from "../../src/demo/authority.ts";

const ANSWER = Buffer.from("HTTP/1.1 204 No Content\r\n\r\n");

const authority = await createAuthority("bench");
const { certPem, keyPem } = await authority.issue({ dns: ["localhost"], ip: ["127.0.0.1"] });

/** Counts the requests in what arrived: a head, and a body as long as it says. Nothing is pipelined here. */
function answer(socket: TLSSocket): void {
  let text = "";
  socket.on("error", () => {});
  socket.on("data", (chunk) => {
    text += chunk.toString("latin1");
    const head = text.indexOf("\r\n\r\n");
    if (head === -1) return;
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(text)?.[1] ?? 0);
    if (text.length < head + 4 + length) return;
    text = "";
    socket.write(ANSWER);
  });
}

const server = createServer({ cert: certPem, key: keyPem, noDelay: true }, answer);
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  if (typeof address === "object") process.send?.({ port: address?.port, ca: authority.certPem });
});
process.on("disconnect", () => process.exit());
