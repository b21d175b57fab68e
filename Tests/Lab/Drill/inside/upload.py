#!/usr/bin/env python3
"""A client of resumable uploads, which prints the exchange.

    upload.py send NAME BYTES [--cut BYTES] [--pace MBPS] [--until-done SECONDS]
    upload.py resume NAME     [--cut BYTES] [--pace MBPS] [--until-done SECONDS]

The content is determined by the name and the size. /root/uploads has the state for a later `resume`. With --cut the
client closes its own connection after that many bytes of content; with --until-done it retrieves the offset after
any interruption and continues. Exit status: 0 for a 2xx response or a requested cut, 1 otherwise.
"""

import argparse
import base64
import hashlib
import json
import os
import random
import sys
import time
import urllib.parse

# Where the drill copies `lab`.
sys.path.append("/usr/local/lib")

from lab.exchange import STEP, Exchange
from lab.http1 import Closed

BASE = "http://uploads.example/files/"
HOME = "/root/uploads"
FIELDS = {
    "Upload-Draft-Interop-Version": "10",
    "Authorization": "Basic " + base64.b64encode(b"alice:secret").decode(),
}
BY_US = "by the client"


def say(text):
    print(text, flush=True)


class Upload:
    def __init__(self, options, state):
        self.options = options
        self.name, self.size = state["name"], state["size"]
        self.url = state.get("url")
        self.data = random.Random(self.name).randbytes(self.size)
        self.cuts = 0
        self.cut = options.cut

    def save(self):
        os.makedirs(HOME, exist_ok=True)
        with open(f"{HOME}/{self.name}.json", "w") as file:
            json.dump({"name": self.name, "size": self.size, "url": self.url}, file)

    def begin(self, method, url, fields):
        parts = urllib.parse.urlsplit(url)
        say(f"> {method} {parts.path}" + "".join(f"  {name}: {value}" for name, value in fields.items()))
        fields = {**FIELDS, **fields}
        host = parts.netloc
        return Exchange(
            parts.port or 80, method, parts.path, fields, on_interim=self.hear, patience=60, authority=host
        )

    def hear(self, response):
        told = {name.lower(): value for name, value in response.fields}
        told = {n: value for n, value in told.items() if n.startswith("upload-") or n == "location"}
        say(
            f"< {response.status} {response.reason}"
            + "".join(f"  {name}: {value}" for name, value in told.items())
        )
        if response.status == 104 and response["Location"]:
            self.url = urllib.parse.urljoin(BASE, response["Location"])
            self.save()

    def end(self, exchange):
        response = exchange.final()
        self.hear(response)
        return response

    def create(self):
        fields = {"Upload-Complete": "?1", "Content-Length": self.size}
        return self.transfer(self.begin("PUT", BASE + self.name, fields), self.data)

    def resume(self):
        head = self.end(self.begin("HEAD", self.url, {}))
        if head.status not in (200, 204):
            return head
        fields = {
            "Upload-Offset": head.offset,
            "Upload-Complete": "?1",
            "Content-Length": self.size - head.offset,
            "Content-Type": "application/partial-upload",
        }
        return self.transfer(self.begin("PATCH", self.url, fields), self.data[head.offset :])

    def transfer(self, exchange, data):
        cut, self.cut = self.cut, None
        began, sent = time.monotonic(), 0
        while sent < len(data):
            if cut is not None and sent >= cut:
                # The 104 of a creation may still arrive.
                if self.url is None:
                    exchange.listen(5)
                exchange.close()
                say(f"cut by the client after {sent} bytes")
                raise Closed(BY_US)
            end = min(len(data), sent + STEP, cut if cut is not None else len(data))
            if not exchange.send(data[sent:end]):
                break
            sent = end
            if pace := self.options.pace:
                time.sleep(max(0, began + sent / (pace * 1e6) - time.monotonic()))
        return self.end(exchange)

    def once(self):
        """The response to one attempt; None if the connection failed."""
        try:
            return self.resume() if self.url else self.create()
        except Closed as error:
            self.cuts += 1
            if str(error) != BY_US:
                say(f"cut: {error}")
            return None

    def run(self):
        deadline = time.monotonic() + (self.options.until_done or 0)
        while True:
            asked_to_cut = self.cut is not None
            answer = self.once()
            self.save()
            is_kept = (
                answer is None
                or answer["Upload-Complete"] == "?0"
                or answer.status in (409, 423, 503)
            )
            if not is_kept or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if answer is None:
            return 0 if asked_to_cut and not self.options.until_done else 1
        say(answer.content.decode(errors="replace").strip()[:300])
        say(
            f"{self.name}: answered {answer.status} after {self.cuts} cuts; "
            f"{self.size} bytes, sha256 {hashlib.sha256(self.data).hexdigest()}"
        )
        return 0 if answer.status in range(200, 300) else 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["send", "resume"])
    parser.add_argument("name")
    parser.add_argument("size", type=int, nargs="?")
    parser.add_argument("--cut", type=int)
    parser.add_argument("--pace", type=float, help="megabytes a second")
    parser.add_argument("--until-done", type=float, help="seconds")
    options = parser.parse_args()
    if options.verb == "send":
        state = {"name": options.name, "size": options.size}
    else:
        with open(f"{HOME}/{options.name}.json") as file:
            state = json.load(file)
    sys.exit(Upload(options, state).run())


main()
