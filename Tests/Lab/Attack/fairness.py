#!/usr/bin/env python3
"""One hanging application against all other deliveries: the duration of another client's deliveries on the same
route, and of those on another route, next to 64 uploads to which the application does not respond.

usage: fairness.py [--runs 5] [--deliveries 2000]

Requests go directly to the gateway's FastCGI socket, each an upload with a resource. Runs with and without the 64
uploads alternate. It fails if the median of the runs' p99 with them is above max(1.2 x that without them, that + 25
ms), or if a delivery fails. It needs only Python's standard library.
"""

import argparse
import asyncio
import multiprocessing
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from lab import fastcgi, gateway
from lab.processes import free_ports, must

HOGS = 64
WORKERS = 2
# The slots, of 48 by default, that one client of one application may use.
SHARE = 22
LONGEST = 60


def serve(pipe, ports):
    """An application on several ports: it responds to /slow unless it hangs, and to other requests always."""
    answer = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
    free, counts = asyncio.Event(), {"waiting": 0, "slow": 0}
    free.set()

    async def connection(reader, writer):
        try:
            while line := await reader.readline():
                length = 0
                while (field := await reader.readline()).strip():
                    name, value = field.split(b":", 1)
                    if name.lower() == b"content-length":
                        length = int(value)
                await reader.readexactly(length)
                if b" /slow " in line:
                    counts["waiting"] += 1
                    await free.wait()
                    counts["waiting"] -= 1
                    counts["slow"] += 1
                writer.write(answer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    async def run():
        for port in ports:
            await asyncio.start_server(connection, "127.0.0.1", port, backlog=1024)
        loop, told = asyncio.get_running_loop(), asyncio.Queue()
        loop.add_reader(pipe.fileno(), lambda: told.put_nowait(pipe.recv()))
        while (word := await told.get()) != "end":
            if word == "hang":
                free.clear()
            elif word == "answer":
                free.set()
            pipe.send(dict(counts))
    asyncio.run(run())


class Application:
    """The application, in a separate process."""

    def __init__(self):
        self.ports = free_ports(2)
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=serve, args=(theirs, self.ports), daemon=True)
        self.process.start()

    def tell(self, word):
        self.pipe.send(word)
        return self.pipe.recv()

    def wait_for(self, what, condition):
        must(LONGEST, what, lambda: condition(self.tell("count")))


class Gateway(gateway.Gateway):
    """The gateway, in a separate directory."""

    def __init__(self, ports):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        directory = tempfile.mkdtemp(prefix="spoolgate-fairness-", dir=memory)
        super().__init__(directory, f"""
spool: {{directory: "{directory}/spool", reserve: 1MiB}}
log-level: warning
routes:
  default: {{upstream: "http://127.0.0.1:{ports[0]}", limits: {{min-size: 0}}, queue: {{minimum-backoff: 1s}}}}
  other: {{upstream: "http://127.0.0.1:{ports[1]}", limits: {{min-size: 0}}}}
""")
        self.start()

    def upload(self, route, client, target):
        """Sends an upload in one request; returns the status, or None if the connection was closed."""
        fields = {"REQUEST_METHOD": "POST", "REQUEST_URI": target, "REMOTE_ADDR": client, "HTTP_HOST": "localhost",
                  "SPOOLGATE_ROUTE": route, "SPOOLGATE_ORIGIN": "http://localhost", "REQUEST_SCHEME": "http",
                  "SPOOLGATE_INTERIM": "104", "CONTENT_LENGTH": "5", "HTTP_UPLOAD_COMPLETE": "?1",
                  "HTTP_UPLOAD_DRAFT_INTEROP_VERSION": "8"}
        said = fastcgi.ask(self.socket, fastcgi.request(fields, b"hello"), LONGEST)
        return next((status for status in fastcgi.statuses(said) if status >= 200), None)

    def stop(self):
        self.process.end(40)
        shutil.rmtree(self.directory)


def measure(gateway, count):
    """Delivers `count` of each kind concurrently; returns the p99 in seconds and the failures of each kind."""
    kinds = {"another client, same route": ("default", "127.0.0.2"), "another route": ("other", "127.0.0.1")}
    seen = {kind: [] for kind in kinds}

    def work(kind, route, client):
        for _ in range(count // WORKERS):
            begin, status = time.monotonic(), None
            try:
                status = gateway.upload(route, client, "/fast")
            except OSError as error:
                status = repr(error)
            seen[kind].append((time.monotonic() - begin, status))
            if time.monotonic() - begin > 5:
                return
    threads = [threading.Thread(target=work, args=(kind, *where)) for kind, where in kinds.items()
               for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = {}
    for kind, answers in seen.items():
        waits = sorted(wait for wait, _ in answers)
        failures = [answer for answer in answers if answer[1] != 201]
        for wait, status in failures[:3]:
            print(f"  {kind}: {status} after {wait:.2f} s")
        results[kind] = waits[int(len(waits) * 0.99)], len(failures)
    return results


def beside_hogs(gateway, application, count):
    before = application.tell("hang")["slow"]

    def hog():
        try:
            gateway.upload("default", "127.0.0.1", "/slow")
        except OSError:
            pass
    hogs = [threading.Thread(target=hog) for _ in range(HOGS)]
    for each in hogs:
        each.start()
    application.wait_for("the hanging uploads", lambda counts: counts["waiting"] >= SHARE)
    results = measure(gateway, count)
    application.tell("answer")
    # The uploads whose requests were aborted are delivered by the queue.
    application.wait_for("all hanging uploads delivered", lambda counts: counts["slow"] - before >= HOGS)
    for each in hogs:
        each.join()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--deliveries", type=int, default=2000)
    arguments = parser.parse_args()
    application = Application()
    gateway = Gateway(application.ports)
    good, figures = True, {}
    try:
        measure(gateway, 200)
        for run in range(1, arguments.runs + 1):
            for state, results in [("idle", lambda: measure(gateway, arguments.deliveries)),
                                   ("hanging", lambda: beside_hogs(gateway, application, arguments.deliveries))]:
                for kind, (p99, failures) in results().items():
                    print(f"run {run}, {state}: {kind}: p99 {1000 * p99:.1f} ms, {failures} failed", flush=True)
                    figures.setdefault(kind, {}).setdefault(state, []).append(p99)
                    good &= not failures
    finally:
        gateway.stop()
        application.process.terminate()
    for kind, of in figures.items():
        idle, hanging = statistics.median(of["idle"]), statistics.median(of["hanging"])
        most = max(1.2 * idle, idle + 0.025)
        good &= hanging <= most
        print(f"{kind}: median p99 {1000 * idle:.1f} ms idle, {1000 * hanging:.1f} ms next to {HOGS} hanging uploads; "
              f"at most {1000 * most:.1f} ms")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
