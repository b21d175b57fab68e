"""All uploads of one series, the responses of each client, and each broken promise.

The ledger also knows the moment of the next power failure: the thread that reaches it cuts the power immediately.
"""

import collections
import os
import shutil
import threading

from lab.http1 import Closed
from transport import TRANSPORTS
from upload import Upload

# Kinds of responses and events at which the power may be cut.
MOMENTS = (
    "created appended head conflict progress postponed 104-location accepted cancelled joined requeued held released"
    " purged answered-dir answered-other answered-http answered-form application-head application-whole"
    " application-answered"
).split()
# A moment for POWER_MOMENT only: according to the guest's last report, a thread of nginx writes.
NGINX_WRITES = "nginx-writes"
FAMILIES = ["8", "8", "8", "10", "9", "7", "6", "5", "tus", "tus", "tus", "plain", "plain", "join"]
ROUTES = ["dir", "dir", "other", "http", "http", "form", "form"]
ACCEPTING_ROUTES = ["acc", "acc", "accdir", "later", "later"]
# The most uploads that wait for a worker.
MOST_WAITING = 30
# The most uploads of the route `later`, which wait until the end.
MOST_LATER = 12


class Ledger:
    """Usable from any thread."""

    def __init__(self, name, work, chance, moment=None, accepts=True):
        self.name, self.work, self.chance, self.moment = name, work, chance, moment
        self.lock = threading.RLock()
        self.live, self.by_path = [], {}
        self.figures = collections.Counter()
        self.faults, self.wonders = [], []
        # The uploads that are held because their outcome is unknown: for the operator.
        self.held = []
        self.machine = None
        self.application = None
        self.boot = 0
        # Whether most uploads are large enough for spool_receive.
        self.has_large = False
        self._accepts = accepts
        self._numbers = 0
        self._trigger = None

    @property
    def is_dead(self):
        return self.machine.is_dead

    def count(self, what, by=1):
        with self.lock:
            self.figures[what] += by

    def tell(self, upload, kind, offset):
        """Records that a client received an Upload-Offset."""
        if offset is None:
            return
        with self.lock:
            upload.note(f"received offset {offset} ({kind})")
            self.figures[f"told {kind}"] += 1
            self.figures["told"] += 1
            self.figures[f"offsets by {upload.transport}"] += 1
            upload.told = max(upload.told or 0, offset)
        self.event(kind)

    def look_out(self, kind, ordinal):
        """Cuts the power when an event of that kind happens for the `ordinal`th time."""
        with self.lock:
            self._trigger = [kind, ordinal]

    def event(self, kind):
        """Reports an event at which this thread may cut the power."""
        with self.lock:
            if self._trigger is None or self._trigger[0] != kind or self.machine.is_dead:
                return
            self._trigger[1] -= 1
            if self._trigger[1] > 0:
                return
            self._cut(kind)

    def cut_now(self):
        """Cuts the power unless an event has done so."""
        with self.lock:
            if not self.machine.is_dead:
                self._cut("a random time")

    def _cut(self, kind):
        self._trigger = None
        self.machine.cut()
        self.figures[f"cut at {kind}"] += 1
        self.last_cut = kind

    last_cut = None

    def wonder(self, upload, text):
        """Records an unexpected event that breaks no promise."""
        upload.note(f"unexpected: {text}")
        with self.lock:
            self.wonders.append(
                f"boot {self.boot}: {upload.label} {upload.family} {upload.method} {upload.route}: {text} "
                f"{upload.history[-8:]}"
            )

    def fail(self, upload, kind, text):
        """Records a broken promise, with all data that may explain it."""
        with self.lock:
            number = len(self.faults)
            self.faults.append((kind, upload.label if upload else "-", text))
        place = f"{self.work}/broken/{self.name}-{number}"
        os.makedirs(place, exist_ok=True)
        lines = [kind, text]
        if upload:
            lines += [upload.describe(), *upload.history]
            lines.append(f"application: {self.application.requests_for(upload.path)}")
            if upload.id and not self.machine.is_dead:
                try:
                    lines.append(self.machine.ask(f"show={upload.id}"))
                except Closed as error:
                    lines.append(str(error))
        with open(f"{place}/what", "w") as file:
            file.write("\n".join(lines) + "\n")
        for boot in (self.boot - 1, self.boot):
            for name in ("console", "gateway"):
                if os.path.exists(f"{self.work}/logs/{name}-{boot}"):
                    shutil.copy(f"{self.work}/logs/{name}-{boot}", place)
        print(f"BROKEN {kind}: {text}  ({place})", flush=True)

    def new(self):
        chance = self.chance
        with self.lock:
            self._numbers += 1
            label = f"u{self.name}-{self._numbers}"
            route = chance.choice(ROUTES + (ACCEPTING_ROUTES if self._accepts else []))
            method, family = chance.choice(["POST", "PUT"]), chance.choice(FAMILIES)
            size = self._size()
            if route == "later" and sum(one.route == "later" for one in self.live) >= MOST_LATER:
                route = "acc"
            if route == "later":
                # Refused with 503 until the end, which is retried only if that is safe. Clients of versions 5 and 6
                # receive no offset meanwhile.
                method, family = "PUT", chance.choice(["7", "8", "9", "10"])
            if family in ("tus", "join"):
                method = "POST"
            if family == "join":
                upload = self._joined(label, "dir" if route in ACCEPTING_ROUTES else route, size)
            else:
                upload = Upload(label, route, method, family, size)
            upload.is_busy = True
            upload.transport = chance.choice(TRANSPORTS)
            for part in upload.parts:
                part.transport = upload.transport
            self.live += [upload, *upload.parts]
            self.by_path[upload.path] = upload
            self.figures["uploads"] += 1
            self.figures[f"uploads {family}"] += 1
            self.figures[f"uploads by {upload.transport}"] += 1
        return upload

    def _size(self):
        chance = self.chance
        if self.has_large and chance.random() < 0.7:
            return chance.randint(512 << 10, 5 << 20)
        return chance.choice(
            [
                chance.randint(1, 1000),
                chance.randint(1000, 131072),
                chance.randint(1 << 20, 5 << 20),
            ]
            + [chance.randint(131072, 1 << 20)] * 3
        )

    def _joined(self, label, route, size):
        parts = []
        for number in range(2):
            part = Upload(f"{label}-{number}", route, "POST", "tus", self.chance.randint(1, size))
            part.is_part = part.is_busy = True
            parts.append(part)
        upload = Upload(label, route, "POST", "join", 0, b"".join(part.content for part in parts))
        upload.parts = parts
        return upload

    def take(self, chance, is_fresh):
        """An upload for a worker: a waiting one, or a new one; None if there is none."""
        with self.lock:
            waiting = [upload for upload in self.live if not upload.is_busy and not upload.is_over]
            if waiting and (not is_fresh or chance.random() < 0.5 or len(waiting) > MOST_WAITING):
                upload = chance.choice(waiting)
                upload.is_busy = True
                return upload
        return self.new() if is_fresh else None

    def take_waiting(self, chance):
        """An upload for the operator that waits for the upstream or is incomplete; or None."""
        with self.lock:
            found = [
                upload
                for upload in self.live
                if not upload.is_busy
                and upload.url
                and not upload.cancelled
                and not upload.is_part
                and (
                    upload.route == "later"
                    and upload.is_accepted
                    or upload.family != "join"
                    and upload.told is not None
                    and not upload.is_over
                    and chance.random() < 0.1
                )
            ]
            if not found:
                return None
            upload = chance.choice(found)
            upload.is_busy = True
            return upload

    def forget_finished(self):
        """Drops half of the uploads that are finished, or accepted and delivered, from the checks after a power
        failure.
        """
        with self.lock:
            kept = []
            for upload in self.live:
                is_finished = upload.answer or (upload.is_accepted and self.has_arrived(upload))
                if is_finished and self.chance.random() < 0.5:
                    upload.is_retired = True
                    continue
                if upload.url is None and upload.family != "join":
                    upload.is_retired = True
                is_removed = upload.is_retired and upload.cancelled
                if not upload.is_retired or (upload.is_accepted and not is_removed):
                    kept.append(upload)
            self.live = kept

    def has_arrived(self, upload):
        """Whether the upload has reached its upstream."""
        requests = self.application.requests_for(upload.path)
        return upload.is_dropped or any(one.is_whole and one.status == 201 for one in requests)
