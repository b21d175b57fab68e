"""An upload from the view of its client: the requests it sent and the responses it received."""

import hashlib
import random
import time

# Routes that respond with 202.
ACCEPTING = ("acc", "accdir", "later")
# Routes to a directory, with its name among nginx's locations.
DIRECTORIES = {"dir": "drop", "other": "otherdrop", "accdir": "drop"}


class Upload:
    """An upload, used by one worker at a time."""

    def __init__(self, label, route, method, family, size, content=None):
        self.label, self.route, self.method, self.family = label, route, method, family
        self.path = f"/{route}/{label}.bin"
        self.content = random.Random(label).randbytes(size) if content is None else content
        self.size = len(self.content)
        self.sha = hashlib.sha256(self.content).hexdigest()
        # The transport of its client (transport.py).
        self.transport = "tcp"
        # The path of its resource.
        self.url = None
        # The highest acknowledged offset; None: none.
        self.told = None
        # The most bytes ever sent.
        self.sent = 0
        # Whether a completing request was sent completely.
        self.is_completing = False
        # The final response, and whether 202 was received.
        self.answer = None
        self.is_accepted = False
        # Whether its removal was requested, or confirmed (with the time): by its client, or by an operator (purge).
        self.cancelled = ""
        self.cancelled_at = 0
        # Whether its client received, or found, that the outcome is unknown.
        self.is_unknown = False
        # tus: whether it is a part of another upload; its own parts.
        self.is_part = False
        self.parts = []
        self.is_busy = self.is_retired = False
        # Whether its file was found in a directory.
        self.is_dropped = False
        # Whether the gateway reports after a power failure that it was delivered.
        self.is_delivered = False
        # Whether its file was removed from the directory.
        self.is_taken = False
        # The number of checked requests at the application.
        self.judged = 0
        # The number of times an operator has requeued it, and of the attempts before that.
        self.requeues = self.attempts = 0
        # The last result for an operator: held (with the time), released, unknown (no response), or empty.
        self.hold = ""
        self.held_at = 0
        self.cuts = 0
        self.history = []

    @property
    def is_tus(self):
        return self.family in ("tus", "join")

    @property
    def is_repeatable(self):
        """Whether the gateway may send it twice; a form is a POST."""
        return self.method == "PUT" and self.route != "form"

    @property
    def id(self):
        return self.url.split("/")[-1] if self.url else None

    @property
    def is_over(self):
        """Whether its client needs nothing more."""
        return bool(
            self.is_retired or self.answer or self.is_accepted or self.is_unknown or self.cancelled
        )

    def note(self, text):
        self.history.append(f"{time.time():.3f} {text}")

    def locate(self, location):
        path = "/" + location.split("://")[-1].partition("/")[2] if "://" in location else location
        if self.url is None and "/upload-resource/" in path:
            self.url = path

    def marks(self):
        if self.is_tus:
            return {"Tus-Resumable": "1.0.0"}
        return {} if self.family == "plain" else {"Upload-Draft-Interop-Version": self.family}

    def describe(self):
        return (
            f"{self.family} {self.transport} {self.method} {self.path} size {self.size} told {self.told} sent {self.sent} "
            f"cuts {self.cuts} url {self.url}"
        )
