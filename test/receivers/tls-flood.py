"""A receiver that floods a connection with messages of TLS itself, which neither Node's nor Python's own TLS can
send at will: OpenSSL is called directly.

    python3 tls-flood.py KIND WHEN CERT KEY

KIND: key-updates, mixed- and answered-key-updates, tickets (TLS 1.3), hello-requests (TLS 1.2). WHEN: instead (of an
answer) or idle (after an answered request). Prints the port it listens on, then one line a connection that ended.
"""

import _ssl
import ctypes
import signal
import socket
import sys
import threading

# The libssl that this Python itself uses: its extension module is linked to it, or has it built in.
libssl = ctypes.CDLL(getattr(_ssl, "__file__", None))
for name in ("TLS_server_method", "SSL_CTX_new", "SSL_new"):
    getattr(libssl, name).restype = ctypes.c_void_p

TLS1_2, CTRL_MAX_PROTO_VERSION, PEM = 0x0303, 124, 1
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


def is_open(connection):
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def mixed(ssl, sent):
    """Once far more than is read of an answer has come, one byte of one."""
    if sent == 8_000:
        libssl.SSL_write(ssl, b"H", 1)
    return libssl.SSL_key_update(ssl, 0)


MESSAGES = {
    # 0: none is asked for in return.
    "key-updates": lambda ssl, _, __: libssl.SSL_key_update(ssl, 0),
    "mixed-key-updates": lambda ssl, _, sent: mixed(ssl, sent),
    # 1: each asks for one in return.
    "answered-key-updates": lambda ssl, _, __: libssl.SSL_key_update(ssl, 1),
    # OpenSSL takes no notice of a failure to write one.
    "tickets": lambda ssl, connection, _: is_open(connection) and libssl.SSL_new_session_ticket(ssl),
    "hello-requests": lambda ssl, _, __: libssl.SSL_renegotiate(ssl),
}


def flood(connection, ssl, message, idle):
    sent = 0
    if libssl.SSL_accept(ssl) == 1:
        request = ctypes.create_string_buffer(65536)
        if libssl.SSL_read(ssl, request, len(request)) > 0 and idle:
            libssl.SSL_write(ssl, ANSWER, len(ANSWER))
        while message(ssl, connection, sent) == 1 and libssl.SSL_do_handshake(ssl) == 1:
            sent += 1
    connection.close()
    print(f"closed after {sent}", flush=True)


def main():
    kind, when, cert, key = sys.argv[1:]
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    context = ctypes.c_void_p(libssl.SSL_CTX_new(ctypes.c_void_p(libssl.TLS_server_method())))
    assert libssl.SSL_CTX_use_certificate_file(context, cert.encode(), PEM) == 1
    assert libssl.SSL_CTX_use_PrivateKey_file(context, key.encode(), PEM) == 1
    if kind == "hello-requests":
        libssl.SSL_CTX_ctrl(context, CTRL_MAX_PROTO_VERSION, ctypes.c_long(TLS1_2), None)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        ssl = ctypes.c_void_p(libssl.SSL_new(context))
        libssl.SSL_set_fd(ssl, connection.fileno())
        threading.Thread(target=flood, args=(connection, ssl, MESSAGES[kind], when == "idle"), daemon=True).start()


main()
