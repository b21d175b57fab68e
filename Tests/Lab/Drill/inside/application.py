#!/usr/bin/env python3
"""The application behind the gateway in the drill.

It stores the content of requests in STORE under the last part of the path, and writes one JSON line for each
request to LOG before it responds: method, target, bytes, SHA-256, and whether the content was complete. Every
request is in the log, so that repeated deliveries show there.
"""

import json
import os
import sys
import threading

# Where the drill copies `lab`.
sys.path.append("/usr/local/lib")

from lab import application

STORE, LOG, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Application(application.Application):
    def __init__(self):
        self._log_lock = threading.Lock()
        os.makedirs(STORE, exist_ok=True)
        super().__init__(port=PORT)

    def take(self, request, part, fields):
        with open(self._part(request), "ab") as file:
            file.write(part)

    def received(self, request):
        line = {
            "method": request.method,
            "target": request.target,
            "bytes": request.size,
            "sha256": request.digest,
            "whole": request.is_whole,
        }
        with self._log_lock, open(LOG, "a") as log:
            log.write(json.dumps(line) + "\n")
        if not request.is_whole and os.path.exists(self._part(request)):
            os.unlink(self._part(request))

    def respond(self, request):
        if request.method in ("GET", "HEAD"):
            return 200, {}, "the application is up\n"
        # Empty content has no parts.
        open(self._part(request), "ab").close()
        os.rename(self._part(request), f"{STORE}/{name(request)}")
        return 201, {}, f"stored {request.size} bytes, sha256 {request.digest}\n"

    @staticmethod
    def _part(request):
        return f"{STORE}/.{name(request)}.{id(request)}"


def name(request):
    return os.path.basename(request.target.split("?")[0]) or "index"


Application()
threading.Event().wait()
