#!/usr/bin/env python3
"""One client against all others: requests that occupy as many of the gateway's threads as possible, through the
shipped nginx files, while another client retrieves the offset of its upload.

usage: attack.py [--seconds 8] [--times 4] [--turns 5] [--no-nginx-limits] [--descriptors N] [--slow SECONDS] [program]

Three attacks use HTTP/2 from one address, with all the streams that a connection allows, renewed each second:
creations that send no content; empty appends to the attacker's own upload during its delivery; creations that wait
for an authorizer that never responds. With --descriptors, a fourth part opens slow uploads, each from its own
address, until the process has no descriptor left, and retrieves an offset. With --slow, a fifth part runs 1,000
slow uploads from 50 addresses against 512 threads: each sends 30 bytes a second, and one closed upload a second
resumes. Meanwhile another client retrieves an offset and uploads, again after Retry-After, which must succeed within a
minute, and no acknowledged offset may be lowered.

It fails if the other client waits longer than a second or its request is aborted, through nginx or at the gateway;
if memory grows by more than a few MiB with a turn after the second; or if descriptors or threads are not released.
It reports which resources of nginx ran out. It needs nginx, openssl and Python's standard library.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
STREAMS = 127
LONGEST = 1.0
# The most MiB that one turn may add to memory after the second.
GROWTH = 4
# Descriptors that may stay open beyond those before: two for each kept-alive connection to the authorizer
# (`ConnectionPool.capacity`), and some temporary ones.
KEPT = 2 * 32 + 8


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


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

    def __init__(self, program, nginx_limits, descriptors, threads=4096):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="spoolgate-attack-"))
        self.directory.chmod(0o755)
        self.port, self.tls_port = free_ports(2)
        self.upstream, self.authorizer = Silent(), Silent()
        (self.directory / "delivered").mkdir()
        self.socket_path = socket_path = self.directory / "spoolgate.sock"
        (self.directory / "spoolgate.yaml").write_text(f"""
