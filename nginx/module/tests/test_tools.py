"""Third-party clients: curl on all four protocols, and nghttp."""

import os
import re
import shutil
import subprocess
import time

import case

CURL = {"h1": "--http1.1", "h1s": "--http1.1", "h2c": "--http2-prior-knowledge", "h2": "--http2"}


class Tools(case.NginxTestCase):
    server = "interim_responses 104;"
    SIZE = 400000

    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.nginx.prefix, "content")
        with open(self.file, "wb") as file:
            file.write(b"x" * self.SIZE)

    def url(self, protocol, path="/"):
        scheme = "https" if protocol in ("h1s", "h2") else "http"
        return "%s://127.0.0.1:%d%s" % (scheme, self.nginx.ports[protocol], path)

    def timed(self, *command):
        """Run a command; return the lines of its output, each with the time of its arrival."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        lines, rest = [], b""
        with process:
            while data := os.read(process.stdout.fileno(), 65536):
                *whole, rest = (rest + data).split(b"\n")
                lines += [(time.monotonic(), line.decode(errors="replace").rstrip()) for line in whole]
        self.assertEqual(process.returncode, 0, lines)
        return lines

    def when(self, lines, pattern):
        for number, (moment, line) in enumerate(lines):
            if re.search(pattern, line):
                return number, moment
        self.fail("no %r in\n%s" % (pattern, "\n".join(line for _, line in lines)))

    def curl(self, protocol, *arguments):
        if not shutil.which("curl"):
            self.skipTest("curl is missing")
        return self.timed("curl", "-svk", "--no-buffer", CURL[protocol], "-H", "Expect:", *arguments)

    @case.over(*case.PROTOCOLS)
    def test_curl_shows_104_during_the_upload(self, protocol):
        def script(exchange):
            exchange.interim(104, "Location: /resource/1")
            self.early = exchange.received
            self.length = len(exchange.content())
            exchange.final(201, content=b"made\n")

        self.upstream.serve(script)
        lines = self.curl(protocol, "--limit-rate", "250k", "--data-binary", "@" + self.file,
                          self.url(protocol))
        interim, first = self.when(lines, r"^< HTTP/\S+ 104")
        self.when(lines, r"^< [Ll]ocation: /resource/1")
        sent, _ = self.when(lines, "We are completely uploaded and fine")
        final, last = self.when(lines, r"^< HTTP/\S+ 201")
        self.assertLess(interim, sent)
        self.assertLess(sent, final)
        self.assertGreater(last - first, 0.7)
        self.assertEqual((self.early, self.length), (0, self.SIZE))

    @case.over("h1", "h1s", "h2")   # with any nginx, curl 7.88 fails (16) at a second h2c request
    def test_curl_reuses_the_connection(self, protocol):
        def script(exchange):
            exchange.interim(104)
            exchange.content()
            exchange.interim(104)
            exchange.final(201)

        self.upstream.serve(script)
        urls = [self.url(protocol, "/%d" % number) for number in range(3)]
        lines = self.curl(protocol, "--data-binary", "@" + self.file, *urls)
        text = "\n".join(line for _, line in lines)
        self.assertEqual(len(re.findall(r"^< HTTP/\S+ 104", text, re.M)), 6)
        self.assertEqual(len(re.findall(r"^< HTTP/\S+ 201", text, re.M)), 3)
        self.assertEqual(len(re.findall(r"Re-using existing connection", text)), 2)

    @case.over(*case.HTTP1)
    def test_curl_with_expect(self, protocol):
        self.upstream.serve(lambda exchange: (exchange.interim(104), exchange.content(),
                                              exchange.final(201)))
        lines = self.timed("curl", "-svk", CURL[protocol], "-H", "Expect: 100-continue",
                           "--expect100-timeout", "30", "--data-binary", "@" + self.file,
                           self.url(protocol))
        self.assertLess(self.when(lines, r"^< HTTP/\S+ 100")[0], self.when(lines, r"^< HTTP/\S+ 104")[0])
        self.when(lines, r"^< HTTP/\S+ 201")

    @case.over(*case.HTTP2)
    def test_nghttp(self, protocol):
        if not shutil.which("nghttp"):
            self.skipTest("nghttp is missing; Debian package nghttp2-client")
        self.upstream.serve(lambda exchange: (exchange.interim(104, "Upload-Offset: 0"),
                                              exchange.content(), exchange.final(201)))
        lines = self.timed("nghttp", "-v", "--no-verify-peer", "-d", self.file,
                           self.url(protocol))
        interim, _ = self.when(lines, r"recv \(stream_id=\d+\) :status: 104")
        self.when(lines, r"recv \(stream_id=\d+\) upload-offset: 0")
        final, _ = self.when(lines, r"recv \(stream_id=\d+\) :status: 201")
        self.assertLess(interim, final)
