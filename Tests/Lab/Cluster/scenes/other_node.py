"""One spool: random uploads, each request to the other node than the previous one."""

import os
import time

from Cluster.client import ANSWERED, Task
from Cluster.oracle import deliveries, ends, judge
from Cluster.world import NODES


def play(world, transcript, draw):
    count = int(os.environ.get("CLUSTER_UPLOADS") or 200)
    since = world.log_sizes()
    clients = []
    for number in range(count):
        task = Task(f"{draw.random()}")
        task.number = f"other{number}"
        if number % 20 == 0:
            # The application aborts the first attempt.
            task.orders = "?break=1"
        first = draw.randrange(2)
        clients.append(world.client(task, lambda n, first=first: NODES[(first + n) % 2]))
    began = time.monotonic()
    world.run(clients, 300)
    seconds = time.monotonic() - began
    answered = [client for client in clients if client.end == ANSWERED]
    for client in answered:
        last = client.requests[-1][1]
        client.check_replay(world.other(last))
    faults = judge(world.application, clients)
    requests = sum(len(client.requests) for client in clients)
    transcript.check(
        not faults,
        f"{count} uploads, {requests} requests, each to the other node ({seconds:.0f} s): {ends(clients)};"
        " no acknowledged byte lost",
        "\n".join(faults),
    )
    unbroken = [client for client in clients if not client.task.orders]
    once, heard = deliveries(world.application, unbroken)
    is_once = once == heard == len(unbroken)
    transcript.check(is_once, f"{once} of {len(unbroken)} delivered once and identical, {heard} requests")
    broken = [client for client in clients if client.task.orders]
    transcript.check(
        all((client.end == ANSWERED) == (client.task.method == "PUT") for client in broken),
        f"{len(broken)} whose first attempt the application aborted: PUT delivered, POST held",
        "\n".join(f"{client.task.method} {client.end}" for client in broken),
    )
    replays = sum(client.replays for client in answered)
    transcript.check(replays == len(answered), f"{replays} responses replayed by the other node")
    # Only from uploads with orders. An aborted PUT is retried immediately on a kept-alive connection, and deferred
    # on a new one, as for the first uploads of a node.
    allowed = (
        r'msg="delivery outcome unknown" .*POST /files/uother\d+-\d+\?',
        r'msg="delivery deferred" .*PUT /files/uother\d+-\d+\?.* no response',
    )
    world.check_logs(transcript, since, "the nodes log no warning", allowed)
