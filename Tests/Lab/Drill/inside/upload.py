#!/usr/bin/env python3
"""A client of resumable uploads on a plain socket, which prints the exchange.

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
import select
import socket
import sys
import time
import urllib.parse

BASE = "http://uploads.example/files/"
HOME = "/root/uploads"
VERSION = "10"
USER = b"alice:secret"


class Cut(Exception):
    """The connection ended before a final response."""


def say(text):
    print(text, flush=True)


def content(name, size):
    return random.Random(name).randbytes(size)


class Exchange:
    """One request on its own connection, and the responses to it."""

    def __init__(self, url, method, fields):
        parts = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port or 80), timeout=60)
        self.buffer = b""
        self.method = method
        # No response has been received: the 104 of a creation may still arrive.
        self.is_new = method != "PATCH"
        lines = [f"{method} {parts.path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
        lines += [f"Upload-Draft-Interop-Version: {VERSION}"]
        lines += ["Authorization: Basic " + base64.b64encode(USER).decode()]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        say(f"> {method} {parts.path}" + "".join(f"  {n}: {v}" for n, v in fields.items()))
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())

    def send(self, data, pace, cut, on_interim):
        """Sends content and reads responses meanwhile; returns an early final response."""
        began, sent = time.monotonic(), 0
        while sent < len(data):
            while self.buffer or select.select([self.socket], [], [], 0)[0]:
                status, fields, body = self.read()
                if status >= 200:
                    return status, fields, body
                on_interim(status, fields)
            if cut is not None and sent >= cut:
                if self.is_new and select.select([self.socket], [], [], 5)[0]:
                    on_interim(*self.read()[:2])
                self.socket.close()
                say(f"cut by the client after {sent} bytes")
                raise Cut("by the client")
            end = min(len(data), sent + 65536, cut if cut is not None else len(data))
            self.socket.sendall(data[sent:end])
            sent = end
            if pace:
                time.sleep(max(0, began + sent / (pace * 1e6) - time.monotonic()))
        return None

    def final(self, on_interim):
        while True:
            status, fields, body = self.read()
            if status >= 200:
                return status, fields, body
            on_interim(status, fields)

    def read(self):
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        self.is_new = False
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip()
        body = b""
        if status >= 200:
            if self.method != "HEAD" and status != 204:
                body = self.body(fields)
            self.socket.close()
        shown = {n: v for n, v in fields.items() if n.startswith("upload-") or n == "location"}
        say(f"< {lines[0].split(' ', 1)[1]}" + "".join(f"  {n}: {v}" for n, v in shown.items()))
        return status, fields, body.decode(errors="replace")

    def body(self, fields):
        if "content-length" in fields:
            while len(self.buffer) < int(fields["content-length"]):
                self.more()
            return self.buffer[: int(fields["content-length"])]
        try:
            while True:
                self.more()
        except Cut:
            return self.buffer

    def more(self):
        part = self.socket.recv(65536)
        if not part:
            raise Cut("by the server")
        self.buffer += part


class Upload:
    def __init__(self, options, state):
        self.options = options
        self.name, self.size = state["name"], state["size"]
        self.url = state.get("url")
        self.data = content(self.name, self.size)
        self.cuts = 0
        self.cut = options.cut

    def save(self):
        os.makedirs(HOME, exist_ok=True)
        with open(f"{HOME}/{self.name}.json", "w") as file:
            json.dump({"name": self.name, "size": self.size, "url": self.url}, file)

    def interim(self, status, fields):
        if status == 104 and "location" in fields:
            self.url = urllib.parse.urljoin(BASE, fields["location"])
            self.save()

    def create(self):
        fields = {"Upload-Complete": "?1", "Content-Length": self.size}
        exchange = Exchange(BASE + self.name, "PUT", fields)
        return self.transfer(exchange, 0)

    def resume(self):
        head = Exchange(self.url, "HEAD", {})
        status, fields, _ = head.final(self.interim)
        if status != 204 and status != 200:
            return status, fields, ""
        offset = int(fields["upload-offset"])
        fields = {
            "Upload-Offset": offset,
            "Upload-Complete": "?1",
            "Content-Length": self.size - offset,
            "Content-Type": "application/partial-upload",
        }
        return self.transfer(Exchange(self.url, "PATCH", fields), offset)

    def transfer(self, exchange, offset):
        cut, self.cut = self.cut, None
        answer = exchange.send(self.data[offset:], self.options.pace, cut, self.interim)
        return answer or exchange.final(self.interim)

    def once(self):
        """The response to one attempt; None if the connection failed."""
        try:
            return self.resume() if self.url else self.create()
        except (Cut, OSError) as error:
            self.cuts += 1
            if str(error) != "by the client":
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
                or answer[1].get("upload-complete") == "?0"
                or answer[0] in (409, 423, 503)
            )
            if not is_kept or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if answer is None:
            return 0 if asked_to_cut and not self.options.until_done else 1
        say(answer[2].strip()[:300])
        say(
            f"{self.name}: answered {answer[0]} after {self.cuts} cuts; "
            f"{self.size} bytes, sha256 {hashlib.sha256(self.data).hexdigest()}"
        )
        return 0 if answer[0] in range(200, 300) else 1


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
