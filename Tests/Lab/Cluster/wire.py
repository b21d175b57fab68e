"""HTTP/1.1 by hand: one request per connection, and all its responses."""

import select
import socket

VERSION = "10"
STEP = 1 << 16

# The longest silence of a server, longer than any of its own timeouts.
PATIENCE = 45


class Cut(Exception):
    """The connection ended before a final response."""


class Response:
    def __init__(self, status, fields):
        self.status = status
        self.fields = fields
        self.content = b""

    def __getitem__(self, name):
        return self.fields.get(name)

    def offset(self):
        """The offset in the response; None if it has none."""
        text = self.fields.get("upload-offset")
        return int(text) if text is not None and text.isdigit() else None

    def __str__(self):
        told = {n: v for n, v in self.fields.items() if n.startswith(("upload-", "x-"))}
        return f"{self.status} {told} {self.content[:200].decode(errors='replace')}"


class Exchange:
    """A request whose header section is sent immediately; `send` sends content in parts."""

    def __init__(self, port, method, target, fields):
        self.method = method
        self._buffer = b""
        self._early = None
        self._on_interim = None
        lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close"]
        lines.append(f"Upload-Draft-Interop-Version: {VERSION}")
        lines += [f"{name}: {value}" for name, value in fields.items() if value is not None]
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        except OSError as error:
            raise Cut(str(error)) from None

    def on_interim(self, take):
        """Sets the function that is called for each interim response, on the reading thread."""
        self._on_interim = take

    def send(self, content):
        """Sends content and reads responses meanwhile; returns whether the server still accepts content."""
        position = 0
        while position < len(content):
            if not self.listen():
                return False
            part = content[position : position + STEP]
            try:
                self._socket.sendall(part)
            except OSError:
                # A response that was sent before the close may still be readable.
                return False
            position += len(part)
        return True

    def listen(self, seconds=0):
        """Reads the received interim responses; returns whether the final one is outstanding."""
        try:
            while self._early is None and self._has_come(seconds):
                self._take(self._read_head())
                seconds = 0
        except OSError as error:
            raise Cut(str(error)) from None
        return self._early is None

    def final(self):
        """The final response with its content."""
        try:
            while self._early is None:
                self._take(self._read_head())
            response = self._early
            if self.method != "HEAD" and response.status not in (204, 304):
                response.content = self._read_content(response)
            return response
        except OSError as error:
            raise Cut(str(error)) from None
        finally:
            self.close()

    def close(self):
        self._socket.close()

    def _has_come(self, seconds):
        return b"\r\n\r\n" in self._buffer or select.select([self._socket], [], [], seconds)[0]

    def _take(self, response):
        if response.status >= 200:
            self._early = response
        elif self._on_interim:
            self._on_interim(response)

    def _read_head(self):
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip()
        return Response(int(lines[0].split()[1]), fields)

    def _read_content(self, response):
        length = response["content-length"]
        if response["transfer-encoding"] == "chunked":
            return self._read_chunks()
        if length is None:
            raise Cut("a response without a length")
        return self._read_exactly(int(length))

    def _read_chunks(self):
        content = b""
        while True:
            while b"\r\n" not in self._buffer:
                self._more()
            line, self._buffer = self._buffer.split(b"\r\n", 1)
            size = int(line.split(b";")[0], 16)
            content += self._read_exactly(size)
            self._read_exactly(2)
            if size == 0:
                return content

    def _read_exactly(self, count):
        while len(self._buffer) < count:
            self._more()
        content, self._buffer = self._buffer[:count], self._buffer[count:]
        return content

    def _more(self):
        part = self._socket.recv(1 << 16)
        if not part:
            raise Cut("by the server")
        self._buffer += part


def ask(port, method, target, fields=None, content=b""):
    """Sends a whole request; returns its final response."""
    fields = dict(fields or {})
    if content or method not in ("HEAD", "GET", "DELETE", "OPTIONS"):
        fields.setdefault("Content-Length", len(content))
    exchange = Exchange(port, method, target, fields)
    exchange.send(content)
    return exchange.final()
