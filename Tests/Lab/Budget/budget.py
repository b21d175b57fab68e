#!/usr/bin/env python3
"""Counts the instructions that the gateway takes in user space for a request, and compares them with a budget.

usage: budget.py [--spoolgate PATH] [--profile DIRECTORY] [SCENARIO ...]

The gateway runs in valgrind's callgrind. Requests go directly to its FastCGI socket, and a minimal upstream
receives the deliveries. Instructions do not depend on the machine's load. Processor features, by which the C
library, OpenSSL and zlib choose their routines, are fixed. Copying is listed separately (all of it: callgrind does
not distinguish content from other data).

Exit status: 0 all within the budget, 1 one is above it, 69 valgrind is missing, 70 a failure.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lab import fastcgi, gateway
from lab.processes import NeverHappened, must

# BUDGET: the maximum of user instructions for one request, before the allowance; lower it if a change saves some.
# AIM: the goal. A plain upload is counted without copies, since libcurl makes one.
BUDGET = {"head": 104_000, "plain": 213_500, "told": 369_000}
AIM = {"head": 40_000, "plain": 110_000, "told": 200_000}
ALLOWANCE = 1.03
WARM, COUNTED = 40, 200
CONTENT = bytes(range(256)) * 256
COPIES = re.compile(r"memcpy|memmove|mempcpy")

# Every machine uses the routines for x86-64 with SSE2 only.
FEATURES = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX_Fast_Unaligned_Load,-AVX2_Usable,-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM,"
                      "-EVEX:glibc.cpu.x86_rep_movsb_threshold=1073741824",
    "OPENSSL_ia32cap": "0x0",
    # Each run uses the same hashes, and therefore the same probes in hash tables.
    "SWIFT_DETERMINISTIC_HASHING": "1",
}

SETTINGS = """spool:
  directory: "{work}/spool"
  reserve: 1MiB
log-level: warning
routes:
  default:
    upstream: "http://127.0.0.1:{port}"
    limits: {{min-size: 128KiB}}
  told:
    upstream: "http://127.0.0.1:{port}"
    limits: {{min-size: 0}}
"""


class Upstream(threading.Thread):
    """Receives requests with content on kept-alive connections and responds with 201."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.taken = 0

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            while line := stream.readline():
                length = 0
                while (line := stream.readline()).strip():
                    name, value = line.split(b":", 1)
                    if name.lower() == b"content-length":
                        length = int(value)
                if len(stream.read(length)) != length:
                    return
                self.taken += 1
                connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")


def request(method, target, fields=(), content=b"", route="default"):
    """The records of one request, as nginx with the shipped parameters sends them."""
    parameters = {
        "SPOOLGATE_ROUTE": route, "SPOOLGATE_ORIGIN": "http://upload.example", "SPOOLGATE_INTERIM": "104",
        "SPOOLGATE_BODY_FILE": "", "QUERY_STRING": "", "REQUEST_METHOD": method, "REQUEST_URI": target,
        "REQUEST_SCHEME": "http", "CONTENT_TYPE": "", "CONTENT_LENGTH": str(len(content)) if content else "",
        "SERVER_PROTOCOL": "HTTP/1.1", "SERVER_SOFTWARE": "nginx/1.22.1", "REMOTE_ADDR": "192.0.2.1",
        "HTTP_HOST": "upload.example", "HTTP_USER_AGENT": "budget/1", "HTTP_ACCEPT": "*/*",
    }
    parameters.update({"HTTP_" + name.upper().replace("-", "_"): value for name, value in fields})
    return fastcgi.request(parameters, content)


def ask(path, records, expected):
    """Sends one request and returns the output; the final response must have the status `expected`."""
    output = fastcgi.ask(path, records)
    if fastcgi.statuses(output)[-1:] != [expected]:
        raise RuntimeError(f"expected {expected}, received {output[:300]!r}")
    return output


