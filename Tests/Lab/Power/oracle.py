"""The checks after a power failure: the responses of the gateway, the directories and the application, compared
with what clients received."""

import json
import math
import time

from lab.exchange import ask
from lab.http1 import Closed
from upload import DIRECTORIES

# The gateway is starting, or a delivery is in progress: repeat the request.
LATER = (423, 424, 500, 502, 503, 504, 507)
# What the kernel's messages about a damaged file system contain.
COMPLAINTS = ("EXT4-fs error", "EXT4-fs warning", "Corruption", "corrupt", "BTRFS error", "BTRFS critical")


class Oracle:
    """Checks after each boot; it remembers the files it has found."""

    def __init__(self, ledger):
        self._ledger = ledger
        # File: the target that it was uploaded to.
        self._files = {}

    @property
    def _port(self):
        return self._ledger.machine.http

    def verify(self, upload):
        """Compares the result for a returning client with all it has received before."""
        upload.cuts += 1
        if upload.url is None:
            return
        answer = self._ask(upload)
        if self._ledger.is_dead:
            return
        if answer is None:
            return self._ledger.fail(upload, "no response", "HEAD received no response after the cut")
        self._ledger.count("uploads checked after a cut")
        is_good = 200 <= answer.status < 300
        if upload.cancelled and self._is_cancelled(upload, answer, is_good):
            return
        if answer.status == 404:
            self._check_gone(upload)
        elif answer.status == 410:
            self._check_held(upload)
        elif not is_good:
            self._ledger.wonder(upload, f"after a cut: {answer}")
        elif answer.offset is None:
            self._ledger.fail(upload, "no offset", f"{answer}")
        else:
            self._check_offset(upload, answer)

    def _ask(self, upload):
        answer = None
        until = time.monotonic() + 40
        while time.monotonic() < until and not self._ledger.is_dead:
            try:
                answer = ask(self._port, "HEAD", upload.url, upload.marks(), patience=15)
                upload.note(f"after cut: {answer}")
                if answer.status not in LATER:
                    break
            except Closed as broken:
                # A delivery is in progress.
                upload.note(f"after cut: {broken}")
            time.sleep(0.3)
        return answer

    def _is_cancelled(self, upload, answer, is_good):
        """Checks a cancellation; returns whether nothing else must be checked."""
        if upload.cancelled == "told" and is_good:
            self._ledger.fail(upload, "cancelled upload exists", f"{answer}")
        if not is_good or upload.cancelled == "told":
            upload.is_retired = True
        else:
            upload.cancelled = ""
        return upload.is_retired

    def _check_gone(self, upload):
        upload.is_retired = True
        # The offset of a final response is no promise if no offset was acknowledged before.
        if upload.told is not None:
            self._ledger.fail(upload, "upload lost", f"acknowledged {upload.told}, now 404")
        elif upload.is_accepted:
            self._ledger.fail(upload, "accepted lost", "received 202, now 404")
        else:
            self._ledger.count("gone, nothing was acknowledged")

    def _check_held(self, upload):
        ledger = self._ledger
        attempts = len(ledger.application.requests_for(upload.path))
        upload.is_retired = True
        if upload.is_repeatable or not upload.is_completing:
            return ledger.fail(upload, "held", f"410, the application received {attempts} attempts")
        shown = ledger.machine.ask(f"show={upload.id}").split("attempts ")
        known = int(shown[1].split()[0]) if len(shown) > 1 else 0
        if upload.requeues >= 1 and known == upload.attempts:
            ledger.fail(upload, "requeue lost", "requeue had succeeded")
        where = " (directory)" if upload.route in DIRECTORIES else ""
        has_begun = attempts or where
        ledger.count(f"held, outcome unknown{where}" if has_begun else "held, the application received nothing")
        upload.is_unknown, upload.attempts = True, known
        if upload.requeues < 1 and not upload.is_part and len(shown) > 1:
            ledger.held.append(upload)

    def _check_offset(self, upload, answer):
        ledger, offset = self._ledger, answer.offset
        is_complete = answer["upload-complete"] == "?1"
        if offset < (upload.told or 0):
            ledger.fail(upload, "offset lost", f"acknowledged {upload.told}, now {offset}")
        if offset > upload.sent:
            ledger.fail(upload, "offset invented", f"sent {upload.sent}, now {offset}")
        if (upload.answer or upload.is_accepted) and offset != upload.size:
            ledger.fail(upload, "whole upload cut", f"final response received, now {offset} of {upload.size}")
        if is_complete and not upload.is_completing:
            ledger.fail(upload, "completed without a request", f"{answer}")
        upload.is_delivered = is_complete
        if upload.told is not None:
            ledger.count("acknowledged offsets kept")
        ledger.count("bytes kept beyond the acknowledged offset", offset - (upload.told or 0))
        ledger.tell(upload, "head", offset)
        # A concatenated upload accepts no content, not even empty content.
        if upload.answer and upload.family != "join":
            self._ask_again(upload)

    def _ask_again(self, upload):
        """Requests the stored response, as a client that lost it does."""
        if upload.is_tus:
            fields = {"Content-Type": "application/offset+octet-stream"}
        else:
            fields = {"Upload-Complete": "?1", "Content-Type": "application/partial-upload"}
        fields["Upload-Offset"] = upload.size
        try:
            answer = ask(self._port, "PATCH", upload.url, {**upload.marks(), **fields})
        except Closed as broken:
            return self._ledger.wonder(upload, f"repeated request: {broken}")
        is_same = 200 <= answer.status < 300
        if not upload.is_tus:
            is_same = (answer.status, answer.content) == (upload.answer.status, upload.answer.content)
        if is_same:
            self._ledger.count("responses kept")
        else:
            self._ledger.fail(upload, "response lost", f"received {upload.answer}, now {answer}")

    def check_holds(self):
        """Compares the operator's results for waiting uploads with the output of `list`."""
        ledger = self._ledger
        known = [one for one in ledger.live if one.hold and not one.cancelled]
        if not known:
            return
        states = {}
        for line in ledger.machine.ask("json").splitlines():
            if line.startswith("{"):
                said = json.loads(line)
                states[said["upload"]] = said["state"]
        for upload in known:
            state = states.get(upload.id)
            upload.note(f"after cut: state {state}")
            if upload.hold == "held" and state != "held":
                ledger.fail(upload, "hold lost", f"it was held, now {state}")
            elif upload.hold == "released" and state == "held":
                ledger.fail(upload, "release lost", "it was released, now it is held")
            else:
                ledger.count("holds and releases kept")
            if upload.hold == "unknown":
                upload.hold, upload.held_at = ("held", time.monotonic()) if state == "held" else ("", 0)

    def check_directories(self):
        """Checks everything in the directories, and each file that was acknowledged to a client."""
        found = {}
        for place in sorted(set(DIRECTORIES.values())):
            entries = {entry["name"]: entry.get("size") for entry in json.loads(self.get(f"/{place}/"))}
            for name in entries:
                if not name.startswith(".") and name.endswith(".json"):
                    self._check_record(place, name, entries, found)
        for upload in list(self._ledger.by_path.values()):
            if upload.route == "accdir" and upload.is_delivered and upload.path not in found:
                text = "its state is delivered, but its file and record are missing"
                self._ledger.fail(upload, "delivered file lost", text)
            if upload.answer and upload.route in ("dir", "other") and not upload.is_taken:
                self._check_answered(upload, found)

    def _check_record(self, place, name, entries, found):
        ledger = self._ledger
        text = self.get(f"/{place}/{name}")
        try:
            record = json.loads(text)
        except (ValueError, TypeError):
            return ledger.fail(None, "record damaged", f"{place}/{name}: {text!r}")
        target, file = record["target"], record["file"]
        upload = ledger.by_path.get(target)
        if upload and upload.is_taken and file not in entries:
            # The application removes the content first; a power failure may bring the record back.
            return
        if entries.get(file) != record["length"]:
            text = f"{place}/{name}: {entries.get(file)} of {record['length']}"
            return ledger.fail(upload, "file incomplete", text)
        if upload is None:
            return ledger.fail(None, "unknown target", target)
        key = f"{place}/{file}"
        others = [other for other, one in self._files.items() if one == target and other != key]
        if target in found or others:
            ledger.fail(upload, "delivered twice", f"{found.get(target) or others} and {key}")
        found[target] = (place, file)
        if key not in self._files:
            content = self.get(f"/{place}/{file}")
            if content != upload.content:
                ledger.fail(upload, "file damaged", f"{key}: {len(content or b'')} of {upload.size} bytes")
            if not upload.is_completing:
                ledger.fail(upload, "delivered unfinished", key)
            ledger.count("files checked")
            upload.is_dropped = True
        self._files[key] = target

    def _check_answered(self, upload, found):
        if upload.path not in found:
            upload.is_taken = True
            text = "received 2xx, but its file and record are missing"
            return self._ledger.fail(upload, "delivered file lost", text)
        self._ledger.count("acknowledged files kept")
        # An application removes files as well.
        if self._ledger.chance.random() < 0.5:
            upload.is_taken = True
            place, name = found[upload.path]
            for file in (name, f"{name}.json"):
                self._remove(f"/{place}/{file}")

    def get(self, path):
        """A file of the guest; None if it is missing."""
        answer = ask(self._port, "GET", path, {})
        if answer.status not in (200, 404):
            raise RuntimeError(f"{path}: {answer}")
        return answer.content if answer.status == 200 else None

    def _remove(self, path):
        try:
            ask(self._port, "DELETE", path, {})
        except Closed:
            pass

    def check_application(self):
        ledger = self._ledger
        for path in ledger.application.targets():
            upload, requests = ledger.by_path.get(path), ledger.application.requests_for(path)
            if upload is None or upload.judged == len(requests):
                continue
            # An aborted request may still be waiting for content.
            if not all(one.is_whole or one.began < time.monotonic() - 5 for one in requests):
                continue
            new, upload.judged = requests[upload.judged :], len(requests)
            for one in new:
                if one.is_whole and (one.digest, one.size) != (upload.sha, upload.size):
                    ledger.fail(upload, "wrong content delivered", f"{one}")
                if upload.cancelled == "told" and one.began > upload.cancelled_at:
                    ledger.fail(upload, "delivered after it was cancelled", f"{one}")
                if upload.hold == "held" and one.began > upload.held_at:
                    ledger.fail(upload, "delivered while it was held", f"{one}")
                if one.fault:
                    ledger.fail(upload, "wrong request", f"{one}")
            if not upload.is_completing:
                ledger.fail(upload, "delivered unfinished", f"{requests}")
            if not upload.is_repeatable and len(requests) > 1 + math.ceil(upload.requeues):
                ledger.fail(upload, "POST delivered twice", f"{requests}")
            ledger.count("upstream requests", len(new))
            ledger.count("upstream requests cut", sum(not one.is_whole for one in new))

    def is_settled(self, upload):
        """Whether an accepted upload reached its upstream, or is held because its outcome is unknown."""
        if self._ledger.has_arrived(upload) or upload.is_unknown:
            return True
        if not upload.is_repeatable and upload.url:
            try:
                answer = ask(self._port, "HEAD", upload.url, upload.marks(), patience=15)
            except Closed:
                return False
            if answer.status == 410:
                upload.is_unknown = True
                self._ledger.count("accepted POST held, outcome unknown")
        return upload.is_unknown

    def check_console(self):
        """Checks the messages of the guest's kernel and file systems; returns whether a file system is damaged."""
        ledger, is_ruined = self._ledger, False
        for _, word, rest in ledger.machine.words():
            is_unclean = word == "fsck" and not rest.endswith(" 0")
            if is_unclean or word in ("mount-failed", "nginx-failed", "gateway-ended"):
                ledger.fail(None, word, f"{rest} {ledger.machine.last_words()}".strip())
            if word == "fsck":
                ledger.count("file systems checked")
            is_ruined = is_ruined or word == "mount-failed"
        with open(ledger.machine.console, errors="replace") as file:
            said = file.read()
        for bad in COMPLAINTS:
            if bad in said:
                ledger.fail(None, "kernel", bad)
        return is_ruined

    def check_corrupt(self):
        if names := self._ledger.machine.ask("corrupt").split():
            self._ledger.fail(None, "corrupt", str(names))
