#!/usr/bin/env python3
"""One client against all others: requests that occupy as many of the gateway's threads as possible, through the
shipped nginx files, while another client retrieves the offset of its upload.

usage: attack.py [--seconds 8] [--times 4] [--turns 5] [--no-nginx-limits] [--slow SECONDS]

Three attacks use HTTP/2 from one address, with all the streams that a connection allows, renewed each second:
creations that send no content; empty appends to the attacker's own upload during its delivery; creations that wait
for an authorizer that never responds. With --slow, 1,000 slow uploads from 50 addresses run against 512 threads: each
sends 30 bytes a second, and one closed upload a second resumes. Meanwhile another client retrieves an offset and
uploads, again after Retry-After, which must succeed within a minute, and no acknowledged offset may be lowered.

It fails if the other client waits longer than a second or its request is aborted, through nginx or at the gateway;
if memory grows by more than a few MiB with a turn after the second; or if descriptors or threads are not released.
It reports which resources of nginx ran out. It needs nginx, openssl and Python's standard library.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from lab import exchange, processes, slow
from lab.gateway import Gateway, certify, ship, start_nginx
from lab.http1 import Closed
from lab.processes import NeverHappened, free_ports, must

ASKER = pathlib.Path(__file__).with_name("asker.py")
STREAMS = 127
LONGEST = 1.0
# The most MiB that one turn may add to memory after the second.
GROWTH = 4
# Descriptors that may stay open beyond those before: two for each kept-alive connection to the authorizer
# (`ConnectionPool.capacity`), and some temporary ones.
KEPT = 2 * 32 + 8


class Silent:
    """A server that accepts requests and responds to none."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        self.connections = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                self.connections.append(self.listener.accept()[0])
            except OSError:
                return


class Stage:
    """The gateway and an nginx with the shipped files, in a separate directory."""

    def __init__(self, nginx_limits, threads):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="spoolgate-attack-"))
        self.directory.chmod(0o755)
        self.port, self.tls_port = free_ports(2)
        self.upstream, self.authorizer = Silent(), Silent()
        (self.directory / "delivered").mkdir()
        self.gateway = Gateway(self.directory, f"""
socket-mode: "0666"
spool: {{directory: {self.directory}/spool, reserve: 16MiB}}
timeouts: {{stall: 120s}}
threads: {{maximum: {threads}}}
routes:
  default: {{upstream: "directory:{self.directory}/delivered"}}
  slow: {{upstream: "http://127.0.0.1:{self.upstream.port}"}}
  asked:
    upstream: "directory:{self.directory}/delivered"
    authorize: {{url: "http://127.0.0.1:{self.authorizer.port}/ask", timeout: 20s}}
""")
        self.gateway.start()
        self.nginx = self.start_nginx(nginx_limits)

    def start_nginx(self, has_limits):
        folder = str(self.directory / "nginx")
        marks = {"port": ("8080", f"127.0.0.1:{self.port}"), "tls-port": ("8443", f"127.0.0.1:{self.tls_port}"),
                 "certificate": (r"/\S+;", "certificate.pem;"), "key": (r"/\S+;", "key.pem;"),
                 "socket": (r"unix:[^;]+;", f"unix:{self.gateway.socket};")}

        def change(line, mark):
            if not has_limits and re.match(r"limit_(conn|req) ", line):
                return ""
            if mark in marks:
                line = re.sub(marks[mark][0], lambda _: marks[mark][1], line, count=1)
            return line

        def with_routes(text):
            location = re.search(r"(?ms)^location \^~ /files/.*\}", text)
            for route in ["slow", "asked"] if location else []:
                text += location[0].replace("/files/", f"/{route}/").replace(
                    "SPOOLGATE_ROUTE   default", f"SPOOLGATE_ROUTE {route}") + "\n"
            return text
        ship(folder, [f"{name}.conf" for name in "nginx http location params pass server snippets/spoolgate".split()],
             change, with_routes)
        os.makedirs(f"{folder}/modules", exist_ok=True)
        certify(f"{folder}/key.pem", f"{folder}/certificate.pem")
        return start_nginx(folder, self.port)

    def ask(self, method, target, fields=None, content=b"", source="127.0.0.2", patience=30):
        return exchange.ask(self.port, method, target, fields, content, source=source, patience=patience)

    def create(self, route, source):
        created = self.ask("POST", f"/{route}/x", {"Upload-Complete": "?0"}, source=source)
        assert created.status == 201, created
        return re.sub(r"^https?://[^/]+", "", created["Location"])

    def asker(self, victim):
        """Starts to retrieve the offset of an upload repeatedly (asker.py)."""
        return subprocess.Popen([sys.executable, ASKER, str(self.port), self.gateway.socket, victim],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def footprint(self):
        process = self.gateway.identity
        return {"MiB": processes.memory(process) // 1024,
                "threads": len(os.listdir(f"/proc/{process}/task")),
                "descriptors": len(os.listdir(f"/proc/{process}/fd"))}

    def must_calm_down(self):
        must(60, "the gateway ends its threads", lambda: self.footprint()["threads"] <= 80)

    def rest(self):
        """The gateway's footprint once it is idle: the same memory for three seconds, longer than the gateway takes
        to detect the end of a busy time."""
        last, since, deadline = None, 0, time.monotonic() + 60
        while time.monotonic() < deadline:
            now = self.footprint()
            if last is None or now["MiB"] != last["MiB"]:
                last, since = now, time.monotonic()
            if time.monotonic() - since > 3:
                break
            time.sleep(0.1)
        return now

    def nginx_lacks(self):
        """The resources that nginx ran out of, with counts, according to its log."""
        log = (self.directory / "nginx/log/error.log").read_text(errors="replace")
        lacks = {"worker_connections": "worker_connections are not enough", "descriptors": "Too many open files",
                 "the gateway's backlog": "failed (11: Resource temporarily unavailable) while connecting"}
        return {what: log.count(words) for what, words in lacks.items() if words in log}

    def stop(self):
        for process in [self.nginx, self.gateway.process]:
            process.end(40)
        shutil.rmtree(self.directory)


class Flood:
    """One HTTP/2 connection that keeps as many streams open as it may, and reopens them."""

    def __init__(self, port, method, path, fields, ends):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self.socket = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 10))
        self.next, self.open, self.buffer, self.ended = 1, set(), b"", 0
        head = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
        # Literal fields without indexing, not compressed (RFC 7541, 6.2.2).
        self.head = b"".join(b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
                             for name, value in head + fields)
        self.flags = 0x5 if ends else 0x4
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0))

    @staticmethod
    def frame(kind, flags, stream, content=b""):
        return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content

    def fill(self):
        """Opens streams up to the limit."""
        frames = b""
        # nginx closes a connection after keepalive_requests.
        while len(self.open) < STREAMS and self.next < 1900:
            frames += self.frame(1, self.flags, self.next, self.head)
            self.open.add(self.next)
            self.next += 2
        if frames:
            self.socket.settimeout(5)
            self.socket.sendall(frames)

    def listen(self):
        """Reads the received frames without waiting."""
        self.socket.settimeout(0)
        try:
            while True:
                part = self.socket.recv(1 << 16)
                if not part:
                    raise ConnectionError
                self.buffer += part
        except (ssl.SSLWantReadError, BlockingIOError):
            pass
        while len(self.buffer) >= 9:
            length = int.from_bytes(self.buffer[:3], "big")
            if len(self.buffer) < 9 + length:
                break
            kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
            self.buffer = self.buffer[9 + length:]
            if kind == 3 or kind in (0, 1) and flags & 1:
                self.open.discard(stream)
                self.ended += 1
            if kind == 4 and not flags & 1:
                self.socket.settimeout(5)
                self.socket.sendall(self.frame(4, 1, 0))
                self.socket.settimeout(0)


