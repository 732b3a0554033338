// A receiver in plain Node, nothing installed: verifies, keeps each project's highest offset, answers.
//   TAISCE_SECRET=<64 hex digits> PORT=8000 node receiver.mjs      behind whatever terminates your HTTPS, or
//   TAISCE_SECRET=… TLS_CERT=cert.pem TLS_KEY=key.pem node receiver.mjs      with a certificate of its own
//   node receiver.mjs --check SECRET HEADER [NOW] < body           checks one captured delivery
import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTls } from "node:https";
import { buffer } from "node:stream/consumers";

const TOLERANCE_SECONDS = 300;
const MAX_BODY_BYTES = 16_384;

// Says why a delivery is refused, or undefined where it is good. The body is the raw bytes.
function verify(secretHex, header, body, now = Date.now() / 1000) {
  const [, time, signature] = /^v1 t=(0|[1-9][0-9]{0,14}) s=([0-9a-f]{64})$/.exec(header ?? "") ?? [];
  if (!time) return "malformed header";
  const key = Buffer.from(secretHex, "hex");
  if (key.length !== 32) throw new Error("a secret is 64 hex digits");
  const expected = createHmac("sha256", key).update(`v1\n${time}\n`).update(body).digest();
  if (!timingSafeEqual(expected, Buffer.from(signature, "hex"))) return "signature mismatch";
  if (!(Math.abs(now - Number(time)) <= TOLERANCE_SECONDS)) return "timestamp outside tolerance";
}

// From Node 22 on whole numbers become bigint from their digits: JSON.parse alone rounds those above 2^53.
function parse(body) {
  return JSON.parse(body, (_key, value, context) =>
    /^[0-9]+$/.test(context?.source) ? BigInt(context.source) : value,
  );
}

const highest = new Map(); // In earnest, keep this where your data is.
function receive(secretHex, header, body) {
  if (verify(secretHex, header, body)) return 400;
  const told = parse(body);
  if (told.version === "taisce-notification/v1" && told.formed_through > (highest.get(told.scope) ?? -1n)) {
    highest.set(told.scope, told.formed_through);
    console.log(`${told.scope} formed through ${told.formed_through}`); // Queue the real work here.
  }
  return 204;
}

const secret = process.env.TAISCE_SECRET ?? "";
if (process.argv[2] === "--check") {
  const [given, header, now] = process.argv.slice(3);
  const body = await buffer(process.stdin);
  const refused = verify(given, header, body, now && Number(now));
  console.log(refused ?? `ok ${parse(body).scope} ${parse(body).formed_through}`);
  process.exitCode = refused ? 1 : 0;
} else if (/^[0-9a-f]{64}$/.test(secret)) {
  const take = (request, response) => {
    const { "content-length": length, "taisce-signature": header } = request.headers;
    if (!(Number(length) <= MAX_BODY_BYTES)) return response.writeHead(413).end();
    const answer = (body) => response.writeHead(receive(secret, header, body)).end();
    buffer(request).then(answer, () => response.destroy());
  };
  const { TLS_CERT: cert, TLS_KEY: key } = process.env;
  const server = cert
    ? createTls({ cert: readFileSync(cert), key: readFileSync(key) }, take)
    : createServer(take);
  server.listen(Number(process.env.PORT ?? 8000), () => console.log("listening on", server.address().port));
} else {
  throw new Error("set TAISCE_SECRET to the 64 hex digits that registering showed");
}
