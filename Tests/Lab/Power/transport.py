"""A client's transport to nginx: HTTP/1.1 over TCP or TLS, or HTTP/2 over TLS. An upload keeps its transport."""

import socket
import ssl

import wire

try:
    import http2
except ImportError:
    # python3-h2 is not installed for this Python.
    http2 = None

TRANSPORTS = ["tcp", "tcp", "tls", "h2"] if http2 else ["tcp", "tcp", "tls"]


def send(ledger, upload, method, target, fields, content, **more):
    """Sends one request of an upload's client; returns its final Answer."""
    machine, kind = ledger.machine, upload.transport
    if kind == "tcp":
        return wire.request(machine.http, method, target, fields, content, **more)
    exchange = wire.Exchange(method, target, {"Connection": "close", **fields}, content, **more)
    try:
        with socket.create_connection(("127.0.0.1", machine.https), timeout=exchange.limit) as raw:
            with context(kind).wrap_socket(raw, server_hostname="localhost") as peer:
                connection = http2.Connection(peer) if kind == "h2" else wire.Connection(peer)
                return connection.carry(exchange)
    except OSError as error:
        raise wire.Broken(str(error)) from None


def context(kind):
    """The guest's certificate is self-signed."""
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.set_alpn_protocols(["h2"] if kind == "h2" else ["http/1.1"])
    return made
