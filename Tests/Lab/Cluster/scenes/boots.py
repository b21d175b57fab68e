"""One spool: a node restarts, as after a reboot, while the other has uploads open; commands on both.

Each start of a node uses another boot identity, as on separate machines.
"""

import time

from Cluster.client import ANSWERED
from Cluster.oracle import check_once, deliveries, judge
from Cluster.world import NODES
from lab.processes import must, wait

OPEN = 10


def play(world, transcript, draw):
    one, two = (world.gateways[name] for name in NODES)
    # One half are requests without an acknowledged offset; the other half wait for their clients.
    running = [running_upload(world, draw, number) for number in range(OPEN)]
    waiting = [waiting_upload(world, draw, number) for number in range(OPEN)]
    told = {client: client.current.told for client, *_ in [*running, *waiting]}
    since = len(one.log())

    status = two.restart()
    two.crash()
    must(20, "n2 has recovered the spool", lambda: "spool recovered" in two.log()[-20_000:])
    time_to_look(world)
    transcript.check(status == 0 and one.status() is None, "n2 was restarted, and killed and started", status)
    same = [c for c, *_ in waiting if all(c.ask_node(name).offset == told[c] for name in NODES)]
    transcript.check(
        len(same) == len(waiting),
        f"{len(same)} of {len(waiting)} waiting uploads of n1 have the same offset on both nodes",
    )
    gone = [client for client, exchange in running if not finish(client, exchange)]
    transcript.check(
        not gone,
        f"{len(running) - len(gone)} of {len(running)} unacknowledged uploads that n1 receives end in the same request",
        "\n".join(str(client.faults) for client in gone),
    )
    clients = [client for client, *_ in [*running, *waiting]]
    world.run([client for client, *_ in waiting], 60)
    check_once(transcript, world.application, clients)
    said = one.complaints(since)
    transcript.check(not said, "n1 logs no warning", "\n".join(said))
    commands(world, transcript, draw)


def time_to_look(world):
    """Waits until both nodes have run their queues since the last event."""
    # The log has no line for a run that found nothing.
    later = time.monotonic() + 35
    must(40, "two queue runs", lambda: time.monotonic() > later)


def running_upload(world, draw, number):
    """An upload created on n1, whose content is too short for an acknowledgement during the request."""
    if world.front.has_module:
        return world.begin_whole(draw, f"running{number}", on_n1)
    client = world.begin(draw, f"running{number}", on_n1, content=draw.randbytes(60_000))
    return client, client.begin_rest(30_000)


def on_n1(request):
    return "n1"


def finish(client, exchange):
    client.current.sent = len(client.task.content)
    exchange.send(client.task.content[30_000:])
    client.take(exchange.final())
    return client.end == ANSWERED


def waiting_upload(world, draw, number):
    client = world.begin(draw, f"waiting{number}", on_n1, largest=1 << 18)
    client.append(0, draw.randrange(len(client.task.content)))
    return (client,)


def commands(world, transcript, draw):
    """hold, release, requeue and purge, each on the node that does not have the upload."""
    application = world.application
    application.hold_back()
    clients = []
    for number, name in enumerate(NODES):
        values = {"orders": "?refuse=1", "method": "PUT"}
        client = world.begin(draw, f"held{number}", lambda request, name=name: name, 1 << 16, **values)
        client.append(0, len(client.task.content))
        clients.append(client)
    identities = [client.current.identity for client in clients]
    states = [hold(world, name, identity) for name, identity in zip(reversed(NODES), identities)]
    transcript.check(
        all(state == {"held"} for state in states),
        "an upload of each node is held by a command on the other, and both list it as held",
        states,
    )
    heard = len(application.requests)
    application.release()
    time_to_look(world)
    transcript.check(len(application.requests) == heard, "neither node sends held uploads")
    for name, identity in zip(NODES, identities):
        world.gateways[name].command("release", identity)
    for client in clients:
        client.run(time.monotonic() + 30)
    requests = deliveries(application, clients)[1]
    faults = judge(application, clients)
    transcript.check(
        all(client.end == ANSWERED for client in clients) and not faults,
        f"released by a command on its node: {len(clients)} delivered, {requests} attempts, refusals included",
        "\n".join(faults),
    )
    removed = [purge(world, draw, number, name) for number, name in enumerate(NODES)]
    transcript.check(
        removed == [{404}, {404}],
        "purge on one node removes the other's uploads; both respond 404",
        removed,
    )


def hold(world, node, identity):
    """Holds an upload with a command on a node; returns the states that both nodes list."""
    # It is locked during an attempt.
    gateway = world.gateways[node]
    wait(20, lambda: "held" in gateway.command("hold", identity, must_succeed=False), 0.3)
    return {each.uploads()[identity]["state"] for each in world.gateways.values()}


def purge(world, draw, number, node):
    (client,) = waiting_upload(world, draw, f"-purged{number}")
    world.gateways[node].command("purge", "--force", client.current.identity)
    return {client.ask_node(name).status for name in NODES}
