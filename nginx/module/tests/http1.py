"""An HTTP/1.1 client on a socket, with or without TLS, that reports interim responses.

It follows no redirects, never retries, and adds no Expect field.
"""

import socket
import ssl
import struct

import options


class Closed(Exception):
    """nginx closed the connection, or reset it or the stream."""


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

    def __repr__(self):
        return "<%d %r %d bytes>" % (self.status, self.fields, len(self.content))


def open_socket(port, alpn=None, receive_buffer=None):
    """Connect, with TLS if `alpn` is given; certificates are not checked."""
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(options.patience(10))
    sock.connect(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if alpn:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols([alpn])
        sock = context.wrap_socket(sock, server_hostname="localhost")
    return sock


class Socket:
    """Socket operations of the HTTP/1.1 and HTTP/2 clients."""

    def __init__(self, sock):
        self.sock = sock

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (ConnectionError, ssl.SSLError) as error:
            raise Closed(str(error)) from None

    def receive(self):
        try:
            data = self.sock.recv(65536)
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise Closed(str(error)) from None
        if not data:
            raise Closed("end of stream")
        return data

    def close(self):
        self.sock.close()

    def reset(self):
        """Close with a TCP RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock = socket.socket(fileno=self.sock.detach())
        self.sock.close()


class Client(Socket):
    def __init__(self, port, tls=False, receive_buffer=None):
        super().__init__(open_socket(port, "http/1.1" if tls else None, receive_buffer))
        self.buffer = b""

    def start(self, method, path, *fields, content=None, length=None, chunked=False, version="1.1"):
        """Send a request's header section, and its content if given."""
        if content is not None and not chunked:
            length = len(content)
        lines = ["%s %s HTTP/%s" % (method, path, version), "Host: localhost", *fields]
        if chunked:
            lines.append("Transfer-Encoding: chunked")
        elif length is not None:
            lines.append("Content-Length: %d" % length)
        self.send("\r\n".join(lines + ["", ""]).encode("latin-1"))
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
        """Receive everything until nginx closes."""
        try:
            while True:
                self._more()
        except Closed:
            taken, self.buffer = self.buffer, b""
            return taken


class Message:
    """One request on a connection, and the responses to it."""

    def __init__(self, client, method, chunked):
        self.client, self.method, self.chunked = client, method, chunked

    def write(self, content, end=False):
        if self.chunked:
            content = b"%x\r\n%s\r\n" % (len(content), content) if content else b""
            content += b"0\r\n\r\n" if end else b""
        self.client.send(content)

    def head(self):
        """Receive the next response without its content."""
        line, *fields = self.client.take_until(b"\r\n\r\n").decode("latin-1").split("\r\n")[:-2]
        version, status, reason = line.split(" ", 2)
        if version not in ("HTTP/1.1", "HTTP/1.0"):
            raise AssertionError("invalid status line %r" % line)
        return Response(int(status), [tuple(field.split(": ", 1)) for field in fields], reason)

    def next(self):
        """Receive the next interim response, or the final response with its content."""
        response = self.head()
        if response.complete:
            return response
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
        return response

    def finish(self):
        """Receive all responses; returns (interim responses, final response)."""
        interims = []
        while True:
            response = self.next()
            if response.status >= 200:
                return interims, response
            interims.append(response)
