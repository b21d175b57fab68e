"""A FastCGI responder that tests control record by record.

A test either accepts requests one at a time with accept() and responds in its own thread, or passes
serve() a function that is called for each request, in a thread for each connection.
"""

import contextlib
import os
import select
import socket
import struct
import threading
import time

import options
from lab import fastcgi


class Disconnected(Exception):
    """nginx closed the connection, or reset it."""


class Exchange:
    """One request on one connection."""

    def __init__(self, sock):
        self.sock = sock
        self.received = 0           # content bytes so far
        self._buffer = bytearray()
        self._content = bytearray()
        self._complete = False      # the empty STDIN record was received
        self._begin()

    def _begin(self):
        kind, content = self._record()
        if kind != fastcgi.BEGIN_REQUEST:
            raise AssertionError("record type %d instead of BEGIN_REQUEST" % kind)
        self.keep = bool(struct.unpack("!HB5x", content)[1] & fastcgi.KEEP_CONNECTION)
        params = bytearray()
        while True:
            kind, content = self._record()
            if kind != fastcgi.PARAMS:
                raise AssertionError("record type %d instead of PARAMS" % kind)
            if not content:
                break
            params += content
        self.params = fastcgi.pairs(params)

    def following(self):
        """Receive the next request on this connection (fastcgi_keep_conn)."""
        self.content()
        self.received, self._complete = 0, False
        self._begin()
        return self

    def _fill(self):
        try:
            data = self.sock.recv(65536)
        except ConnectionError as error:
            raise Disconnected(str(error)) from None
        if not data:
            raise Disconnected("end of stream")
        self._buffer += data

    def _record(self):
        while len(self._buffer) < 8:
            self._fill()
        _, kind, _, length, padding, _ = struct.unpack_from("!BBHHBB", self._buffer)
        while len(self._buffer) < 8 + length + padding:
            self._fill()
        content = bytes(self._buffer[8:8 + length])
        del self._buffer[:8 + length + padding]
        return kind, content

    def receive(self, size):
        """Receive at least `size` bytes of content, or fewer at its end."""
        while len(self._content) < size and not self._complete:
            kind, content = self._record()
            if kind != fastcgi.STDIN:
                raise AssertionError("record type %d instead of STDIN" % kind)
            self._complete = not content
            self._content += content
            self.received += len(content)
        taken = bytes(self._content)
        self._content.clear()
        return taken

    def content(self):
        """Receive the rest of the content."""
        return self.receive(float("inf"))

    def write(self, data):
        try:
            self.sock.sendall(data)
        except ConnectionError as error:
            raise Disconnected(str(error)) from None

    def stdout(self, data, size=65535, padding=0):
        self.write(fastcgi.records(fastcgi.STDOUT, data, size, padding))

    def stderr(self, data):
        self.write(fastcgi.records(fastcgi.STDERR, data))

    def interim(self, status=104, *fields):
        self.stdout(fastcgi.block(status, *fields))

    def final(self, status=200, *fields, content=b""):
        self.stdout(fastcgi.block(status, *fields) + content)
        self.end()

    def whole(self, status=200, *fields, content=b"", before=b"", after=b""):
        """Send a final response with END_REQUEST in one write; nginx reads it at once if it fits the buffer."""
        self.write(before + fastcgi.records(fastcgi.STDOUT, fastcgi.block(status, *fields) + content)
                   + fastcgi.end() + after)

    def end(self):
        self.write(fastcgi.end())
        self.shutdown()

    def shutdown(self):
        """Shut down the sending side; nginx waits for this if it buffers, even after END_REQUEST."""
        if not self.keep:
            with contextlib.suppress(OSError):      # nginx may have closed already
                self.sock.shutdown(socket.SHUT_WR)

    def close(self, reset=False):
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def until_closed(self, seconds=5):
        """Read and discard until nginx closes, as a gateway must; returns the seconds until then."""
        started = time.monotonic()
        deadline = started + options.patience(seconds)
        while time.monotonic() < deadline:
            self.sock.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                self._fill()
                self._buffer.clear()
            except Disconnected:
                return time.monotonic() - started
            except TimeoutError:
                break
        raise AssertionError("nginx did not close the connection within %.1f s" % (time.monotonic() - started))


class Responder:
    """Listens on the Unix socket `path`, or on a free port of 127.0.0.1."""

    def __init__(self, path=None):
        self.errors = []
        self._exchanges = []
        self._script = None
        self._stop = threading.Event()
        self._threads = []
        if path:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(path)
            os.chmod(path, 0o777)
            self.address = "unix:" + path
        else:
            self._listener = socket.socket()
            self._listener.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self._listener.listen(128)

    def accept(self, seconds=10):
        """Accept the next request."""
        return self.adopt(self.accept_connection(seconds))

    def accept_connection(self, seconds=10):
        self._listener.settimeout(options.patience(seconds))
        try:
            sock, _ = self._listener.accept()
        except TimeoutError:
            raise AssertionError("no request was received") from None
        sock.settimeout(options.patience(10))
        return sock

    def adopt(self, sock):
        exchange = Exchange(sock)
        self._exchanges.append(exchange)
        return exchange

    def connections(self):
        """The number of connections accepted since reset()."""
        return len(self._exchanges)

    def idle(self):
        """True if no connection waits to be accepted."""
        return not select.select([self._listener], [], [], 0)[0]

    def serve(self, script):
        """Call script(exchange) for each request until reset()."""
        self._script = script
        self._stop.clear()
        self._start(self._accept_all)

    def _start(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept_all(self):
        while not self._stop.is_set():
            if select.select([self._listener], [], [], 0.02)[0]:
                self._listener.settimeout(options.patience(10))
                sock, _ = self._listener.accept()
                sock.settimeout(options.patience(20))
                self._start(self._run, sock)

    def _run(self, sock):
        try:
            exchange = self.adopt(sock)
            while True:
                self._script(exchange)
                if not exchange.keep:
                    return exchange.until_closed()
                exchange.following()
        except Disconnected:
            pass
        except Exception as error:  # tearDown reports it
            if not self._stop.is_set():
                self.errors.append(error)
        finally:
            sock.close()

    def reset(self):
        """Close all connections of the last test; returns the errors of its scripts."""
        self._stop.set()
        for exchange in self._exchanges:
            with contextlib.suppress(OSError):
                exchange.sock.shutdown(socket.SHUT_RDWR)    # wakes a thread that reads or writes
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        for exchange in self._exchanges:
            exchange.sock.close()
        self._exchanges.clear()
        while not self.idle():
            self._listener.accept()[0].close()
        errors, self.errors = self.errors, []
        return errors

    def close(self):
        self.reset()
        self._listener.close()
