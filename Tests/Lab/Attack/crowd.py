#!/usr/bin/env python3
"""Slow clients that return a second after their connection is closed, at 80 to 150 percent of `threads.maximum`, next to
a client that retrieves an offset and one that uploads; then clients that send almost nothing.

usage: crowd.py [--threads 400] [--seconds 20] [--rate 100] [--steps 80,90,95,120,150] [--report] [program]

Each slow client has an upload of its own, and sends a portion every five seconds. If its connection is closed, it
retrieves the offset after a second, and continues. At each step the median wait of the other client's HEAD, the 99th
percentile of the creations that succeed, that of those that are refused, and the processor time of the gateway are
measured, once the first ten seconds have passed. It fails if

- the median HEAD takes more than 5 ms, or three times that of the first step;
- a creation fails without 503 and Retry-After, or the 99th percentile is above 100 ms, or three times that of the first
  step;
- the gateway uses more than 10 percent of a core more than at the first step;
- more than five admitted requests a second are ended, or one upload's twice, or an acknowledged offset is lowered.

In the last part every thread receives one byte in 50 seconds, from as many addresses as possible, again and again. A
client whose creation is refused repeats it after Retry-After. It fails if that does not succeed within a minute.

With --report, nothing fails. It needs nginx, openssl and Python's standard library; the processes of the clients use
about as much processor time as the gateway.
"""

import argparse
import collections
import http.client
import json
import multiprocessing
import os
import pathlib
import selectors
import socket
import subprocess
import sys
import threading
import time

from attack import ROOT, Stage

PERIOD = 5
RETURN = 1
SETTLE = 10
# Clients that begin in a second.
OPENINGS = 200
LONGEST_HEAD = 0.005
LONGEST_CREATION = 0.1
MOST_PROCESSOR = 0.1
MOST_ENDS = 5
# A request that was admitted lasts longer than this; one that is rejected ends sooner, after at most a second.
ADMITTED = 1.2


def address(number):
    return f"127.0.{1 + number // 250 % 250}.{1 + number % 250}"


class Client:
    """One slow upload, over as many connections as it needs; `work` is called when something may be done."""

    def __init__(self, number, port, portion, start, selector, counts):
        self.number, self.port, self.portion, self.start = number, port, portion, start
        self.selector, self.counts = selector, counts
        self.target, self.told, self.ends = None, 0, 0
        self.socket, self.state, self.due, self.begun = None, "waiting", 0, 0

    def request(self, head):
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.bind((address(self.number), 0))
        self.socket.connect_ex(("127.0.0.1", self.port))
        self.head, self.received = head.encode(), b""
        self.selector.register(self.socket, selectors.EVENT_WRITE, self)

    def close(self):
        if self.socket:
            self.selector.unregister(self.socket)
            self.socket.close()
        self.socket = None

    def begin(self):
        """Creates the upload, or retrieves its offset."""
        if self.target:
            self.state = "asking"
            self.request(f"HEAD {self.target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        else:
            self.state = "creating"
            self.request("POST /files/slow HTTP/1.1\r\nHost: localhost\r\nUpload-Complete: ?0\r\n"
                         "Connection: close\r\nContent-Length: 0\r\n\r\n")

    def go_on(self):
        self.state, self.begun = "sending", time.monotonic()
        self.request(f"PATCH {self.target} HTTP/1.1\r\nHost: localhost\r\nUpload-Complete: ?0\r\n"
                     f"Upload-Offset: {self.told}\r\nContent-Type: application/partial-upload\r\n"
                     "Content-Length: 100000000\r\n\r\n")
        self.due = self.begun + PERIOD * (self.number % 97) / 97

    def wait(self):
        self.close()
        self.state, self.due = "waiting", time.monotonic() + RETURN

    def writable(self):
        try:
            self.socket.send(self.head)
        except OSError:
            return self.wait()
        self.selector.modify(self.socket, selectors.EVENT_READ, self)

    def readable(self):
        try:
            part = self.socket.recv(65536)
        except OSError:
            part = b""
        self.received += part
        if self.state == "sending":
            # An interim response needs no reaction.
            if not part or b"HTTP/1.1 1" not in self.received[:12]:
                self.ended()
            return
        if b"\r\n\r\n" not in self.received:
            if not part:
                self.wait()
            return
        fields = dict(line.lower().split(b": ", 1) for line in self.received.split(b"\r\n\r\n")[0].split(b"\r\n")[1:])
        status = int(self.received.split()[1])
        state = self.state
        self.close()
        if state == "creating" and status == 201:
            location = self.received.split(b"ocation: ")[1].split(b"\r\n")[0].decode()
            self.target = "/" + location.split("/", 3)[3]
            # Once every client has an upload, each needs a thread for its content.
            self.state, self.due = "waiting", self.start + self.number / OPENINGS
        elif state == "asking" and status == 204:
            offset = int(fields[b"upload-offset"])
            self.counts["lowered"] += offset < self.told
            self.told = max(self.told, offset)
            self.go_on()
        else:
            self.wait()

    def ended(self):
        if time.monotonic() - self.begun > ADMITTED:
            self.counts["ended"] += 1
            self.ends += 1
            self.counts["twice"] += self.ends > 1
        else:
            self.counts["rejected"] += 1
        self.wait()

    def tick(self, now):
        if now < self.due:
            return
        if self.state == "waiting":
            self.begin()
        elif self.state == "sending" and self.selector.get_key(self.socket).events == selectors.EVENT_READ:
            self.due = now + PERIOD
            try:
                self.socket.send(b"x" * self.portion)
            except OSError:
                self.ended()


def run_clients(count, port, portion, pipe):
    """A process with the slow clients; each message asks for the counts since the last one, None for the end."""
    selector, counts = selectors.DefaultSelector(), collections.Counter()
    now = time.monotonic()
    start = now + count / OPENINGS + 2
    clients = [Client(number, port, portion, start, selector, counts) for number in range(count)]
    for client in clients:
        client.due = now + client.number / OPENINGS
    while True:
        for key, _ in selector.select(0.05):
            (key.data.writable if key.events == selectors.EVENT_WRITE else key.data.readable)()
        now = time.monotonic()
        for client in clients:
            client.tick(now)
        if pipe.poll():
            if pipe.recv() is None:
                return
            pipe.send({**counts, "open": sum(client.state == "sending" for client in clients)})
            counts.clear()


class Clients:
    def __init__(self, count, port, portion):
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=run_clients, args=(count, port, portion, other), daemon=True)
        self.process.start()

    def counts(self):
        self.pipe.send("counts")
        return collections.Counter(self.pipe.recv())

    def stop(self):
        self.pipe.send(None)
        self.process.join()