class Gateway(gateway.Gateway):
    """The daemon in callgrind."""

    def __init__(self, program, work, upstream, options=()):
        """`options` are further ones of callgrind."""
        self.work = work
        # Valgrind cannot read Swift's debugging information; function names remain.
        bare = os.path.join(work, "bare")
        subprocess.run(["strip", "--strip-debug", "-o", bare, program], check=True)
        # One processor for all threads, as in valgrind, so that scheduling matters less.
        valgrind = ["valgrind", "--tool=callgrind", "--fair-sched=yes", f"--callgrind-out-file={work}/out",
                    "--dump-line=no", *options]
        super().__init__(work, SETTINGS.format(work=work, port=upstream.port), bare, valgrind)

    def start(self):
        super().start(60, environment=FEATURES)

    def control(self, *arguments):
        subprocess.run(["callgrind_control", *arguments, str(self.identity)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def count(self, run):
        """The profiles of the gateway's work during `run`: one, or with `--separate-threads=yes` one of each thread."""
        self.control("-z")
        run()
        name = "counted"
        before = set(os.listdir(self.work))
        self.control("-d", name)

        def fresh():
            files = [f"{self.work}/{file}" for file in set(os.listdir(self.work)) - before if file.startswith("out")]
            return files if files and all(map(self.is_whole, files)) else None
        must(60, "callgrind writes a profile", fresh)
        return fresh()

    @staticmethod
    def is_whole(path):
        with open(path) as file:
            return re.search(r"^totals: \d+", file.read(), re.M) is not None


def instructions(profile, count):
    """The instructions of one request: all of them, and those for copying."""
    with open(profile) as file:
        text = file.read()
    total = int(re.search(r"^totals: (\d+)", text, re.M).group(1))
    names, copied, name, called = {}, 0, "", False
    for line in text.splitlines():
        if match := re.match(r"(c?)fn=\((\d+)\)(?: (.*))?", line):
            if match.group(3):
                names[match.group(2)] = match.group(3)
            if not match.group(1):
                name = names.get(match.group(2), "")
        elif line.startswith("calls="):
            # The next line has the cost of the called function, which is counted at its own entry.
            called = True
        elif match := re.match(r"[+\-*\d]\S* (\d+)$", line):
            if not called and COPIES.search(name):
                copied += int(match.group(1))
            called = False
    return total / count, copied / count


def scenarios(path):
    creation = [("Upload-Draft-Interop-Version", "8"), ("Upload-Complete", "?0")]
    created = ask(path, request("PUT", "/files/head", creation, b"0123456789", "told"), 201)
    target = re.search(rb"Location: http://upload.example(\S+)", created).group(1).decode()
    whole = [("Upload-Draft-Interop-Version", "8"), ("Upload-Complete", "?1")]
    return {
        "head": (request("HEAD", target, [creation[0]], route="told"), 204),
        "plain": (request("PUT", "/files/plain", (), CONTENT), 201),
        "told": (request("PUT", "/files/told", whole, CONTENT, "told"), 201),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--spoolgate", default=".build/release/spoolgate")
    parser.add_argument("--profile", help="keep the profiles there, for callgrind_annotate")
    parser.add_argument("scenario", nargs="*", default=[])
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        print("The budget was not measured: valgrind is not installed.", file=sys.stderr)
        return 69
    work, upstream, daemon, above = tempfile.mkdtemp(prefix="budget."), Upstream(), None, False
    upstream.start()
    try:
        daemon = Gateway(options.spoolgate, work, upstream)
        daemon.start()
        print(f"{'':8}{'instructions':>14}{'for copying':>18}{'budget':>10}{'aim':>10}")
        for name, (records, expected) in scenarios(daemon.socket).items():
            if options.scenario and name not in options.scenario:
                continue
            for _ in range(WARM):
                ask(daemon.socket, records, expected)
            [profile] = daemon.count(lambda: [ask(daemon.socket, records, expected) for _ in range(COUNTED)])
            total, copied = instructions(profile, COUNTED)
            held = total - copied if name == "plain" else total
            is_above = held > BUDGET[name] * ALLOWANCE
            above = above or is_above
            print(f"{name:8}{total:14,.0f}{copied:18,.0f}{BUDGET[name]:10,}{AIM[name]:10,}"
                  f"{'  ABOVE' if is_above else ''}", flush=True)
            if options.profile:
                os.makedirs(options.profile, exist_ok=True)
                shutil.copy(profile, os.path.join(options.profile, name))
        return 1 if above else 0
    except (RuntimeError, OSError, NeverHappened, subprocess.CalledProcessError) as error:
        print(f"The budget could not be measured: {error}", file=sys.stderr)
        if daemon:
            print(daemon.log()[-3000:], file=sys.stderr)
        return 70
    finally:
        if daemon and daemon.process:
            daemon.process.end(60)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
