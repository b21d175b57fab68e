"""An HTTP/1.1 client on a socket, with or without TLS, that reports interim responses.

It follows no redirects, never retries, and adds no Expect field.
"""

import select
import socket
import ssl
import struct
import time

# The seconds after which a call that waits for the server gives up.
patience = 10


class Closed(Exception):
    """The server closed the connection, or reset it or the stream."""


class Response:
    """One response, interim or final; field names as received."""

    def __init__(self, status, fields, reason=""):
        self.status, self.fields, self.reason = status, fields, reason
        self.content = b""
        self.complete = 100 <= status < 200

    def __getitem__(self, name):
        for known, value in self.fields:
            if known.lower() == name.lower():
                return value
        return None

    def number(self, name):
        """The value of a field; None if it is missing or no number."""
        value = self[name]
        return int(value) if value is not None and value.isdigit() else None

    @property
    def offset(self):
        return self.number("Upload-Offset")

    def __repr__(self):
        told = {name: value for name, value in self.fields if name.lower().startswith(("upload-", "x-"))}
        told.pop("Upload-Limit", None)
        return f"<{self.status} {told} {len(self.content)} bytes {bytes(self.content[:200])!r}>"


class Socket:
    """A connection to a port of this machine, with TLS if `alpn` is given; certificates are not checked."""

    def __init__(self, port, alpn=None, receive_buffer=None, source=None):
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            self.sock.bind((source, 0))
        self.sock.settimeout(patience)
        try:
            self.sock.connect(("127.0.0.1", port))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if alpn:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.set_alpn_protocols([alpn])
                self.sock = context.wrap_socket(self.sock, server_hostname="localhost")
        except BaseException:
            self.sock.close()
            raise

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (ConnectionError, ssl.SSLError) as error:
            raise Closed(str(error)) from None

    def receive(self):
        try:
            data = self.sock.recv(1 << 16)
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise Closed(str(error)) from None
        if not data:
            raise Closed("end of stream")
        return data

    def receive_within(self, seconds):
        """Receives what comes first; returns nothing if nothing comes in time."""
        is_pending = isinstance(self.sock, ssl.SSLSocket) and self.sock.pending()
        if not is_pending and not select.select([self.sock], [], [], seconds)[0]:
            return b""
        timeout = self.sock.gettimeout()
        self.sock.settimeout(0)
        try:
            return self.receive()
        except (ssl.SSLWantReadError, BlockingIOError):
            # A record of TLS without content, such as a session ticket.
            return b""
        finally:
            self.sock.settimeout(timeout)

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with a TCP RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock = socket.socket(fileno=self.sock.detach())
        self.sock.close()


class Client(Socket):
    def __init__(self, port, tls=False, **more):
        super().__init__(port, "http/1.1" if tls else None, **more)
        self.buffer = b""

    def start(
        self, method, path, *fields, content=None, length=None, chunked=False, version="1.1", authority="localhost"
    ):
        """Sends a request's header section, and its content if given."""
        if content is not None and not chunked:
            length = len(content)
        lines = [f"{method} {path} HTTP/{version}", f"Host: {authority}", *fields]
        if chunked:
            lines.append("Transfer-Encoding: chunked")
        elif length is not None:
            lines.append(f"Content-Length: {length}")
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
        message = Message(self, method, chunked)
        if content is not None:
            message.write(content, end=True)
        return message

    def _more(self):
        self.buffer += self.receive()

    def take(self, size):
        while len(self.buffer) < size:
            self._more()
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def take_until(self, mark):
        at = self.buffer.find(mark)
        while at < 0:
            seen = len(self.buffer)
            self._more()
            at = self.buffer.find(mark, max(0, seen - len(mark)))
        return self.take(at + len(mark))

    def rest(self):
        """Receives everything until the server closes."""
        try:
            while True:
                self._more()
        except Closed:
            taken, self.buffer = self.buffer, b""
            return taken


class Responses:
    """The responses to one request, by the methods `head`, `listen` and `complete` of the protocol."""

    def next(self):
        """Receives the next interim response, or the final response with its content."""
        response = self.head()
        self.complete(response)
        return response

    def finish(self):
        """Receives all responses; returns (interim responses, final response)."""
        interims = []
        while True:
            response = self.next()
            if response.status >= 200:
                return interims, response
            interims.append(response)


class Message(Responses):
    """One request on a connection, and the responses to it."""

    def __init__(self, client, method, chunked):
        self.client, self.method, self.chunked = client, method, chunked

    def write(self, content, end=False):
        if self.chunked:
            content = b"%x\r\n%s\r\n" % (len(content), content) if content else b""
            content += b"0\r\n\r\n" if end else b""
        self.client.send(content)

    def head(self):
        """Receives the next response without its content."""
        line, *fields = self.client.take_until(b"\r\n\r\n").decode("latin-1").split("\r\n")[:-2]
        version, status, reason = line.split(" ", 2)
        if version not in ("HTTP/1.1", "HTTP/1.0"):
            raise AssertionError(f"invalid status line {line!r}")
        return Response(int(status), [tuple(field.split(": ", 1)) for field in fields], reason)

    def listen(self, seconds=0):
        """The next response without its content; None if it does not come in time."""
        deadline = time.monotonic() + seconds
        while b"\r\n\r\n" not in self.client.buffer:
            part = self.client.receive_within(max(0, deadline - time.monotonic()))
            if not part:
                return None
            self.client.buffer += part
        return self.head()

    def complete(self, response):
        """Receives the content of a response."""
        if response.complete:
            return
        if self.method == "HEAD" or response.status in (204, 304):
            pass
        elif response["Transfer-Encoding"]:
            while True:
                size = int(self.client.take_until(b"\r\n"), 16)
                response.content += self.client.take(size + 2)[:-2]
                if size == 0:
                    break
        elif response["Content-Length"]:
            response.content = self.client.take(int(response["Content-Length"]))
        else:
            response.content = self.client.rest()
        response.complete = True
