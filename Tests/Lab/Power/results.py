"""The results file: a line of JSON for each power failure, written immediately, so that a stopped run can continue.

A complete run ends with a final line. Later lines for the same program belong to the next run.
"""

import collections
import dataclasses
import json
import os

SHOWN = {
    "uploads": "uploads",
    "told": "offsets acknowledged",
    "uploads checked after a cut": "uploads checked after a cut",
    "acknowledged offsets kept": "acknowledged offsets kept",
    "responses kept": "responses kept",
    "acknowledged files kept": "acknowledged files kept",
    "accepted and delivered": "accepted (202) and delivered",
    "requeued": "requeued",
    "held": "held",
    "released": "released",
    "purged": "purged",
    "disk: unflushed": "unflushed blocks",
    "disk: taken back": "of them reverted",
    "file systems checked": "file systems checked",
}


@dataclasses.dataclass
class LaneCuts:
    """The power failures with spool_receive."""

    cuts: int = 0
    # Those of boots in which nginx wrote, those while it had files open, and those during a write.
    used: int = 0
    in_use: int = 0
    in_write: int = 0


class Results:
    def __init__(self, path, program, selection):
        self.path = path
        self._head = {"program": program, "selection": selection}
        self._lines = []
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.exists(path):
            with open(path) as file:
                for line in file:
                    self._take(json.loads(line))

    def _take(self, line):
        if any(line.get(name) != value for name, value in self._head.items()):
            return
        if line.get("end"):
            self._lines = []
        else:
            self._lines.append(line)

    def write(self, line):
        """Appends a line, which is durable on return."""
        line = {**self._head, **line}
        self._lines.append(line)
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def end(self):
        """Marks the run as complete or abandoned: the next one begins anew."""
        self._lines = []
        with open(self.path, "a") as file:
            file.write(json.dumps({**self._head, "end": True}) + "\n")

    def of(self, series):
        return [line for line in self._lines if line.get("series") == series]

    def cuts(self, series):
        """The number of power failures of a series that were checked."""
        return sum("cut" in line for line in self.of(series))

    def noticed(self, control):
        """The result of a negative control: the kinds of broken promises; None: not tried yet."""
        for line in self._lines:
            if line.get("control") == control:
                return line["noticed"]
        return None

    def sum(self, series):
        """(power failures, those with the lane, seconds, figures, broken promises by kind) of a series."""
        figures, broken = collections.Counter(), collections.Counter()
        cuts = seconds = 0
        lane = LaneCuts()
        for line in self.of(series):
            cuts += "cut" in line
            if said := line.get("cut", {}).get("lane"):
                lane.cuts += 1
                lane.used += said["bytes"] > 0
                lane.in_use += said["files"] > 0
                lane.in_write += said["writes"] > 0
            seconds += line.get("seconds", 0)
            figures.update(line.get("figures", {}))
            broken.update(line.get("broken", []))
        return cuts, lane, seconds, figures, broken
