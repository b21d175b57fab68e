"""An HTTP/3 client with the methods of http1 and http2, on aioquic's QUIC layer and pylsqpack.

This client parses the frames itself, because aioquic's HTTP/3 layer treats the second HEADERS of a
response as trailers. It supports no server push, no dynamic table and no priorities.
"""

import socket
import ssl
import time

import pylsqpack
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import (ConnectionTerminated, HandshakeCompleted, StopSendingReceived,
                                 StreamDataReceived, StreamReset)

import options
from lab.http1 import Closed, Response, Responses

DATA, HEADERS, SETTINGS = 0, 1, 4


def integer(value):
    """A QUIC variable-length integer (RFC 9000, section 16)."""
    for prefix, size in (0, 1), (0x4000, 2), (0x80000000, 4):
        if value < 1 << (8 * size - 2):
            return (prefix | value).to_bytes(size, "big")
    raise ValueError(value)


def read_integer(data, at):
    """Returns (value, end position), or None if the integer is incomplete."""
    if at >= len(data):
        return None
    size = 1 << (data[at] >> 6)
    if at + size > len(data):
        return None
    return int.from_bytes(data[at:at + size], "big") & ((1 << (8 * size - 2)) - 1), at + size


def frame(kind, content):
    return integer(kind) + integer(len(content)) + content


class Client:
    def __init__(self, port):
        self.messages = {}
        self.closed = None
        self.ready = False
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.address = "127.0.0.1", port
        self.sock.connect(self.address)
        configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost",
                                          verify_mode=ssl.CERT_NONE)
        self.quic = QuicConnection(configuration=configuration)
        self.encoder, self.decoder = pylsqpack.Encoder(), pylsqpack.Decoder(0, 0)
        self.quic.connect(self.address, now=time.monotonic())
        self.flush()
        self.pump_until(lambda: self.ready)
        control = self.quic.get_next_available_stream_id(is_unidirectional=True)
        self.quic.send_stream_data(control, b"\x00" + frame(SETTINGS, b""))
        self.flush()

    def flush(self):
        for data, _ in self.quic.datagrams_to_send(now=time.monotonic()):
            try:
                self.sock.send(data)
            except ConnectionError as error:
                raise Closed(str(error)) from None

    def pump_until(self, done, seconds=10):
        deadline = time.monotonic() + options.patience(seconds)
        while not done():
            if self.closed:
                raise Closed(self.closed)
            now = time.monotonic()
            if now >= deadline:
                raise TimeoutError("the expected QUIC event was not received in time")
            timer = self.quic.get_timer()
            self.sock.settimeout(max(0.001, min(deadline, timer or deadline, now + 0.01) - now))
            try:
                self.quic.receive_datagram(self.sock.recv(65536), self.address, now=time.monotonic())
            except TimeoutError:
                self.quic.handle_timer(now=time.monotonic())
            except ConnectionError as error:
                raise Closed(str(error)) from None
            self._events()
            self.flush()

    def _events(self):
        while event := self.quic.next_event():
            message = self.messages.get(getattr(event, "stream_id", None))
            if isinstance(event, HandshakeCompleted):
                self.ready = True
            elif isinstance(event, ConnectionTerminated):
                self.closed = "connection closed, %d %s" % (event.error_code, event.reason_phrase)
            elif message and isinstance(event, StreamDataReceived):
                message.take(event.data, event.end_stream)
            elif message and isinstance(event, StreamReset):
                message.reset_code = event.error_code
            elif message and isinstance(event, StopSendingReceived):
                message.stopped = True

    def start(self, method, path, *fields, content=None, length=None):
        if content is not None:
            length = len(content)
        head = [(b":method", method.encode()), (b":scheme", b"https"), (b":authority", b"localhost"),
                (b":path", path.encode())]
        for field in fields:
            name, value = field.split(": ", 1)
            head.append((name.lower().encode(), value.encode("latin-1")))
        if length is not None:
            head.append((b"content-length", b"%d" % length))
        stream = self.quic.get_next_available_stream_id()
        message = self.messages[stream] = Message(self, stream)
        _, section = self.encoder.encode(stream, head)
        self.quic.send_stream_data(stream, frame(HEADERS, section),
                                   length == 0 or length is None and method in ("GET", "HEAD"))
        self.flush()
        if content:
            message.write(content, end=True)
        return message

    def close(self):
        if not self.closed:
            self.quic.close()
            try:
                self.flush()
            except Closed:
                pass
        self.sock.close()


class Message(Responses):
    """One request stream."""

    def __init__(self, client, stream):
        self.client, self.stream = client, stream
        self.responses, self.final = [], None
        self.reset_code, self.stopped = None, False
        self._data = b""

    def take(self, data, end):
        self._data += data
        while True:
            kind = read_integer(self._data, 0)
            size = kind and read_integer(self._data, kind[1])
            if not size or size[1] + size[0] > len(self._data):
                break
            content, self._data = self._data[size[1]:size[1] + size[0]], self._data[size[1] + size[0]:]
            if kind[0] == HEADERS:
                _, fields = self.client.decoder.feed_header(self.stream, content)
                fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]
                self._head(fields)
            elif kind[0] == DATA:
                self.final.content += content
        if end and self.final:
            self.final.complete = True

    def _head(self, fields):
        if self.final or fields[0][0] != ":status":
            raise AssertionError("nginx violated HTTP/3: field section %r" % fields)
        for name, _ in fields:
            if name != name.lower():
                raise AssertionError("field name with upper case: %r" % name)
        response = Response(int(fields[0][1]), fields[1:])
        self.final = None if response.complete else response
        self.responses.append(response)

    def write(self, content, end=False):
        self.client.quic.send_stream_data(self.stream, frame(DATA, content), end)
        self.client.flush()

    def _wait(self, done):
        self.client.pump_until(lambda: done() or self.reset_code is not None)
        if not done():
            raise Closed("stream reset, %d" % self.reset_code)

    def head(self):
        """Receive the next response; its content may be incomplete."""
        self._wait(lambda: self.responses)
        return self.responses.pop(0)

    def complete(self, response):
        """Receive the content of a response."""
        self._wait(lambda: response.complete)

    def cancel(self):
        """Reset both directions of the stream."""
        self.client.quic.reset_stream(self.stream, 0x10c)
        self.client.quic.stop_stream(self.stream, 0x10c)
        self.client.flush()
