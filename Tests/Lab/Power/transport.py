"""A client's transport to nginx: HTTP/1.1 over TCP or TLS, or HTTP/2 over TLS. An upload keeps its transport."""

from lab.exchange import STEP, Exchange, http2
from lab.http1 import Closed

TRANSPORTS = ["tcp", "tcp", "tls", "h2"] if http2 else ["tcp", "tcp", "tls"]


def send(
    machine,
    kind,
    method,
    target,
    fields,
    content,
    *,
    on_interim,
    on_sent,
    pieces=lambda: STEP,
    pause=lambda: 0,
    stop_after=None,
    midway=None,
):
    """Sends one request by one of TRANSPORTS; returns its final response.

    pieces: returns the size of the next piece of content; pause: returns the seconds that the client listens after it.
    stop_after: the client aborts after this many bytes. on_interim: receives each 1xx. on_sent: receives the number of
    bytes before they are sent. midway: called once, in the middle of the content.
    """
    if method in ("POST", "PUT", "PATCH"):
        fields = {**fields, "Content-Length": len(content)}
    port = machine.http if kind == "tcp" else machine.https
    with Exchange(port, method, target, fields, kind, on_interim) as request:
        sent = 0
        while sent < len(content):
            if stop_after is not None and sent >= stop_after:
                raise Closed("aborted on purpose")
            piece = content[sent : sent + pieces()]
            sent += len(piece)
            on_sent(sent)
            if not request.send(piece):
                break
            request.listen(pause())
            if midway and sent * 2 >= len(content):
                midway()
                midway = None
        return request.final()
