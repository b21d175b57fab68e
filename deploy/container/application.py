"""An application that accepts ordinary uploads and responds with their length and digest."""

import hashlib
import http.server
import json


class Application(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        left = int(self.headers["Content-Length"])
        length, digest = left, hashlib.sha256()
        while left > 0:
            part = self.rfile.read(min(left, 1 << 20))
            if not part:
                self.close_connection = True
                return
            digest.update(part)
            left -= len(part)
        result = json.dumps({"path": self.path, "length": length, "sha256": digest.hexdigest()})
        content = (result + "\n").encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_PUT


http.server.ThreadingHTTPServer(("", 3000), Application).serve_forever()
