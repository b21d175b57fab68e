"""How a client reaches nginx: HTTP/1.1 over TCP."""

from wire import request


def send(ledger, upload, method, target, fields, content, **more):
    """One request of an upload's client; its final Answer."""
    return request(ledger.machine.http, method, target, fields, content, **more)