listen: unix:{socket_path}
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
        self.write_nginx(socket_path, nginx_limits)

        def limit():
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
        self.log = open(self.directory / "spoolgate.log", "wb")
        self.gateway = subprocess.Popen(
            [program, "serve", "--config", self.directory / "spoolgate.yaml"],
            stdout=self.log, stderr=self.log, preexec_fn=limit)
        self.wait_for(lambda: socket_path.exists())
        self.nginx = subprocess.Popen(
            [shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"), "-p", self.directory / "nginx", "-e",
             "stderr", "-c", self.directory / "nginx/nginx.conf", "-g", "daemon off;"],
            stderr=open(self.directory / "nginx.log", "wb"))
        self.wait_for(lambda: self.ask("OPTIONS", "/files/x")[0])

    def write_nginx(self, socket_path, nginx_limits):
        nginx = self.directory / "nginx"
        for name in ["log", "snippets", "modules"]:
            (nginx / name).mkdir(parents=True)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
             "-keyout", nginx / "key.pem", "-out", nginx / "certificate.pem"],
            check=True, stderr=subprocess.DEVNULL)
        marks = {"port": ("8080", f"127.0.0.1:{self.port}"), "tls-port": ("8443", f"127.0.0.1:{self.tls_port}"),
                 "certificate": (r"/\S+;", "certificate.pem;"), "key": (r"/\S+;", "key.pem;"),
                 "socket": (r"unix:[^;]+;", f"unix:{socket_path};")}
        for name in ["nginx.conf", "http.conf", "location.conf", "params.conf", "pass.conf", "server.conf",
                     "snippets/spoolgate.conf"]:
            text = (ROOT / "nginx" / name).read_text().replace("/usr/share/spoolgate/nginx/", "")
            text = text.replace("/etc/nginx/conf.d/spoolgate*", "http*")
            lines = []
            for line in text.splitlines():
                mark = re.search(r"# run: ([a-z-]+)", line)
                if "[::]:" in line or not nginx_limits and re.match(r"limit_(conn|req) ", line):
                    continue
                if mark and mark[1] in marks:
                    line = re.sub(marks[mark[1]][0], lambda _: marks[mark[1]][1], line, count=1)
                lines.append(line)
            text = "\n".join(lines) + "\n"
            if name == "snippets/spoolgate.conf":
                location = text[text.index("location ^~ /files/"):text.rindex("}") + 1]
                for route in ["slow", "asked"]:
                    text += location.replace("/files/", f"/{route}/").replace(
                        "SPOOLGATE_ROUTE   default", f"SPOOLGATE_ROUTE {route}")
            (nginx / name).write_text(text)

    def wait_for(self, condition, seconds=20):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if condition():
                    return
            except OSError:
                pass
            time.sleep(0.05)
        sys.exit(f"timed out; the log: {(self.directory / 'spoolgate.log').read_text()[-2000:]}"
                 f"{(self.directory / 'nginx.log').read_text()[-2000:]}")

    def ask(self, method, target, fields=None, source="127.0.0.2", timeout=30):
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=timeout, source_address=(source, 0))
        try:
            connection.request(method, target, headers={"Host": "localhost", **(fields or {})})
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.headers
        finally:
            connection.close()

    def create(self, route, source):
        status, fields = self.ask("POST", f"/{route}/x", {"Upload-Complete": "?0", "Content-Length": "0"}, source)
        assert status == 201, status
        return re.sub(r"^https?://[^/]+", "", fields["Location"])

    def footprint(self):
        status = pathlib.Path(f"/proc/{self.gateway.pid}/status").read_text()
        return {"MiB": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024,
                "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),
                "descriptors": len(os.listdir(f"/proc/{self.gateway.pid}/fd"))}

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
        for process in [self.nginx, self.gateway]:
            process.terminate()
        for process in [self.nginx, self.gateway]:
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
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
    asker = subprocess.Popen(
        [sys.executable, ROOT / "Tests/Lab/Attack/asker.py", str(stage.port), stage.socket_path, victim],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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
    stage.wait_for(lambda: stage.footprint()["threads"] <= 80, 60)
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
            stage.ask("PATCH", mine, completing, "127.0.0.1", 600)
        except (OSError, http.client.HTTPException):
            pass
    threading.Thread(target=deliver, daemon=True).start()
    stage.wait_for(lambda: stage.upstream.connections)
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


def run_slow_uploads(stage, count):
    """Slow uploads of many clients, more than there are descriptors for; then an offset is retrieved."""
    victim = stage.create("files", "127.0.0.2")
    clients = []
    for number in range(count):
        client = socket.create_connection(("127.0.0.1", stage.port), 10, (f"127.0.1.{number % 250 + 1}", 0))
        client.sendall(b"PUT /files/slow HTTP/1.1\r\nHost: localhost\r\nUpload-Complete: ?1\r\n"
                       b"Content-Length: 1000000\r\n\r\nx")
        clients.append(client)
    time.sleep(1)
    good = True
    for _ in range(20):
        begin = time.monotonic()
        try:
            status = stage.ask("HEAD", victim)[0]
        except (OSError, http.client.HTTPException) as error:
            status = repr(error)
        wait = time.monotonic() - begin
        good &= wait < LONGEST and status == 204
        print(f"  HEAD: {status} after {wait:.3f} s")
    print(f"{count} slow uploads: {stage.footprint()}")
    for client in clients:
        client.close()
    return good


class Trickle:
    """One upload at 30 bytes a second, over as many connections as it needs."""

    def __init__(self, stage, number):
        self.stage, self.source = stage, f"127.0.1.{number % 50 + 1}"
        self.target = stage.create("files", self.source)
        self.told, self.socket, self.connections = 0, None, 0

    def ask(self):
        """Retrieves the offset; returns false if it is lower than the acknowledged one."""
        status, fields = self.stage.ask("HEAD", self.target, source=self.source)
        offset = int(fields["Upload-Offset"]) if status == 204 else -1
        kept = offset >= self.told
        self.told = max(self.told, offset)
        return kept

    def go_on(self):
        self.socket = socket.create_connection(("127.0.0.1", self.stage.port), 10, (self.source, 0))
        self.socket.sendall((
            f"PATCH {self.target} HTTP/1.1\r\nHost: localhost\r\nUpload-Complete: ?0\r\n"
            f"Upload-Offset: {self.told}\r\nContent-Type: application/partial-upload\r\n"
            "Content-Length: 1000000\r\n\r\n").encode())
        self.socket.setblocking(False)
        self.connections += 1

    def send(self):
        """Sends some bytes; returns false if the connection is closed."""
        try:
            self.socket.send(b"x" * 30)
            return self.socket.recv(4096) not in (b"",)
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None


def upload(stage, size, seen):
    """Uploads as another client, again after Retry-After for a minute; records the duration and the status."""
    begin = time.monotonic()
    while True:
        pause = None
        try:
            connection = http.client.HTTPConnection(
                "127.0.0.1", stage.port, timeout=60, source_address=("127.0.0.3", 0))
            connection.request("POST", "/files/other.bin", b"y" * size,
                               {"Host": "localhost", "Upload-Complete": "?1"})
            response = connection.getresponse()
            status, pause = response.status, response.getheader("Retry-After")
            connection.close()
        except (OSError, http.client.HTTPException) as error:
            status = repr(error)
        if status != 503 or pause is None or time.monotonic() - begin > 60:
            break
        time.sleep(int(pause))
    seen.append((time.monotonic() - begin, status))


def run_trickle(stage, seconds, count=1000):
    """A thousand slow uploads of fifty clients, with other clients at the same time."""
    victim = stage.create("files", "127.0.0.2")
    slow = [Trickle(stage, number) for number in range(count)]
    for each in slow:
        each.go_on()
    asker = subprocess.Popen(
        [sys.executable, ROOT / "Tests/Lab/Attack/asker.py", str(stage.port), stage.socket_path, victim],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    waiting, uploads, lost, closed, most = [], [], 0, 0, 0
    begin = time.monotonic()
    second = 0
    while time.monotonic() - begin < seconds:
        second += 1
        for each in slow:
            if each.socket and not each.send():
                each.close()
                waiting.append(each)
                closed += 1
        if waiting:
            each = waiting.pop(0)
            try:
                lost += not each.ask()
                each.go_on()
            except (OSError, http.client.HTTPException):
                waiting.append(each)
        if second % 5 == 0:
            threading.Thread(target=upload, args=(stage, 4 << 20, uploads), daemon=True).start()
        most = max(most, stage.footprint()["threads"])
        time.sleep(max(0, begin + second - time.monotonic()))
    seen = json.loads(asker.communicate()[0])
    open_now = sum(each.socket is not None for each in slow)
    for each in slow:
        each.close()
    stage.wait_for(lambda: stage.footprint()["threads"] <= 80, 60)
    stage.wait_for(lambda: len(uploads) >= second // 5, 60)
    for each in slow:
        lost += not each.ask()
    failed = [status for _, status in uploads if status != 201]
    waits = sorted(wait for wait, _ in uploads)
    print(f"{count} slow uploads for {seconds} s: {open_now} held at the end, {closed} closed, at most {most} threads; "
          f"{lost} offsets lowered, {sum(each.told for each in slow)} bytes kept")
    print(f"  uploads of another client: {len(uploads)}, {len(failed)} failed {failed[:3]}, "
          f"median {waits[len(waits) // 2]:.3f} s, longest {waits[-1]:.3f} s")
    good = all([tell(way, answers) for way, answers in seen.items()])
    return good and not lost and not failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", nargs="?", default=ROOT / ".build/release/spoolgate")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--no-nginx-limits", action="store_true")
    parser.add_argument("--descriptors", type=int, default=0)
    parser.add_argument("--slow", type=int, default=0)
    arguments = parser.parse_args()
    threads = 512 if arguments.slow else 4096
    stage = Stage(arguments.program, not arguments.no_nginx_limits, arguments.descriptors, threads)
    try:
        if arguments.descriptors:
            good = run_slow_uploads(stage, 450)
        elif arguments.slow:
            good = run_trickle(stage, arguments.slow)
        else:
            good = run_attacks(stage, arguments)
        log = (stage.directory / "spoolgate.log").read_text()
        for line in log.splitlines():
            if re.search(r"requests rejected|slow requests interrupted|lowered|level=error", line):
                print(" ", line[:220])
        for what, count in stage.nginx_lacks().items():
            print(f"  nginx ran out of {what} {count} times")
    finally:
        stage.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
