"""One spool: a host loses power, and another one continues its uploads."""

import time

import cut_rounds
from Cluster.oracle import Death
from Cluster.scenes.kills import held_as_told, was_begun
from Cluster.wire import Closed, ask
from Cluster.world import NODES
from lab.processes import wait

# One of this many rounds waits until Ceph drops the dead host's locks; in the others the host is fenced at once.
UNAIDED = 10


def play(world, transcript, draw, rounds):
    takeovers = {"shut out": [], "left to Ceph": []}
    boots = []
    since = {name: len(gateway.log()) for name, gateway in world.gateways.items()}

    def strike(number, clients, node, deaths):
        name = node or draw.choice(NODES)
        kind = "left to Ceph" if number % UNAIDED == UNAIDED - 1 else "shut out"
        sessions = world.mounts[name].sessions()
        world.hosts[name].cut_power()
        deaths.append(Death(name, time.monotonic()))
        # From now on requests go to the other host.
        for client in clients:
            client._route = lambda request: world.other(name)
        world.moments.go_on()
        if kind == "shut out":
            for session in sessions:
                world.ceph.command("tell", "mds.a", "client", "evict", f"id={session}")
        takeovers[kind].append(takeover(world, clients, world.other(name), deaths[-1].time))
        boots.append(world.power_on(name))
        return kind

    everybody = cut_rounds.play(
        world, transcript, draw, rounds, strike, lambda one: was_begun(world, one)
    )
    for kind, seconds in takeovers.items():
        if seconds:
            known = [one for one in seconds if one is not None]
            words = cut_rounds.middle(known) if known else "none"
            transcript.check(len(known) == len(seconds), f"takeover, {kind}: {words}", seconds)
    transcript.say(f"  a host responds {sum(boots) / len(boots):.1f} s after its power is back")
    allowed = (r'msg="delivery outcome unknown"|spoolgate stopped during|delivery deferred',)
    said = [
        line
        for name, gateway in world.gateways.items()
        for line in gateway.complaints(since[name], allowed)
    ]
    transcript.check(not said, "the nodes log no other warning", "\n".join(said[:20]))
    held_as_told(world, transcript, everybody)


def takeover(world, clients, node, death):
    """Seconds from the death until the other node has returned the offset of every upload it was asked for."""
    left = [c for c in clients if c.creations and c.current.location and c.end is None]

    def is_told(client):
        try:
            answer = ask(
                world.front.port, "HEAD", client.current.location, {"X-Node": node}
            )
        except Closed:
            return client.end is not None
        return answer.status in (204, 404, 410, 201, 200) or client.end is not None

    told = wait(150, lambda: all(is_told(client) for client in left), 0.1)
    return time.monotonic() - death if told else None
