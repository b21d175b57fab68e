#!/usr/bin/env python3
"""The application behind the gateway in the drill: any HTTP server, without knowledge of resumable uploads.

It stores the content of requests in STORE under the last part of the path, and writes one JSON line for each
request to LOG before it responds: method, target, bytes, SHA-256, and whether the content was complete. Every
request is in the log, so that repeated deliveries show there.
"""

import hashlib
import http.server
import json
import os
import sys
import threading

STORE, LOG, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
log_lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def receive(self):
        length = int(self.headers.get("Content-Length") or 0)
        name = os.path.basename(self.path.split("?")[0]) or "index"
        digest, left = hashlib.sha256(), length
        part = os.path.join(STORE, f".{name}.{threading.get_ident()}")
        with open(part, "wb") as file:
            while left > 0:
                content = self.rfile.read(min(left, 1 << 20))
                if not content:
                    break
                digest.update(content)
                file.write(content)
                left -= len(content)
        is_whole = left == 0 and "Transfer-Encoding" not in self.headers
        self.note(length - left, digest.hexdigest(), is_whole)
        if not is_whole:
            os.unlink(part)
            self.close_connection = True
            return
        os.rename(part, os.path.join(STORE, name))
        self.answer(201, f"stored {length} bytes, sha256 {digest.hexdigest()}\n")

    do_PUT = do_POST = receive

    def do_GET(self):
        self.note(0, "", True)
        self.answer(200, "the application is up\n")

    def note(self, size, digest, is_whole):
        line = {
            "method": self.command,
            "target": self.path,
            "bytes": size,
            "sha256": digest,
            "whole": is_whole,
        }
        with log_lock, open(LOG, "a") as log:
            log.write(json.dumps(line) + "\n")

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


os.makedirs(STORE, exist_ok=True)
Server(("127.0.0.1", PORT), Handler).serve_forever()
