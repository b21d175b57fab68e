"""The application behind the nodes.

The query of a target contains orders: `pace`, milliseconds of pause after each part of content; `wait`, no response
before `release`; `refuse`, 503 until `release`; `break`, the connection of the first request is closed without a
response.
"""

import threading
import time
import urllib.parse

from Cluster import moments
from lab import application


class Application(application.Application):
    def __init__(self, passing=None, address="127.0.0.1"):
        self._passing = passing
        self._released = threading.Event()
        super().__init__(address)

    def hold_back(self):
        """Makes the orders `wait` and `refuse` effective again."""
        self._released.clear()

    def release(self):
        self._released.set()

    def reach(self, moment, request):
        if moment == application.PART and (pace := orders(request).get("pace")):
            time.sleep(int(pace) / 1000)
        if self._passing:
            self._passing.reach(moments.APPLICATION[application.MOMENTS.index(moment)], None)

    def respond(self, request):
        ordered = orders(request)
        if "break" in ordered and request.number == 0:
            return None
        if "wait" in ordered:
            self._released.wait(120)
        if "refuse" in ordered and not self._released.is_set():
            return 503, {"Retry-After": "1"}, "refused\n"
        return 201, {"X-Upstream": request.target}, f"stored {request.target}\n"


def orders(request):
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.target).query))
