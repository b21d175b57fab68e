"""The results file: a line of JSON for each cut, written as it comes, so that a run that was stopped goes on.

A run ends with a line that says so. What comes after it, of the same program, belongs to the next run.
"""

import collections
import dataclasses
import json
import os

SHOWN = {
    "uploads": "uploads",
    "told": "offsets told",
    "uploads looked at after a cut": "uploads looked at after a cut",
    "told offsets kept": "told offsets kept",
    "answers kept": "answers kept",
    "answered files kept": "answered files kept",
    "accepted and delivered": "accepted (202) and delivered",
    "requeued": "requeued",
    "held": "held",
    "released": "released",
    "purged": "purged",
    "disk: unflushed": "unflushed blocks",
    "disk: taken back": "of them taken back",
    "file systems checked": "file systems checked",
}


@dataclasses.dataclass
class LaneCuts:
    """Cuts with spool_receive."""

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
        """Appends a line, which is on the disk when this returns."""
        line = {**self._head, **line}
        self._lines.append(line)
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def end(self):
        """The run is complete, or given up: the next one begins anew."""
        self._lines = []
        with open(self.path, "a") as file:
            file.write(json.dumps({**self._head, "end": True}) + "\n")

    # What is there.

    def of(self, series):
        return [line for line in self._lines if line.get("series") == series]

    def cuts(self, series):
        """The cuts of a series that were checked."""
        return sum("cut" in line for line in self.of(series))

    def noticed(self, control):
        """How a negative control ended: the kinds of broken promises; None: not tried yet."""
        for line in self._lines:
            if line.get("control") == control:
                return line["noticed"]
        return None

    def sum(self, series):
        """(cuts, those with the lane, seconds, figures, broken promises by kind) of a series."""
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
