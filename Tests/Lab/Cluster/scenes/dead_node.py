"""One spool: a node dies while it sends, and without a request the other node repairs everything."""

import collections
import time

from Cluster.oracle import Death, judge
from lab.processes import must, wait

EACH = 5


def play(world, transcript, draw):
    application = world.application
    application.hold_back()
    one, two = world.gateways["n1"], world.gateways["n2"]
    began = [sending(world, draw, f"dead-post{number}", "POST") for number in range(EACH)]
    if world.front.has_module:
        told = [sending(world, draw, f"dead-told{number}", "PUT", True) for number in range(EACH)]
    else:
        told = []
    began += [sending(world, draw, f"dead-put{number}", "PUT") for number in range(EACH)]
    began += told
    clients = [client for client, _ in began]
    must(20, "the application receives all", lambda: all(heard(world, c) for c in clients))
    starts = two.starts
    one.kill()
    runs = two.queue_runs()
    death = Death("n1", time.monotonic())
    application.release()
    resolved = wait(90 * world.slowness, lambda: is_resolved(two, clients))
    seconds = time.monotonic() - death.time
    # One of them was in progress.
    runs = two.queue_runs() - runs
    found = collections.Counter(
        f"{client.task.method} {state}, sent {heard(world, client)} times"
        for client, state in zip(clients, states(two, clients))
    )
    transcript.check(
        resolved and runs <= 3 * world.slowness,
        f"n1 died during {len(clients)} deliveries: n2 has repaired all after {seconds:.1f} s and"
        f" {runs} of its queue runs",
        found,
    )
    transcript.check(
        found["POST indeterminate, sent 1 times"] == EACH
        and found["PUT delivered, sent 2 times"] >= len(told)
        # An upload to be retried is durable only if that was acknowledged to its client; otherwise it waits for its
        # client.
        and found["PUT delivered, sent 2 times"] + found["PUT partial, sent 1 times"]
        == EACH + len(told),
        ", ".join(f"{count} {what}" for what, count in sorted(found.items())),
    )
    transcript.check(two.starts == starts and two.status() is None, "and n2 was not restarted")
    for client, exchange in began:
        exchange.close()
    for client in clients:
        client.run(time.monotonic() + 30)
    faults = judge(application, clients, [death])
    transcript.check(not faults, "their clients, back on n2, receive the results", "\n".join(faults))
    one.start()
    same = wait(10, lambda: one.uploads().keys() == two.uploads().keys())
    transcript.check(same, "n1 is back, and lists the same uploads as n2")


def sending(world, draw, name, method, is_told=False):
    """An upload that n1 sends to the application, which does not respond."""
    route = lambda request: "n1" if request < 2 else "n2"  # noqa: E731
    client = world.begin(draw, name, route, 1 << 18, orders="?wait=1", method=method)
    size = len(client.task.content)
    exchange = client.begin_rest(size)
    if is_told:
        must(20, "a heartbeat", lambda: exchange.listen(0.1) and client.current.told == size)
    return client, exchange


def heard(world, client):
    found = world.application.requests_for(client.current.target)
    return sum(one.is_whole for one in found)


def states(gateway, clients):
    listed = gateway.uploads()
    return [listed.get(one.current.identity, {"state": "gone"})["state"] for one in clients]


def is_resolved(gateway, clients):
    return not {"delivering", "receiving", "deferred"} & set(states(gateway, clients))
