"""A client that knows only the protocol: it creates an upload, stores the Location, and after any interruption
retrieves the offset and continues, until it has the final response or a response that the outcome is unknown.

It records what it received, and every violation of a promise. Invariant: it takes offsets only from responses.
"""

import random
import threading
import time
import urllib.parse

from Cluster.wire import Closed, ask, begin
from lab.exchange import STEP

ANSWERED, UNKNOWN, GONE = "answered", "unknown", "gone"


class Creation:
    """One upload resource, or an attempt to create one."""

    def __init__(self, target):
        self.target = target
        self.location = None
        self.told = 0
        # Whether it received an offset, even 0.
        self.is_promised = False
        # The most bytes of content ever sent.
        self.sent = 0
        # The time when the first request that could complete it began.
        self.completing = None
        self.end = None

    @property
    def identity(self):
        return self.location[-26:] if self.location else None


class Task:
    """A client's task; the number determines all random choices, so that a run can be repeated."""

    def __init__(self, number, largest=1 << 21, orders=""):
        draw = random.Random(number)
        self.number = number
        self.method = draw.choice(["POST", "PUT"])
        self.content = draw.randbytes(int(2 ** draw.uniform(0, largest.bit_length() - 1)))
        self.orders = orders
        self.is_careful = draw.random() < 0.7
        self.pieces = draw.randrange(0, 4)
        # Which of the first requests with content it aborts, at a random position.
        self.breaks = [draw.random() < 0.3 for _ in range(3)]
        self.draw = draw


