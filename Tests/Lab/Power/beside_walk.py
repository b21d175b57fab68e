"""One scene: 202, a power failure, and clients that retrieve their offsets while the daemon walks through the
spool.

btrfs keeps a synced record but loses the name in `queue` that was created before it. Each upload received 202 and
must reach the application without its client.
"""

import threading
import time

from application import Application
from lab.exchange import ask
from lab.http1 import Closed
from lab.processes import wait
from machine import Conduct, Machine, make_disks

UPLOADS = 24
MARKS = {"Upload-Draft-Interop-Version": "8"}
TITLE = "202, a power failure, and clients that retrieve offsets during the walk (btrfs)"


class Late(Application):
    """Accepts no requests before it is opened."""

    is_open = False

    def answer(self, request):
        return (201, 0) if self.is_open else (0, 0)


def play(host):
    """The faults; empty: none."""
    application = Late(lambda kind: None, 0)
    machine = None
    try:
        words = {"fs": "btrfs", "port": application.port}
        make_disks(host.work, "btrfs")
        machine = Machine(host, words, Conduct(keeps="none", slowest=0), 1)
        if machine.wait() is None:
            return [f"no gateway: {machine.words()}"]
        urls = [create(machine, number) for number in range(UPLOADS)]
        machine.cut()
        machine.bury()
        application.is_open = True
        # Slow flushes make the walk take longer.
        machine = Machine(host, words, Conduct(keeps="none", slowest=0.4), 2)
        if not ask_all(machine, urls):
            return ["the gateway does not serve after the cut"]
        return wait_for_deliveries(application, machine)
    finally:
        if machine:
            machine.discard()
        application.stop()


def create(machine, number):
    """Creates an upload that receives 202; returns its URL."""
    found = []
    fields, content = {**MARKS, "Upload-Complete": "?1"}, bytes([number]) * 200_000
    answer = ask(machine.http, "PUT", f"/acc/{number}.bin", fields, content, on_interim=found.append)
    if answer.status != 202:
        raise RuntimeError(f"an upload received {answer}")
    return "/" + found[0]["location"].split("://")[1].partition("/")[2]


def ask_all(machine, urls):
    """Every client sends one request as soon as the gateway accepts it; returns whether the gateway began to serve."""

    def ask_for(url):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                return ask(machine.http, "HEAD", url, MARKS, patience=15)
            except Closed:
                time.sleep(0.05)

    while not any(word == "up" for _, word, _ in machine.words()):
        if machine.process.status is not None or time.monotonic() - machine.began > 120:
            return False
        time.sleep(0.02)
    threads = [threading.Thread(target=ask_for, args=(url,)) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return machine.wait() is not None


def wait_for_deliveries(application, machine):
    def came():
        requests = map(application.requests_for, application.targets())
        return sum(any(one.status == 201 for one in each) for each in requests)

    if wait(60, lambda: came() == UPLOADS, 0.2):
        return []
    return [f"{came()} of {UPLOADS} reached the application within 60 s", machine.ask("list")]
