"""One HTTP/1.1 request on one connection, and all responses to it, including interim ones."""

import select
import socket
import time


class Broken(Exception):
    """The connection ended without a final response."""


class Answer:
    def __init__(self, status, fields, content=b""):
        self.status, self.fields, self.content = status, fields, content

    def number(self, name):
        value = self.fields.get(name, "")
        return int(value) if value.isdigit() else None

    def __repr__(self):
        shown = {
            name: value
            for name, value in self.fields.items()
            if name.startswith("upload-") and name != "upload-limit"
        }
        return f"{self.status} {shown} {self.content[:80]!r}"


class Exchange:
    """One request and its responses.

    pieces: a function that returns the size of the next piece of content; pause: one that returns the seconds after
    it. stop_after: the client aborts after this many bytes. on_interim: receives each 1xx as an Answer. on_sent:
    receives the number of bytes before they are sent. midway: called once, in the middle of the content. limit: the
    timeout in seconds.
    """

    def __init__(
        self,
        method,
        target,
        fields,
        content=b"",
        *,
        pieces=None,
        pause=None,
        stop_after=None,
        on_interim=None,
        on_sent=None,
        midway=None,
        limit=40,
    ):
        self.method, self.target, self.content = method, target, content
        self.fields = {"Host": "localhost", **fields}
        if method in ("POST", "PUT", "PATCH"):
            self.fields["Content-Length"] = len(content)
        self._pieces, self._pause, self._stop_after = pieces, pause, stop_after
        self.on_interim = on_interim or (lambda answer: None)
        self._on_sent, self._midway = on_sent or (lambda count: None), midway
        self.until = time.monotonic() + limit
        self.limit = limit

    def parts(self):
        """The content in pieces, each with the seconds that the client listens after it."""
        at = 0
        while at < len(self.content):
            if self._stop_after is not None and at >= self._stop_after:
                raise Broken("aborted on purpose")
            piece = self.content[at : at + (self._pieces() if self._pieces else 1 << 16)]
            at += len(piece)
            self._on_sent(at)
            yield piece, self._pause() if self._pause else 0
            if self._midway and at * 2 >= len(self.content):
                self._midway()
                self._midway = None


def request(port, method, target, fields, content=b"", **more):
    """Sends a request and returns its final Answer; `more` as for Exchange."""
    exchange = Exchange(method, target, {"Connection": "close", **fields}, content, **more)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=exchange.limit) as peer:
            return Connection(peer).carry(exchange)
    except OSError as error:
        raise Broken(str(error)) from None


class Connection:
    """One connection, for one exchange."""

    def __init__(self, peer):
        self._peer = peer
        self._got = bytearray()

    def carry(self, exchange):
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"{exchange.method} {exchange.target} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in exchange.fields.items())
        self._peer.sendall((head + "\r\n").encode())
        answer = None
        for piece, seconds in exchange.parts():
            self._peer.sendall(piece)
            if not self._listen(seconds):
                raise Broken("closed while content was sent")
            answer = self._heads(exchange)
            if answer:
                break
        while answer is None:
            if time.monotonic() > exchange.until:
                raise Broken("no response in time")
            if not self._listen(0.5):
                raise Broken("closed without a response")
            answer = self._heads(exchange)
        if exchange.method != "HEAD" and answer.status not in (204, 304):
            self._read_content(answer, exchange)
        return answer

    def _listen(self, seconds):
        """Receives once, if bytes arrive in time; returns False if the server has closed."""
        if not self._has_come(seconds):
            return True
        data = self._peer.recv(1 << 16)
        self._got.extend(data)
        return bool(data)

    def _has_come(self, seconds):
        pending = getattr(self._peer, "pending", None)
        return bool(pending and pending()) or bool(select.select([self._peer], [], [], seconds)[0])

    def _heads(self, exchange):
        """Reports interim responses; returns the final header section once it has arrived."""
        while (end := self._got.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._got[:end].decode("latin-1").split("\r\n")
            del self._got[: end + 4]
            fields = {}
            for line in lines:
                name, _, value = line.partition(":")
                fields[name.lower()] = value.strip()
            answer = Answer(int(first.split(" ")[1]), fields)
            if answer.status >= 200:
                return answer
            exchange.on_interim(answer)
        return None

    def _read_content(self, answer, exchange):
        length = answer.number("content-length")
        while length is None or len(self._got) < length:
            if time.monotonic() > exchange.until or not self._listen(0.5):
                if length is not None:
                    raise Broken("the response is incomplete")
                break
            if length is None and not self._has_come(2):
                break
        answer.content = bytes(self._got)
