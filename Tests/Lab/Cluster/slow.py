#!/usr/bin/env python3
"""Many slow uploads at once over several nodes with separate spools: their cost, and the waits of other clients.

    sudo Tests/Lab/Cluster/slow.py [UPLOADS [SECONDS [NODES]]]

The number of descriptors of a process is limited (ulimit -Hn): a gateway reserves five for each upload and nginx
needs two, so more uploads need more nodes. Each upload sends 500 bytes every five seconds. Meanwhile a client
retrieves the offset of an idle upload on each node, with a new connection each time. At the end every upload is
completed and must receive 201: none may be lost. The clients have many addresses, since nginx and the gateways
limit each client.
"""

import multiprocessing
import os
import resource
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections import Counter

from front import Front
from gateway import Gateway
from processes import wait
from wire import Cut, ask

PORTION = 500
PAUSE = 5.0
PER_ADDRESS = 500
OPENINGS = 400  # per second
LENGTH = 60_000
CLIENTS = 4  # processes, since one cannot have so many descriptors


def address(number):
    return f"127.1.{number // PER_ADDRESS // 250}.{1 + number // PER_ADDRESS % 250}"


class Slow:
    def __init__(self, number, port):
        self.length = LENGTH
        self.sent = 0
        self.heard = b""
        self.socket = socket.socket()
        self.socket.bind((address(number), 0))
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)
        head = (
            f"POST /files/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LENGTH}\r\n"
            "Upload-Draft-Interop-Version: 10\r\nUpload-Complete: ?1\r\n\r\n"
        )
        self.socket.send(head.encode())
        self.feed(PORTION)

    def feed(self, count):
        count = min(count, self.length - self.sent)
        if count > 0:
            self.sent += self.socket.send(b"x" * count)

    def status(self):
        """The status of the final response; 0 if it has not arrived."""
        for head in self.heard.split(b"\r\n\r\n"):
            words = head.split(b" ", 2)
            if words[0].startswith(b"HTTP/") and not words[1].startswith(b"1"):
                return int(words[1])
        return 0


class Prober(threading.Thread):
    """Retrieves offsets twenty times a second, and records the durations."""

    def __init__(self, port, resources):
        super().__init__(daemon=True)
        self.port, self.resources = port, resources
        self.times = []
        self.failures = 0
        self.is_ending = threading.Event()

    def run(self):
        while not self.is_ending.wait(0.05):
            target = self.resources[len(self.times) % len(self.resources)]
            begun = time.monotonic()
            try:
                status = ask(self.port, "HEAD", target).status
            except Cut:
                status = 0
            self.times.append(time.monotonic() - begun)
            self.failures += status != 204


def memory(pids):
    """The resident memory of processes in MiB, with shared pages counted once."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:
            pass
    return total / 1024


def available():
    with open("/proc/meminfo") as file:
        facts = dict(line.split(":") for line in file)
    return int(facts["MemAvailable"].split()[0]) / 1024


def tree(pid):
    """A process and all its descendants."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = [int(one) for one in file.read().split()]
    return [pid] + [each for child in children for each in tree(child)]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60
    nodes = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="spoolgate-slow-") as directory:
        # nginx's workers run as an unprivileged user.
        os.chmod(directory, 0o755)
        gateways = [
            Gateway(
                name,
                directory,
                os.path.join(directory, f"spool-{name}"),
                "directory:" + directory,
                is_shared=False,
                threads=count * 6 // 5 // nodes + 200,
            )
            for name in (f"n{number + 1}" for number in range(nodes))
        ]
        front = Front(directory, gateways, is_shared=False, workers=4, connections=most - 500)
        try:
            for gateway in gateways:
                gateway.start()
            front.start()
            run(count, seconds, gateways, front)
        finally:
            front.stop()
            for gateway in gateways:
                gateway.kill()


def create(port):
    """Creates an upload without content; returns the path of its resource."""
    location = ask(port, "POST", "/files/idle", {"Upload-Complete": "?0"})["location"]
    return location[location.index("/files/") :]


def run(count, seconds, nodes, front):
    idle = {}
    while len(idle) < len(nodes):
        target = create(front.port)
        idle[target.split("/")[-2]] = target
    before = [memory(tree(each.identity)) for each in (*nodes, front)]
    free = available()
    clients = [Client(first, count, front.port) for first in range(CLIENTS)]
    for client in clients:
        client.pipe.recv()
    prober = Prober(front.port, list(idle.values()))
    prober.start()
    time.sleep(seconds)
    prober.is_ending.set()
    prober.join()
    held = [memory(tree(each.identity)) for each in (*nodes, front)]
    used = free - available()
    threads = [len(os.listdir(f"/proc/{tree(node.identity)[-1]}/task")) for node in nodes]
    for client in clients:
        client.pipe.send("finish")
    answered = sum((client.pipe.recv() for client in clients), Counter())
    times = sorted(prober.times)
    grown = [round(now - then) for now, then in zip(held, before)]
    print(f"{count} slow uploads, statuses {dict(answered)}")
    print(
        f"threads {threads}; MiB more: gateways {grown[:-1]}, nginx {grown[-1]}, with clients and kernel {used:.0f}"
    )
    print(
        f"KiB an upload: gateways {1024 * sum(grown[:-1]) / count:.1f}, nginx {1024 * grown[-1] / count:.1f}"
    )
    print(
        f"HEAD: {len(times)}, {prober.failures} failed, p50 {1000 * times[len(times) // 2]:.1f} ms, "
        f"p99 {1000 * times[len(times) * 99 // 100]:.1f} ms, most {1000 * times[-1]:.1f} ms"
    )
    sys.exit(answered[201] != count or prober.failures > 0)


class Client:
    """A process with every CLIENTS-th upload: opens them, reports that, and feeds them until it is told to finish."""

    def __init__(self, first, count, port):
        self.pipe, other = multiprocessing.Pipe()
        process = multiprocessing.Process(target=carry, args=(other, first, count, port), daemon=True)
        process.start()


def carry(pipe, first, count, port):
    uploads, opening, visited = [], time.monotonic(), 0
    numbers = iter(range(first, count, CLIENTS))
    is_open = False
    while not pipe.poll():
        # Each for a fiftieth of a second: opening due uploads, and feeding the next ones.
        while not is_open and time.monotonic() > opening:
            number = next(numbers, None)
            if number is None:
                is_open = True
                pipe.send("open")
                break
            uploads.append(Slow(number, port))
            opening += CLIENTS / OPENINGS
        for _ in range(1 + int(len(uploads) / PAUSE / 50)):
            if uploads:
                uploads[visited % len(uploads)].feed(PORTION)
                visited += 1
        time.sleep(0.02)
    pipe.recv()
    pipe.send(finish(uploads))


def finish(uploads):
    """Sends the rest of all uploads and reads their responses; returns the number of each status."""
    selector = selectors.DefaultSelector()
    for one in uploads:
        one.feed(one.length)
        selector.register(one.socket, selectors.EVENT_READ, one)
    waiting = len(uploads)

    def hear():
        nonlocal waiting
        for key, _ in selector.select(timeout=1):
            one = key.data
            try:
                piece = one.socket.recv(65536)
            except OSError:
                piece = b""
            one.heard += piece
            if not piece or one.status():
                selector.unregister(one.socket)
                waiting -= 1
        return waiting == 0

    wait(300, hear, interval=0)
    return Counter(one.status() for one in uploads)


if __name__ == "__main__":
    main()
