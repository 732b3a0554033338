"""A receiver in plain Python, nothing installed: verifies, keeps each project's highest offset, answers.

TAISCE_SECRET=<64 hex digits> PORT=8000 python3 receiver.py    behind whatever terminates your HTTPS
python3 receiver.py --check SECRET HEADER [NOW] < body         checks one captured delivery
"""
import hashlib, hmac, json, os, re, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_SECONDS, MAX_BODY_BYTES = 300, 16_384
HEADER = re.compile("v1 t=(0|[1-9][0-9]{0,14}) s=([0-9a-f]{64})")


def verify(secret_hex, header, body, now=None):
    """Say why a delivery is refused, or None where it is good. The body is the raw bytes."""
    parts = HEADER.fullmatch(header or "")
    if not parts:
        return "malformed header"
    key, signed = bytes.fromhex(secret_hex), f"v1\n{parts[1]}\n".encode() + body
    if len(key) != 32:
        raise ValueError("a secret is 64 hex digits")
    expected = hmac.new(key, signed, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, parts[2]):
        return "signature mismatch"
    if not abs((time.time() if now is None else now) - int(parts[1])) <= TOLERANCE_SECONDS:
        return "timestamp outside tolerance"


highest, lock = {}, threading.Lock()  # In earnest, keep this where your data is.


class Receiver(BaseHTTPRequestHandler):
    timeout, log_message = 30, lambda *_: None

    def do_POST(self):
        length = max(0, min(int(self.headers.get("Content-Length", 0)), MAX_BODY_BYTES))
        body = self.rfile.read(length)  # One that was longer is cut here, and so refused.
        refused = verify(secret, self.headers.get("Taisce-Signature"), body)
        if not refused:
            self.keep(json.loads(body))
        self.send_response(400 if refused else 204)
        self.end_headers()

    def keep(self, told):
        with lock:
            if told.get("version") == "taisce-notification/v1" and told["formed_through"] > highest.get(told["scope"], -1):
                highest[told["scope"]] = told["formed_through"]  # Python's integers are exact at any size.
                print(told["scope"], "formed through", told["formed_through"], flush=True)  # Queue the real work here.


if sys.argv[1:2] == ["--check"]:
    captured = sys.stdin.buffer.read()
    refused, told = verify(*sys.argv[2:4], captured, *map(float, sys.argv[4:])), json.loads(captured)
    print(refused or f"ok {told['scope']} {told['formed_through']}")
    sys.exit(1 if refused else 0)
if len(bytes.fromhex(secret := os.environ.get("TAISCE_SECRET", ""))) != 32:
    sys.exit("set TAISCE_SECRET to the 64 hex digits that registering showed")
server = ThreadingHTTPServer(("", int(os.environ.get("PORT", 8000))), Receiver)
print("listening on", server.server_port, flush=True)
server.serve_forever()