def attack(stage, name, connections, seconds, method, path, fields, ends):
    """Attacks while another client sends requests; returns whether that client was served well."""
    victim = stage.create("files", "127.0.0.2")
    floods, ended = [], 0

    def again(flood=None):
        try:
            fresh = Flood(stage.tls_port, method, path, fields, ends)
            fresh.fill()
            floods.append(fresh)
        except OSError:
            pass
        if flood in floods:
            floods.remove(flood)
    for _ in range(connections):
        again()
    most = {"threads": 0, "descriptors": 0, "MiB": 0}
    asker = stage.asker(victim)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(1)
        most = {key: max(value, most[key]) for key, value in stage.footprint().items()}
        for flood in list(floods):
            try:
                flood.listen()
                flood.fill()
                if flood.next >= 1900:
                    raise ConnectionError
            except OSError:
                ended += flood.ended
                again(flood)
    seen = json.loads(asker.communicate()[0])
    held = sum(len(flood.open) for flood in floods)
    ended += sum(flood.ended for flood in floods)
    for flood in floods:
        flood.socket.close()
    print(f"{name}: {connections} connections x {STREAMS} streams, {held} held at the end, {ended} ended; "
          f"the gateway at most {most}")
    good = all([tell(way, answers) for way, answers in seen.items()])
    stage.must_calm_down()
    return good


def tell(way, answers):
    """Prints the results of another client's HEAD requests on one path, and returns whether they are good."""
    waits = sorted(seconds for seconds, _ in answers)
    failures = [(seconds, failure) for seconds, failure in answers if failure]
    for seconds, failure in failures[:10]:
        print(f"  HEAD by {way} failed after {seconds:.2f} s: {failure}")
    print(f"  HEAD of another client by {way}: {len(waits)} sent, {len(failures)} failed, "
          f"median {waits[len(waits) // 2]:.3f} s, longest {waits[-1]:.3f} s", flush=True)
    return not failures and waits[-1] < LONGEST