class Client:
    """One upload by such a client; each request goes to the node that `route` names, or to nginx's choice."""

    def __init__(self, task, port, route=lambda request: None, moments=None):
        self.task = task
        self.creations = []
        self.faults = []
        self.requests = []
        # For each request its method, node, result and duration.
        self._heard = []
        self.replays = 0
        self._left_open = []
        self._port = port
        self._route = route
        self._moments = moments
        self._lock = threading.Lock()

    @property
    def current(self):
        return self.creations[-1]

    @property
    def end(self):
        return self.creations[-1].end if self.creations else None

    def run(self, deadline):
        """Performs the upload until its end."""
        try:
            self._run(deadline)
        finally:
            for exchange in self._left_open:
                exchange.close()

    def _run(self, deadline):
        while time.monotonic() < deadline:
            try:
                if not self.creations or self.end == GONE or self.current.location is None:
                    self.create()
                else:
                    self.resume()
            except Closed as cut:
                self._hear(cut)
                # A node may be restarting.
                time.sleep(0.02)
            if self.end in (ANSWERED, UNKNOWN):
                return
        seen = [(one.location, one.told, one.end) for one in self.creations]
        self.faults.append(f"timed out: last {self._heard[-5:]}, {seen}")

    def begin(self):
        """Records an attempt to create an upload resource; returns its unique target."""
        target = f"/files/u{self.task.number}-{len(self.creations)}{self.task.orders}"
        self.creations.append(Creation(target))
        return target

    def create(self):
        target = self.begin()
        content = b"" if self.task.is_careful else self.task.content
        fields = {"Upload-Complete": "?0" if self.task.is_careful else "?1"}
        fields["Content-Length"] = len(content)
        self._pass("creating")
        self._exchange(self.task.method, target, fields, content)

    def resume(self):
        """Retrieves the offset and continues from it; or continues immediately if it was just received."""
        offset = self.current.told
        if not self._was_told or self.task.draw.random() < 0.5:
            self._pass("retrieving")
            head = self.head()
            if head.status != 204:
                return self.take(head)
            offset = self.note(head.offset)
            if head["upload-complete"] == "?1" and offset != len(self.task.content):
                self.faults.append(f"complete at {offset} of {len(self.task.content)}")
        left = len(self.task.content) - offset
        size = left
        if self.task.pieces and left > 1:
            self.task.pieces -= 1
            size = self.task.draw.randrange(0, left)
        self.append(offset, size)

    def append(self, offset, size):
        content = self.task.content[offset : offset + size]
        self._exchange("PATCH", self.current.location, self._fields(offset, size), content, offset)

    def _fields(self, offset, size):
        is_last = offset + size == len(self.task.content)
        return {
            "Upload-Offset": offset,
            "Upload-Complete": "?1" if is_last else "?0",
            "Content-Type": "application/partial-upload",
            "Content-Length": size,
        }

    def begin_rest(self, until):
        """Begins an append of all that is left, and sends the content up to `until`; the test sends the rest."""
        offset = self.current.told
        fields = self._fields(offset, len(self.task.content) - offset)
        exchange = self.open("PATCH", self.current.location, fields)
        self.current.sent = until
        exchange.send(self.task.content[offset:until])
        return exchange

    def head(self):
        return ask(self._port, "HEAD", self.current.location, self._where("HEAD"))

    def ask_node(self, node):
        """Requests the offset from a node, or from nginx's choice, next to the client's own requests."""
        return ask(self._port, "HEAD", self.current.location, {"X-Node": node})

    def check_replay(self, node=None, seconds=0):
        """Requests the final response again from that node; it must be the same.

        For `seconds` a closed connection is no fault: a node that has just started has uploads locked while it
        recovers them.
        """
        deadline = time.monotonic() + seconds
        fields = {**self._fields(len(self.task.content), 0), "X-Node": node}
        while True:
            try:
                answer = ask(self._port, "PATCH", self.current.location, fields)
                break
            except Closed as cut:
                if time.monotonic() > deadline:
                    self.faults.append(f"no replay: {cut}")
                    return
                time.sleep(0.1)
        if answer["x-upstream"] != self.current.target:
            self.faults.append(f"no replay: {answer}")
        self.replays += 1

    _was_told = False

    def _where(self, method):
        node = self._route(len(self.requests))
        self._asked_at = time.monotonic()
        self.requests.append((method, node))
        return {"X-Node": node}

    def open(self, method, target, fields):
        """Begins a request whose content is sent by the test."""
        return begin(self._port, method, target, {**fields, **self._where(method)}, on_interim=self.take_interim)

    def _exchange(self, method, target, fields, content, offset=0):
        self._was_told = False
        if self.current.completing is None and fields["Upload-Complete"] == "?1":
            self.current.completing = time.monotonic()
        exchange = self.open(method, target, fields)
        cut_at = None
        if content and self.task.breaks and self.task.breaks.pop():
            cut_at = self.task.draw.randrange(len(content))
        position = 0
        while position < len(content):
            end = min(position + STEP, len(content) if cut_at is None else cut_at)
            self.current.sent = max(self.current.sent, offset + end)
            self._pass("appending")
            if not exchange.send(content[position:end]):
                break
            position = end
            if position == cut_at:
                # The 104 with the Location may still arrive.
                if self.current.location is None:
                    exchange.listen(2)
                if self.task.draw.random() < 0.5:
                    exchange.close()
                else:
                    # Like a network that drops everything: the node does not detect it.
                    self._left_open.append(exchange)
                raise Closed("by itself")
        self._pass("completing")
        self.take(exchange.final())

    def _pass(self, moment):
        if self._moments:
            self._moments.reach(moment, self.requests[-1][1] if self.requests else None)

    def take_interim(self, response):
        if response.status == 104:
            self._take_location(response)
            if response["upload-offset"] is not None:
                self.note(response.offset)

    def _take_location(self, response):
        if self.current.location is None and response["location"]:
            self.current.location = urllib.parse.urlsplit(response["location"]).path

    def _hear(self, what):
        """Records the result of the last request."""
        seconds = round(time.monotonic() - self._asked_at, 1)
        self._heard.append((*self.requests[-1], str(what), seconds))

    def take(self, response):
        self._hear(response)
        status = response.status
        if response["x-upstream"] is not None:
            if status != 201 or response["x-upstream"] != self.current.target:
                self.faults.append(f"not the upstream's response: {response}")
            self.current.end = ANSWERED
        elif status in (201, 204, 409):
            self._take_location(response)
            self.note(response.offset)
            self._was_told = True
        elif status == 404:
            self.current.end = GONE
        elif status == 410 or (status == 502 and response["upload-complete"] == "?1"):
            self.current.end = UNKNOWN
        elif status == 423 or status >= 500:
            time.sleep(0.05)
        else:
            self.faults.append(f"unexpected: {response}")

    def note(self, offset):
        """Accepts an offset as durable; it may neither decrease nor exceed the number of bytes sent."""
        creation = self.current
        if offset is None:
            self.faults.append(f"{creation.identity}: no offset")
            return creation.told
        if offset < creation.told:
            self.faults.append(f"{creation.identity}: received offset {offset} after {creation.told}")
        if offset > creation.sent:
            self.faults.append(f"{creation.identity}: received offset {offset}, sent {creation.sent}")
        creation.told = offset
        creation.is_promised = True
        return offset
