"""Moments in the life of an upload at which a test triggers something."""

import threading

CLIENT = "creating retrieving appending completing".split()
# As in lab.application.
APPLICATION = ["delivering", "delivering content", "delivered", "answering", "answered"]
ALL = CLIENT + APPLICATION


class Moments:
    """Code that reaches a moment reports it; the test waits for one moment at a time.

    A thread that reaches the moment is blocked until `go_on`, so that the test's action happens at that moment.
    """

    def __init__(self):
        self._condition = threading.Condition()
        self._wanted = None
        self._left = 0
        self._node = None
        self._holds = False

    def look_out(self, moment, ordinal):
        """Starts to wait until the moment was reached `ordinal` times."""
        with self._condition:
            self._wanted, self._left, self._node, self._holds = moment, ordinal, None, True

    def reach(self, moment, node):
        with self._condition:
            if moment != self._wanted:
                return
            self._left -= 1
            if self._left:
                return
            self._wanted, self._node = None, node
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._holds, timeout=30)

    def wait(self, seconds):
        """Whether the moment was reached in time, and its node if that is known."""
        with self._condition:
            came = self._condition.wait_for(lambda: self._left <= 0, timeout=seconds)
            self._wanted = None
            return came, self._node

    def go_on(self):
        with self._condition:
            self._wanted, self._holds = None, False
            self._condition.notify_all()