def run_attacks(stage, arguments):
    times, seconds = arguments.times, arguments.seconds
    mine = stage.create("slow", "127.0.0.1")
    completing = {"Upload-Complete": "?1", "Upload-Offset": "0", "Content-Length": "0",
                  "Content-Type": "application/partial-upload"}

    def deliver():
        try:
            stage.ask("PATCH", mine, completing, source="127.0.0.1", patience=600)
        except Closed:
            pass
    threading.Thread(target=deliver, daemon=True).start()
    must(20, "the delivery begins", lambda: stage.upstream.connections)
    kinds = [
        ("creations without content", 33, "POST", "/files/x", [("upload-complete", "?1")], False),
        ("empty appends to a delivery", 8, "PATCH", mine,
         [(key.lower(), value) for key, value in completing.items()], True),
        ("creations for a silent authorizer", 33, "POST", "/asked/x",
         [("upload-complete", "?0"), ("content-length", "0")], True),
    ]
    before = stage.footprint()
    good, after = True, []
    for turn in range(1, arguments.turns + 1):
        for name, connections, method, path, fields, ends in kinds:
            good &= attack(stage, name, connections * times, seconds, method, path, fields, ends)
        after.append(stage.rest())
        print(f"after turn {turn}: {after[-1]}", flush=True)
    # Memory that the C library keeps varies between turns; a leak stays in every later one.
    for number, earlier in enumerate(after[1:-1], 1):
        least = min(later["MiB"] for later in after[number + 1:])
        if least > earlier["MiB"] + GROWTH:
            good = False
            print(f"memory grew permanently from {earlier['MiB']} to {least} MiB")
    if after[-1]["descriptors"] > before["descriptors"] + KEPT:
        good = False
        print(f"descriptors were not released: {before['descriptors']} before, {after[-1]['descriptors']} after")
    return good


def upload(stage, size, seen):
    """Uploads as another client, again after Retry-After for a minute; records the duration and the status."""
    begin = time.monotonic()
    while True:
        pause = None
        try:
            answer = stage.ask("POST", "/files/other.bin", {"Upload-Complete": "?1"}, b"y" * size, "127.0.0.3", 60)
            status, pause = answer.status, answer.number("Retry-After")
        except Closed as error:
            status = repr(error)
        if status != 503 or pause is None or time.monotonic() - begin > 60:
            break
        time.sleep(pause)
    seen.append((time.monotonic() - begin, status))


def run_trickle(stage, seconds, count=1000):
    """A thousand slow uploads of fifty clients, with other clients at the same time."""
    victim = stage.create("files", "127.0.0.2")
    plan = slow.Plan(stage.port, count, 30, 1, 200, lambda number: f"127.0.1.{number % 50 + 1}", turn=1)
    clients = slow.Clients(plan)
    time.sleep(2 * count / plan.openings + 2)
    asker, uploads, most = stage.asker(victim), [], 0
    begin = time.monotonic()
    for second in range(seconds):
        if second % 5 == 0:
            threading.Thread(target=upload, args=(stage, 4 << 20, uploads), daemon=True).start()
        most = max(most, stage.footprint()["threads"])
        time.sleep(max(0, begin + second + 1 - time.monotonic()))
    seen = json.loads(asker.communicate()[0])
    counts = clients.counts()
    after = clients.leave()
    clients.stop()
    lost = counts["lowered"] + after["lowered"]
    stage.must_calm_down()
    must(60, "the other client's uploads end", lambda: len(uploads) >= (seconds + 4) // 5)
    failed = [status for _, status in uploads if status != 201]
    waits = sorted(wait for wait, _ in uploads)
    print(f"{count} slow uploads for {seconds} s: {counts['open']} held at the end, {counts['ended']} ended and "
          f"{counts['rejected']} rejected, at most {most} threads; {lost} offsets lowered, {after['told']} bytes kept")
    print(f"  uploads of another client: {len(uploads)}, {len(failed)} failed {failed[:3]}, "
          f"median {waits[len(waits) // 2]:.3f} s, longest {waits[-1]:.3f} s")
    good = all([tell(way, answers) for way, answers in seen.items()])
    return good and not lost and not failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--no-nginx-limits", action="store_true")
    parser.add_argument("--slow", type=int, default=0)
    arguments = parser.parse_args()
    stage = Stage(not arguments.no_nginx_limits, 512 if arguments.slow else 4096)
    try:
        good = run_trickle(stage, arguments.slow) if arguments.slow else run_attacks(stage, arguments)
        for line in stage.gateway.log().splitlines():
            if re.search(r"requests rejected|slow requests interrupted|lowered|level=error", line):
                print(" ", line[:220])
        for what, count in stage.nginx_lacks().items():
            print(f"  nginx ran out of {what} {count} times")
    except NeverHappened as never:
        sys.exit(f"{never}; the log: {stage.gateway.log()[-2000:]}{stage.nginx.said()[-2000:]}")
    finally:
        stage.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
