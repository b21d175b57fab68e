#!/usr/bin/env python3
"""Slow clients that return a second after their connection is closed, at 80 to 150 percent of `threads.maximum`, next
to a client that retrieves an offset and one that uploads; then clients that send almost nothing.

usage: crowd.py [--threads 400] [--seconds 20] [--rate 100] [--steps 80,90,95,120,150] [--report]

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
import json
import sys
import threading
import time

from attack import Stage
from lab import exchange, slow
from lab.http1 import Closed
from lab.processes import processor

PERIOD = 5
SETTLE = 10
# Clients that begin in a second.
OPENINGS = 200
LONGEST_HEAD = 0.005
LONGEST_CREATION = 0.1
MOST_PROCESSOR = 0.1
MOST_ENDS = 5


def address(number):
    return f"127.0.{1 + number // 250 % 250}.{1 + number % 250}"


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
        answer = exchange.ask(port, "POST", "/files/other.bin", {"Upload-Complete": "?1"}, b"y" * 1000,
                              source="127.0.0.3", patience=60)
        return time.monotonic() - begin, answer.status, answer.number("Retry-After")
    except Closed as error:
        return time.monotonic() - begin, repr(error), None


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0


def measure(arguments, percent):
    """Runs one step on a new gateway; returns its figures."""
    stage = Stage(False, arguments.threads)
    try:
        victim = stage.create("files", "127.0.0.2")
        count = arguments.threads * percent // 100
        clients = slow.Clients(slow.Plan(stage.port, count, arguments.rate * PERIOD, PERIOD, OPENINGS, address))
        time.sleep(2 * count / OPENINGS + 2 + SETTLE)
        clients.counts()
        asker = stage.asker(victim)
        creator = Creator(stage.port)
        begin, used = time.monotonic(), processor(stage.gateway.identity)
        time.sleep(arguments.seconds)
        spent, used = time.monotonic() - begin, processor(stage.gateway.identity) - used
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
    stage = Stage(False, arguments.threads)
    try:
        plan = slow.Plan(stage.port, arguments.threads, 1, 50, OPENINGS, address, resumes=False, length=1_000_000)
        clients = slow.Clients(plan)
        time.sleep(arguments.threads / OPENINGS + 2)
        begin, statuses = time.monotonic(), []
        while time.monotonic() - begin < 60:
            _, status, pause = create(stage.port)
            statuses.append(status)
            if status != 503:
                break
            time.sleep(pause)
        wait = time.monotonic() - begin
        clients.stop()
    finally:
        stage.stop()
    print(f"{arguments.threads} threads with a byte in 50 s: a creation received {statuses} in {wait:.0f} s")
    return statuses[-1] == 201


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
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