class Creator(threading.Thread):
    """Small uploads of another client, ten a second."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.seen, self.is_over = port, [], False
        self.start()

    def run(self):
        while not self.is_over:
            self.seen.append(create(self.port))
            time.sleep(0.1)


def create(port):
    """Uploads as another client; returns the duration, the status, and Retry-After or None."""
    begin = time.monotonic()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=("127.0.0.3", 0))
        connection.request("POST", "/files/other.bin", b"y" * 1000, {"Host": "localhost", "Upload-Complete": "?1"})
        response = connection.getresponse()
        response.read()
        connection.close()
        return time.monotonic() - begin, response.status, response.getheader("Retry-After")
    except (OSError, http.client.HTTPException) as error:
        return time.monotonic() - begin, repr(error), None


def processor(process):
    """The seconds of processor time that a process has used."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0


def measure(arguments, percent):
    """Runs one step on a new gateway; returns its figures."""
    stage = Stage(arguments.program, False, 0, arguments.threads)
    try:
        victim = stage.create("files", "127.0.0.2")
        count = arguments.threads * percent // 100
        clients = Clients(count, stage.port, arguments.rate * PERIOD)
        time.sleep(2 * count / OPENINGS + 2 + SETTLE)
        clients.counts()
        asker = subprocess.Popen(
            [sys.executable, ROOT / "Tests/Lab/Attack/asker.py", str(stage.port), stage.socket_path, victim],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        creator = Creator(stage.port)
        begin, used = time.monotonic(), processor(stage.gateway)
        time.sleep(arguments.seconds)
        spent, used = time.monotonic() - begin, processor(stage.gateway) - used
        counts = clients.counts()
        creator.is_over = True
        heads = json.loads(asker.communicate()[0])
        clients.stop()
    finally:
        stage.stop()
    answers = heads["nginx"] + heads["gateway"]
    return {
        "percent": percent, "open": counts["open"], "processor": used / spent,
        "head": percentile([wait for wait, _ in answers], 0.5),
        "longest head": max(wait for wait, _ in answers), "failed heads": sum(bool(failure) for _, failure in answers),
        "creations": sum(status == 201 for _, status, _ in creator.seen),
        "creation": percentile([wait for wait, status, _ in creator.seen if status == 201], 0.99),
        "refused": sum(status == 503 for _, status, _ in creator.seen),
        "refusal": percentile([wait for wait, status, _ in creator.seen if status == 503], 0.99),
        "wrong": [seen for seen in creator.seen if seen[1] != 201 and (seen[1] != 503 or seen[2] is None)],
        "ended": counts["ended"] / spent, "rejected": counts["rejected"] / spent, "twice": counts["twice"],
        "lowered": counts["lowered"],
    }


def faults(step, first):
    """What is wrong with a step, compared with the first one."""
    if step["head"] > max(LONGEST_HEAD, 3 * first["head"]):
        yield f"the median HEAD took {step['head'] * 1000:.1f} ms"
    if step["failed heads"]:
        yield f"{step['failed heads']} HEAD requests failed"
    for what in ["creation", "refusal"]:
        if step[what] > max(LONGEST_CREATION, 3 * first["creation"]):
            yield f"the 99th percentile of a {what} was {step[what] * 1000:.0f} ms"
    if step["wrong"]:
        yield f"creations failed: {step['wrong'][:3]}"
    if step["processor"] > first["processor"] + MOST_PROCESSOR:
        yield f"the gateway used {(step['processor'] - first['processor']) * 100:.0f} % of a core more"
    if step["ended"] > MOST_ENDS:
        yield f"{step['ended']:.1f} admitted requests a second were ended"
    if step["twice"]:
        yield f"{step['twice']} ended requests were of uploads that had returned"
    if step["lowered"]:
        yield f"{step['lowered']} offsets were lowered"


def run_steps(arguments):
    good, first = True, None
    for percent in arguments.steps:
        step = measure(arguments, percent)
        first = first or step
        print(f"{percent} %: {step['open']} of {arguments.threads} threads; HEAD {step['head'] * 1000:.1f} ms, longest "
              f"{step['longest head'] * 1000:.0f} ms; {step['creations']} creations, p99 {step['creation'] * 1000:.0f} "
              f"ms; {step['refused']} refused, p99 {step['refusal'] * 1000:.0f} ms; {step['processor'] * 100:.1f} % of a "
              f"core; {step['ended']:.1f} ended and {step['rejected']:.1f} rejected a second", flush=True)
        for fault in faults(step, first):
            good = False
            print(f"  {fault}")
    return good


def run_silent(arguments):
    """Every thread receives one byte in 50 seconds; a creation must succeed within a minute."""
    stage = Stage(arguments.program, False, 0, arguments.threads)
    held, is_over = [], False

    def hold(number):
        client = socket.create_connection(("127.0.0.1", stage.port), 10, (address(number), 0))
        client.sendall(b"PUT /files/slow HTTP/1.1\r\nHost: localhost\r\nUpload-Complete: ?1\r\n"
                       b"Content-Length: 1000000\r\n\r\nx")
        client.setblocking(False)
        return client, time.monotonic() + 50

    def attack():
        returns = []
        while not is_over:
            now = time.monotonic()
            for number, (client, due) in enumerate(held):
                if client is None:
                    continue
                try:
                    if now > due:
                        client.send(b"x")
                        held[number] = client, now + 50
                    if client.recv(4096).startswith(b"HTTP/1.1 104"):
                        continue
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                client.close()
                held[number] = None, 0
                returns.append((now + RETURN, number))
            while returns and returns[0][0] < now:
                number = returns.pop(0)[1]
                held[number] = hold(number)
            time.sleep(0.05)
    try:
        held += [hold(number) for number in range(arguments.threads)]
        time.sleep(2)
        attacker = threading.Thread(target=attack, daemon=True)
        attacker.start()
        begin, statuses = time.monotonic(), []
        while time.monotonic() - begin < 60:
            _, status, pause = create(stage.port)
            statuses.append(status)
            if status != 503:
                break
            time.sleep(int(pause))
        wait, is_over = time.monotonic() - begin, True
        attacker.join()
    finally:
        stage.stop()
    print(f"{arguments.threads} threads with a byte in 50 s: a creation received {statuses} in {wait:.0f} s")
    return statuses[-1] == 201


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", nargs="?", default=ROOT / ".build/release/spoolgate")
    parser.add_argument("--threads", type=int, default=400)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--steps", type=lambda text: [int(part) for part in text.split(",")],
                        default=[80, 90, 95, 120, 150])
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    good = run_steps(arguments)
    good &= run_silent(arguments)
    sys.exit(0 if good or arguments.report else 1)


if __name__ == "__main__":
    main()
