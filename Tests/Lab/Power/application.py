"""The application behind the gateway, on the host, so that it survives the guest's power failures.

It records each request with the digest of its content. Sometimes it is slow; sometimes it first refuses a PUT with
503, or closes the connection without a response. When the power fails, an attempt is therefore in progress, or due
again.
"""

import email.message
import hashlib
import http.server
import random
import socketserver
import threading
import time


class Request:
    """One request, as far as it was received."""

    def __init__(self, number, method, target):
        self.number, self.method, self.target = number, method, target
        self.at = time.monotonic()
        self.size = 0
        self.sha = None
        self.is_whole = False
        # The status of the response; 0: the connection was closed without one; None: none was sent yet.
        self.answered = None
        # A fault of the request that does not depend on its upload.
        self.fault = None

    def __repr__(self):
        end = f"answered {self.answered}" if self.is_whole else "cut"
        return f"#{self.number} {self.method} {self.size} bytes, {end}{self.fault or ''}"


class Application(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, on_event, seed):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port = self.server_address[1]
        self.on_event = on_event
        self.chance = random.Random(seed)
        self._lock = threading.Lock()
        # The requests of each target.
        self.seen = {}
        # Whether it accepts uploads of the route `later`.
        self._is_open = False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def open(self):
        self._is_open = True

    def stop(self):
        self.shutdown()
        self.server_close()

    def begin(self, target, method):
        with self._lock:
            before = self.seen.setdefault(target, [])
            request = Request(len(before), method, target)
            before.append(request)
            return request

    def requests(self, target):
        with self._lock:
            return list(self.seen.get(target, []))

    def targets(self):
        with self._lock:
            return list(self.seen)

    def answer(self, request):
        """The status of the response to a whole request, and the delay before it; 0 closes without a response."""
        with self._lock:
            mood, delay = self.chance.random(), self.chance.choice([0, 0, 0, 0.2, 1.0, 2.0])
        if request.target.startswith("/later/") and not self._is_open:
            return 503, 0
        if request.method == "PUT" and mood < 0.10 and request.number < 2:
            return 503, delay
        return (0 if mood > 0.95 else 201), delay

    def handle_error(self, *_):
        """Ignores connections that ended with the guest."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def take(self):
        server = self.server
        request = server.begin(self.path, self.command)
        server.on_event("application-head")
        if not self._receive(request):
            self.close_connection = True
            return
        server.on_event("application-whole")
        status, delay = server.answer(request)
        time.sleep(delay)
        request.answered = status
        if status == 0:
            self.close_connection = True
            return
        body = f"taken {self.path} {request.sha} {request.number} {request.at}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        server.on_event("application-answered")

    do_PUT = do_POST = do_PATCH = take

    def _receive(self, request):
        rest = int(self.headers.get("Content-Length", -1))
        if rest < 0:
            request.fault, rest = "no Content-Length", 0
        content = bytearray()
        while rest > 0:
            data = self.rfile.read(min(rest, 1 << 16))
            if not data:
                return False
            content += data
            rest -= len(data)
        if self.path.startswith("/form/"):
            content = file_of_form(content, self.headers.get("Content-Type", ""), request)
        request.size = len(content)
        request.sha = hashlib.sha256(content).hexdigest()
        request.is_whole = True
        return True

    def log_message(self, *_):
        pass


def file_of_form(content, kind, request):
    """The file of a multipart/form-data form, its last field; faults of the form are recorded."""
    message = email.message.Message()
    message["Content-Type"] = kind
    boundary = message.get_boundary()
    if message.get_content_type() != "multipart/form-data" or not boundary:
        request.fault = f"Content-Type {kind}"
        return content
    end = b"\r\n--" + boundary.encode() + b"--\r\n"
    start = content.rfind(b"--" + boundary.encode() + b"\r\n")
    head, _, file = content[start:].partition(b"\r\n\r\n")
    if not content.endswith(end) or b'name="file"' not in head:
        request.fault = (
            f"a form that begins {bytes(content[:200])!r} and ends {bytes(content[-60:])!r}"
        )
        return content
    return file[: -len(end)]
