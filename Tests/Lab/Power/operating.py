"""An operator's commands: `requeue`, `hold`, `release` and `purge`. A command is complete once it has returned."""

import random
import time

from lab.http1 import Closed


class Operator:
    def __init__(self, ledger, seed):
        self._ledger = ledger
        self._chance = random.Random(f"operator {seed}")

    def work(self, until):
        """Runs commands until the power fails."""
        ledger = self._ledger
        while not ledger.is_dead and time.monotonic() < until:
            if ledger.held:
                self._requeue(ledger.held.pop())
            elif upload := ledger.take_waiting(self._chance):
                try:
                    self._change(upload)
                finally:
                    upload.is_busy = False
            # Leaves most of the guest's processor time to the uploads.
            time.sleep(self._chance.uniform(0.1, 1))

    def release_all(self):
        """Releases every upload that the operator has held."""
        for upload in list(self._ledger.live):
            if upload.hold == "held" and not upload.cancelled:
                self._release(upload)

    def _change(self, upload):
        draw = self._chance.random()
        if not upload.is_accepted:
            self._purge(upload)
        elif upload.hold == "held":
            self._purge(upload) if draw < 0.25 else self._release(upload)
        elif draw < 0.6:
            self._hold(upload)
        else:
            self._purge(upload) if draw < 0.75 else self._requeue(upload)

    def _ask(self, word, upload):
        """Whether the command succeeded, and its output; None if its effect is unknown."""
        upload.note(f"{word} ...")
        try:
            said = self._ledger.machine.ask(f"{word}={upload.id}", limit=20)
        except Closed:
            return None, ""
        upload.note(f"{word}: {said.strip()}")
        if not said.rstrip().endswith(tuple(f"status {number}" for number in range(256))):
            return None, said
        return said.rstrip().endswith("status 0"), said

    def _requeue(self, upload):
        ledger = self._ledger
        is_done, _ = self._ask("requeue", upload)
        if is_done is None:
            # It may have been performed.
            upload.requeues += 0.5
        elif is_done:
            upload.requeues += 1
            upload.is_unknown, upload.is_retired, upload.is_accepted = False, False, True
            with ledger.lock:
                if upload not in ledger.live:
                    ledger.live.append(upload)
            self._tell("requeued")

    def _hold(self, upload):
        is_done, _ = self._ask("hold", upload)
        if is_done:
            upload.hold, upload.held_at = "held", time.monotonic()
            self._tell("held")
        elif is_done is None:
            upload.hold = "unknown"

    def _release(self, upload):
        # From now on it may be delivered.
        upload.hold = "unknown"
        is_done, _ = self._ask("release", upload)
        if is_done:
            upload.hold = "released"
            self._tell("released")
        elif is_done is False:
            upload.hold = "held"

    def _purge(self, upload):
        upload.cancelled = "asked"
        is_done, said = self._ask("purge", upload)
        if is_done and "emoved 1 upload" in said:
            upload.cancelled, upload.cancelled_at = "told", time.monotonic()
            self._tell("purged")
        elif is_done is not None:
            # Another process has it locked.
            upload.cancelled = ""

    def _tell(self, what):
        self._ledger.count(what)
        self._ledger.event(what)
