"""The application behind the gateways: any HTTP server, without knowledge of resumable uploads.

It records every request, with a digest of its content, before it responds. The query of a target contains orders:
`pace`, milliseconds of pause after each part of content; `wait`, no response before `release`; `refuse`, 503 until
`release`; `break`, the connection of the first request is closed without a response.
"""

import hashlib
import http.server
import threading
import time
import urllib.parse


class Request:
    """One request, as far as it was received."""

    def __init__(self, number, method, target):
        self.number = number
        self.method = method
        self.target = target
        self.began = time.monotonic()
        self.size = 0
        self.digest = None
        self.is_whole = False
        # The time when its whole response was sent, whether or not a client read it; a refusal does not count.
        self.answered = None

    def __str__(self):
        what = "answered" if self.answered else "whole" if self.is_whole else "cut"
        return f"#{self.number} {self.method} {self.target} {self.size} bytes, {what}"


class Application:
    """Serves from its creation until `stop`."""

    def __init__(self, moments=None, address="127.0.0.1"):
        self.requests = []
        self._lock = threading.Lock()
        self._released = threading.Event()
        application = self

        class Handler(_Handler):
            owner = application
            passing = moments

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True

            def handle_error(self, *_):
                """Ignores connections that were closed by a gateway's crash."""

        self._server = Server((address, 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def hold_back(self):
        """Makes the orders `wait` and `refuse` effective again."""
        self._released.clear()

    def release(self):
        self._released.set()

    @property
    def is_released(self):
        return self._released.is_set()

    def wait_for_release(self, seconds):
        return self._released.wait(seconds)

    def begin(self, method, target):
        with self._lock:
            request = Request(len(self.requests), method, target)
            self.requests.append(request)
            return request

    def requests_for(self, target):
        with self._lock:
            return [one for one in self.requests if one.target == target]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner = None
    passing = None

    def receive(self):
        orders = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        request = self.owner.begin(self.command, self.path)
        self._pass("delivering")
        try:
            self._receive_content(request, orders)
            if not request.is_whole:
                raise ConnectionError("cut")
            self._pass("delivered")
            if "break" in orders and self.owner.requests_for(self.path)[0] is request:
                raise ConnectionError("as ordered")
            if "wait" in orders:
                self.owner.wait_for_release(120)
            if "refuse" in orders and not self.owner.is_released:
                return self._answer(503, {"Retry-After": "1"})
            self._answer(201, {"X-Upstream": self.path})
            request.answered = time.monotonic()
            self._pass("answered")
        except OSError:
            self.close_connection = True

    do_PUT = do_POST = do_PATCH = do_DELETE = receive

    def do_GET(self):
        self.owner.begin(self.command, self.path).is_whole = True
        self._answer(200, {})

    do_HEAD = do_GET

    def _receive_content(self, request, orders):
        left = int(self.headers.get("Content-Length") or 0)
        digest = hashlib.sha256()
        while left > 0:
            part = self.rfile.read(min(left, 1 << 16))
            if not part:
                break
            digest.update(part)
            left -= len(part)
            request.size += len(part)
            self._pass("delivering content")
            if "pace" in orders:
                time.sleep(int(orders["pace"]) / 1000)
        request.digest = digest.hexdigest()
        request.is_whole = left == 0 and "Transfer-Encoding" not in self.headers

    def _answer(self, status, fields):
        """Sends the response in two parts, so that a gateway may crash between them."""
        content = f"stored {self.path}\n".encode()
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        self._pass("answering")
        self.wfile.write(content[len(content) // 2 :])
        self.wfile.flush()

    def _pass(self, moment):
        if self.passing:
            self.passing.reach(moment, None)

    def log_message(self, *arguments):
        pass
