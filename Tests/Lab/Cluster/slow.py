#!/usr/bin/env python3
"""Many slow uploads at once over several nodes with separate spools: their cost, and the waits of other clients.

    sudo Tests/Lab/Cluster/slow.py [UPLOADS [SECONDS [NODES]]]

The number of descriptors of a process is limited (ulimit -Hn): a gateway reserves five for each upload and nginx
needs two, so more uploads need more nodes. Each upload sends 500 bytes every five seconds. Meanwhile a client
retrieves the offset of an idle upload on each node, with a new connection each time. At the end every upload is
completed and must receive 201: none may be lost. The clients have many addresses, since nginx and the gateways
limit each client.
"""

import os
import resource
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from Cluster.front import Front
from Cluster.gateway import Gateway
from Cluster.wire import Closed, ask
from lab import slow
from lab.processes import children

PORTION = 500
PAUSE = 5.0
PER_ADDRESS = 500
OPENINGS = 400  # per second
LENGTH = 60_000
PROCESSES = 4  # of clients, since one cannot have so many descriptors


def address(number):
    return f"127.1.{number // PER_ADDRESS // 250}.{1 + number // PER_ADDRESS % 250}"


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
            except Closed:
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
    return [pid] + [each for child in children(pid) for each in tree(child)]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60
    nodes = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="spoolgate-slow-") as directory:
        # nginx's workers run as an unprivileged user.
        os.chmod(directory, 0o755)
        threads = count * 6 // 5 // nodes + 200
        gateways = [
            Gateway(name, directory, f"{directory}/spool-{name}", "directory:" + directory, False, threads)
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
    uploads = {"resumes": False, "length": LENGTH, "fields": ("Upload-Draft-Interop-Version: 10",)}
    plan = slow.Plan(front.port, count, PORTION, PAUSE, OPENINGS, address, **uploads)
    clients = slow.Clients(plan, PROCESSES)
    time.sleep(count / OPENINGS)
    begun = 0
    while begun < count:
        time.sleep(1)
        begun += clients.counts()["begun"]
    prober = Prober(front.port, list(idle.values()))
    prober.start()
    time.sleep(seconds)
    prober.is_ending.set()
    prober.join()
    held = [memory(tree(each.identity)) for each in (*nodes, front)]
    used = free - available()
    threads = [len(os.listdir(f"/proc/{tree(node.identity)[-1]}/task")) for node in nodes]
    answered = clients.finish()
    clients.stop()
    times = sorted(prober.times)
    grown = [round(now - then) for now, then in zip(held, before)]
    print(f"{count} slow uploads, statuses {dict(answered)}")
    print(f"threads {threads}; MiB more: gateways {grown[:-1]}, nginx {grown[-1]}, with clients and kernel {used:.0f}")
    print(f"KiB an upload: gateways {1024 * sum(grown[:-1]) / count:.1f}, nginx {1024 * grown[-1] / count:.1f}")
    print(
        f"HEAD: {len(times)}, {prober.failures} failed, p50 {1000 * times[len(times) // 2]:.1f} ms, "
        f"p99 {1000 * times[len(times) * 99 // 100]:.1f} ms, most {1000 * times[-1]:.1f} ms"
    )
    sys.exit(answered[201] != count or prober.failures > 0)


if __name__ == "__main__":
    main()
