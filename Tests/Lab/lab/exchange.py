"""One request on a connection of its own, by HTTP/1.1 or HTTP/2, and all responses to it."""

import time

from lab import http1
from lab.http1 import Closed

try:
    from lab import http2
except ImportError:
    # python3-h2 is not installed for this Python.
    http2 = None

STEP = 1 << 16


def connect(port, transport, **more):
    """A client of a port, by `tcp`, `tls` or `h2` (HTTP/2 over TLS)."""
    if transport == "h2":
        return http2.Client(port, tls=True, **more)
    return http1.Client(port, tls=transport == "tls", **more)


class Exchange:
    """A request whose header section is sent immediately; `send` sends content in parts.

    `fields` may contain the Content-Length; those without a value are left out. `on_interim` is called for each interim
    response. The server may be silent for `patience` seconds. `source` is the address of the client. Every failure of
    the connection is `Closed`.
    """

    def __init__(
        self,
        port,
        method,
        target,
        fields,
        transport="tcp",
        on_interim=None,
        patience=45,
        authority="localhost",
        source=None,
    ):
        self._on_interim = on_interim or (lambda response: None)
        self._patience = patience
        self._final = None
        self._heard = time.monotonic()
        fields = {name: value for name, value in fields.items() if value is not None}
        length = fields.pop("Content-Length", None)
        self._left = int(length or 0)
        if transport != "h2":
            fields["Connection"] = "close"
        lines = [f"{name}: {value}" for name, value in fields.items()]
        try:
            self._client = connect(port, transport, source=source)
        except OSError as error:
            raise Closed(str(error)) from None
        self._client.sock.settimeout(patience)
        try:
            self._message = self._client.start(method, target, *lines, length=length, authority=authority)
        except (Closed, OSError) as error:
            self.close()
            raise Closed(str(error)) from None

    def send(self, content):
        """Sends content and reads responses meanwhile; returns whether the server still accepts content."""
        for at in range(0, len(content), STEP):
            if not self.listen():
                return False
            part = content[at : at + STEP]
            self._left -= len(part)
            try:
                self._message.write(part, end=self._left == 0)
            except (Closed, OSError):
                # A response that was sent before the close may still be readable.
                return False
        return True

    def listen(self, seconds=0):
        """Reads the interim responses that come in time; returns whether the final one is outstanding."""
        try:
            while self._final is None and (response := self._message.listen(seconds)):
                seconds, self._heard = 0, time.monotonic()
                if response.status >= 200:
                    self._final = response
                else:
                    self._on_interim(response)
        except OSError as error:
            raise Closed(str(error)) from None
        return self._final is None

    def final(self):
        """The final response with its content."""
        self._heard = time.monotonic()
        try:
            while self.listen(0.5):
                if time.monotonic() > self._heard + self._patience:
                    raise Closed("no response in time")
            self._message.complete(self._final)
            return self._final
        except OSError as error:
            raise Closed(str(error)) from None
        finally:
            self.close()

    def close(self):
        self._client.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def ask(port, method, target, fields=None, content=b"", **more):
    """Sends a whole request; returns its final response. `more` as for Exchange."""
    fields = dict(fields or {})
    if content or method not in ("HEAD", "GET", "DELETE", "OPTIONS"):
        fields.setdefault("Content-Length", len(content))
    exchange = Exchange(port, method, target, fields, **more)
    exchange.send(content)
    return exchange.final()
