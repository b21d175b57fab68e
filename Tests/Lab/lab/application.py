"""The application behind the gateways: any HTTP server, without knowledge of resumable uploads.

It records every request, with a digest of its content, before it responds. Subclasses decide about the response and
observe the moments of a request.
"""

import hashlib
import http.server
import threading
import time

# The moments of a request: its header section, each part of its content, and the whole of it were received; half of
# the response, and the whole of it were sent.
MOMENTS = HEAD, PART, WHOLE, ANSWERING, ANSWERED = "head", "part", "whole", "answering", "answered"


class Request:
    """One request, as far as it was received."""

    def __init__(self, number, method, target):
        # How many requests with the same target came before.
        self.number, self.method, self.target = number, method, target
        self.began = time.monotonic()
        self.size = 0
        self.digest = None
        self.is_whole = False
        # The status of the response; 0: the connection was closed without one; None: none was sent yet.
        self.status = None
        # The time when the whole response was sent, whether or not a client read it; a refusal does not count.
        self.answered = None
        # A fault of the request that does not depend on its upload.
        self.fault = None

    def __repr__(self):
        end = f"answered {self.status}" if self.status is not None else "whole" if self.is_whole else "cut"
        return f"#{self.number} {self.method} {self.target} {self.size} bytes, {end}{self.fault or ''}"


class Application(http.server.ThreadingHTTPServer):
    """Serves from its creation until `stop`."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address="127.0.0.1", port=0):
        super().__init__((address, port), _Handler)
        self.port = self.server_address[1]
        self.requests = []
        self._by_target = {}
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()

    def requests_for(self, target):
        with self._lock:
            return list(self._by_target.get(target, []))

    def targets(self):
        with self._lock:
            return list(self._by_target)

    def reach(self, moment, request):
        """Called at each of MOMENTS."""

    def take(self, request, part, fields):
        """Called with each part of a request's content, and the request's fields."""

    def received(self, request):
        """Called once no more of a request comes, whether it is whole or not."""

    def respond(self, request):
        """The status, the fields and the content of the response to a whole request; None closes the connection."""
        return 201, {}, f"stored {request.target}\n"

    def begin(self, method, target):
        with self._lock:
            before = self._by_target.setdefault(target, [])
            request = Request(len(before), method, target)
            before.append(request)
            self.requests.append(request)
            return request

    def handle_error(self, *_):
        """Ignores connections that ended with a gateway."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def receive(self):
        application, request = self.server, self.server.begin(self.command, self.path)
        try:
            application.reach(HEAD, request)
            self._receive_content(request)
            application.received(request)
            if not request.is_whole:
                raise ConnectionError("cut")
            application.reach(WHOLE, request)
            response = application.respond(request)
            request.status = response[0] if response else 0
            if response is None:
                raise ConnectionError("without a response")
            self._answer(request, *response)
            if request.status < 300:
                request.answered = time.monotonic()
            application.reach(ANSWERED, request)
        except OSError:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = receive

    def _receive_content(self, request):
        left, digest = int(self.headers.get("Content-Length") or 0), hashlib.sha256()
        while left > 0 and (part := self.rfile.read(min(left, 1 << 16))):
            digest.update(part)
            left -= len(part)
            request.size += len(part)
            self.server.take(request, part, self.headers)
            self.server.reach(PART, request)
        request.digest = digest.hexdigest()
        request.is_whole = left == 0 and "Transfer-Encoding" not in self.headers

    def _answer(self, request, status, fields, text):
        """Sends the response in two parts, so that a gateway may crash between them."""
        content = text.encode()
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        self.server.reach(ANSWERING, request)
        self.wfile.write(content[len(content) // 2 :])
        self.wfile.flush()

    def log_message(self, *_):
        pass
