"""The application behind the gateway, on the host, so that it survives the guest's power failures.

Sometimes it is slow; sometimes it first refuses a PUT with 503, or closes the connection without a response. When the
power fails, an attempt is therefore in progress, or due again.
"""

import collections
import email.message
import hashlib
import random
import threading
import time

from lab import application

EVENTS = {
    application.HEAD: "application-head",
    application.WHOLE: "application-whole",
    application.ANSWERED: "application-answered",
}


class Application(application.Application):
    def __init__(self, on_event, seed):
        self._on_event = on_event
        self._chance = random.Random(seed)
        self._chance_lock = threading.Lock()
        # The forms that are being received, and the types that their requests name.
        self._forms = collections.defaultdict(bytearray)
        self._types = {}
        # Whether it accepts uploads of the route `later`.
        self._is_open = False
        super().__init__()

    def open(self):
        self._is_open = True

    def take(self, request, part, fields):
        if request.target.startswith("/form/"):
            self._forms[request] += part
            self._types[request] = fields.get("Content-Type", "")

    def reach(self, moment, request):
        if moment == application.WHOLE and request in self._forms:
            file = file_of_form(self._forms.pop(request), self._types.pop(request), request)
            request.size, request.digest = len(file), hashlib.sha256(file).hexdigest()
        if moment in EVENTS:
            self._on_event(EVENTS[moment])

    def respond(self, request):
        status, delay = self.answer(request)
        time.sleep(delay)
        if status == 0:
            return None
        return status, {"Content-Type": "text/plain"}, f"taken {request.target} {request.digest} {request.number}\n"

    def answer(self, request):
        """The status of the response to a whole request, and the delay before it; 0 closes without a response."""
        with self._chance_lock:
            mood, delay = self._chance.random(), self._chance.choice([0, 0, 0, 0.2, 1.0, 2.0])
        if request.target.startswith("/later/") and not self._is_open:
            return 503, 0
        if request.method == "PUT" and mood < 0.10 and request.number < 2:
            return 503, delay
        return (0 if mood > 0.95 else 201), delay


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
        request.fault = f"a form that begins {bytes(content[:200])!r} and ends {bytes(content[-60:])!r}"
        return content
    return file[: -len(end)]
