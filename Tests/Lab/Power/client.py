"""The clients: versions 5 to 10 of the draft, tus 1.0, uploads concatenated from parts (tus), and ordinary uploads."""

import base64
import hashlib
import time

from lab.http1 import Closed
from transport import send
from upload import ACCEPTING

POSTPONED = (409, 424, 429, 502, 503, 504, 507)
PARTIAL, TUS = "application/partial-upload", "application/offset+octet-stream"


class Client:
    """A worker's steps with an upload, one at a time; every relevant event is reported to the ledger."""

    def __init__(self, ledger, chance):
        self.ledger, self.chance = ledger, chance

    def send(
        self,
        upload,
        method,
        target,
        fields,
        content=b"",
        base=0,
        completes=False,
        slowly=False,
        **more,
    ):
        ledger = self.ledger

        def on_interim(answer):
            if answer.status != 104:
                return
            if location := answer["location"]:
                upload.locate(location)
                ledger.event("104-location")
            if (offset := answer.offset) is not None:
                ledger.tell(upload, "progress", offset)

        def on_sent(count):
            upload.sent = max(upload.sent, base + count)
            if completes and count == len(content):
                upload.is_completing = True

        if completes and not content:
            upload.is_completing = True
        shown = {name: value for name, value in fields.items() if name.startswith("Upload")}
        upload.note(f"> {method} {target} {shown} {base}+{len(content)}{' completes' if completes else ''}")
        try:
            answer = send(
                ledger.machine,
                upload.transport,
                method,
                target,
                {**upload.marks(), **fields},
                content,
                on_interim=on_interim,
                on_sent=on_sent,
                **self._pace(content, slowly),
                **more,
            )
        except Closed as broken:
            upload.note(f"< broken: {broken}")
            raise
        upload.note(f"< {answer}")
        return answer

    def _pace(self, content, slowly):
        if not slowly or not content:
            return {}
        most = max(1, len(content) // 8)
        return {
            "pieces": lambda: self.chance.randint(1, 2 * most),
            "pause": lambda: self.chance.choice([0, 0.1, 0.3]),
        }

    def step(self, upload):
        if upload.family == "join" and upload.url is None:
            return self.join(upload)
        if upload.url is None:
            return self.create(upload)
        draw = self.chance.random()
        if draw < 0.15:
            return self.head(upload)
        cancels = draw < 0.15 + (0.5 if self.ledger.moment == "cancelled" else 0.05)
        if cancels and not upload.is_part:
            return self.cancel(upload)
        if draw > 0.93 and upload.told and not upload.is_completing:
            return self.conflict(upload)
        return self.append(upload)

    def create(self, upload):
        if upload.family == "plain":
            how = {"completes": True, "slowly": self._half()}
            return self.conclude(upload, self.send(upload, upload.method, upload.path, {}, upload.content, **how))
        answer = self._create_tus(upload) if upload.is_tus else self._create_draft(upload)
        if answer.status == 201 and not upload.is_completing:
            upload.locate(answer["location"] or "")
            self.ledger.tell(upload, "created", answer.offset)
        else:
            if upload.is_tus and answer.status == 201:
                upload.locate(answer["location"] or "")
            self.conclude(upload, answer)

    def _create_tus(self, upload):
        size = upload.size
        fields = {"Upload-Metadata": "filename " + base64.b64encode(upload.label.encode()).decode()}
        if upload.is_part:
            fields["Upload-Concat"] = "partial"
        is_known = upload.is_part or self.chance.random() < 0.8
        fields |= {"Upload-Length": size} if is_known else {"Upload-Defer-Length": 1}
        count = self.chance.choice([0, 0, size // 2, size]) if is_known else 0
        if count:
            fields["Content-Type"] = TUS
        how = {"completes": count == size and not upload.is_part, "slowly": self._half()}
        return self.send(upload, "POST", upload.path, fields, upload.content[:count], **how)

    def _create_draft(self, upload):
        size = upload.size
        kind = self.chance.choice(["empty", "part", "part", "whole", "whole", "cut"])
        completes = kind in ("whole", "cut")
        fields = {"Upload-Complete": "?1" if completes else "?0"}
        if self._half():
            fields["Upload-Length"] = size
        count = {"empty": 0, "part": self.chance.randint(0, size)}.get(kind, size)
        how = {"stop_after": self.chance.randint(0, size)} if kind == "cut" else {}
        how |= {"completes": completes, "slowly": self._half() or kind == "cut", "midway": self._asks(upload)}
        return self.send(upload, upload.method, upload.path, fields, upload.content[:count], **how)

    def _half(self):
        return self.chance.random() < 0.5

    def _asks(self, upload):
        """Sometimes retrieves the offset on a second connection during an append: the newest request wins."""

        def ask():
            if upload.url and not self.ledger.is_dead:
                try:
                    self.head(upload)
                except Closed:
                    pass

        return ask if self.chance.random() < 0.3 else None

    def head(self, upload):
        answer = self.send(upload, "HEAD", upload.url, {})
        if 200 <= answer.status < 300:
            self.ledger.tell(upload, "head", answer.offset)
        return answer

    def conflict(self, upload):
        """An append at an offset that is too low: 409 and, in the draft's versions, the correct offset."""
        fields = {"Upload-Offset": self.chance.randrange(upload.told)}
        draft = {"Content-Type": PARTIAL, "Upload-Complete": "?0"}
        fields |= {"Content-Type": TUS} if upload.is_tus else draft
        answer = self.send(upload, "PATCH", upload.url, fields)
        if answer.status == 409 and (offset := answer.offset) is not None:
            self.ledger.tell(upload, "conflict", offset)

    def cancel(self, upload):
        upload.cancelled = "asked"
        answer = self.send(upload, "DELETE", upload.url, {})
        if answer.status == 204:
            upload.cancelled, upload.cancelled_at = "told", time.monotonic()
            self.ledger.count("cancelled promised" if upload.told is not None else "cancelled unpromised")
            self.ledger.event("cancelled")
        elif answer.status in (404, 409):
            upload.cancelled = ""

    def append(self, upload):
        answer = self.head(upload)
        if not 200 <= answer.status < 300:
            upload.is_retired = answer.status in (404, 410)
            return
        offset = answer.offset
        if offset is None or upload.is_accepted:
            return
        rest = upload.size - offset
        is_last = self._half() or rest == 0
        count = rest if is_last else self.chance.randint(1, rest)
        content = upload.content[offset : offset + count]
        completes = offset + count == upload.size and not upload.is_part
        if upload.is_tus:
            if upload.is_part and not content:
                return
            fields = self._tus_fields(upload, content, answer)
        else:
            completes = is_last
            fields = self._draft_fields(content, is_last)
        fields["Upload-Offset"] = offset
        stops = content and self.chance.random() < 0.2
        how = {"stop_after": self.chance.randint(0, count)} if stops else {}
        how |= {"slowly": bool(stops) or self._half(), "midway": self._asks(upload)}
        answer = self.send(upload, "PATCH", upload.url, fields, content, offset, completes, **how)
        if not completes and answer.status in (201, 204):
            self.ledger.tell(upload, "appended", answer.offset)
        else:
            self.conclude(upload, answer)

    def _tus_fields(self, upload, content, head):
        fields = {"Content-Type": TUS}
        # A power failure may have lost the request with the length.
        if head["upload-defer-length"]:
            fields["Upload-Length"] = upload.size
        if content and self.chance.random() < 0.2:
            digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
            fields["Upload-Checksum"] = f"sha256 {digest}"
        return fields

    def _draft_fields(self, content, is_last):
        fields = {"Content-Type": PARTIAL, "Upload-Complete": "?1" if is_last else "?0"}
        if content and self.chance.random() < 0.15:
            digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
            fields["Content-Digest"] = f"sha-256=:{digest}:"
        return fields

    def join(self, upload):
        """tus: the parts first, each a separate upload; then their concatenation."""
        for part in upload.parts:
            if part.told != part.size or part.url is None:
                return self.create(part) if part.url is None else self.append(part)
        upload.sent = upload.size
        upload.is_completing = True
        for part in upload.parts:
            part.is_completing = True
        fields = {"Upload-Concat": "final;" + " ".join(part.url for part in upload.parts)}
        answer = self.send(upload, "POST", upload.path, fields)
        if answer.status == 201:
            upload.locate(answer["location"] or "")
            self.ledger.event("joined")
        self.conclude(upload, answer)

    def conclude(self, upload, answer):
        ledger, said = self.ledger, answer["upload-complete"]
        offset = answer.offset
        # Without a resource (an ordinary upload, or one below `min-size`) only the upstream responds.
        is_final = said == "?1" or upload.url is None or upload.is_tus
        is_good = 200 <= answer.status < 300 and is_final and upload.is_completing
        if is_good and upload.route in ACCEPTING:
            self._accept(upload, answer)
        elif is_good and (not upload.is_tus or offset in (None, upload.size)):
            if upload.answer is None:
                upload.answer = answer
                ledger.count(f"answered {upload.route}")
                ledger.event(f"answered-{upload.route}")
        elif answer.status in (502, 504, 410) and said == "?1":
            upload.is_unknown = True
            ledger.count("outcome reported as unknown")
        elif answer.status in POSTPONED:
            # The upload is kept, repeat the request; or (409) another request was faster.
            if said == "?0" and offset is not None:
                ledger.tell(upload, "postponed", offset)
            elif upload.url is None and upload.family != "join":
                upload.is_retired = True
        elif answer.status in (201, 204) and offset is not None:
            ledger.tell(upload, "appended", offset)
        elif answer.status in (404, 410) and upload.told is None:
            upload.is_retired = True
        else:
            ledger.wonder(upload, f"answer {answer}")
            # Otherwise it would be requested forever.
            upload.is_retired = upload.family == "join"

    def _accept(self, upload, answer):
        if upload.url is None and (link := answer["link"]):
            upload.locate(link.split("<")[1].split(">")[0].removesuffix("/status"))
        upload.is_accepted = True
        self.ledger.count("accepted")
        self.ledger.event("accepted")
