"""One spool: a host loses power, and another one continues its uploads."""

import time

import cut_rounds
from Cluster.oracle import Death
from Cluster.scenes.kills import held_as_told, was_begun
from Cluster.wire import Closed
from Cluster.world import NODES
from lab.processes import wait

# One of this many rounds waits until Ceph drops the dead host's locks; in the others the host is fenced at once.
UNAIDED = 10


def play(world, transcript, draw, rounds):
    takeovers = {"shut out": [], "left to Ceph": []}
    boots = []
    since = world.log_sizes()

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
            world.ceph.evict(sessions)
        takeovers[kind].append(takeover(clients, world.other(name), deaths[-1].time))
        boots.append(world.power_on(name))
        return kind

    everybody = cut_rounds.play(world, transcript, draw, rounds, strike, lambda one: was_begun(world, one))
    for kind, seconds in takeovers.items():
        if seconds:
            known = [one for one in seconds if one is not None]
            words = cut_rounds.middle(known) if known else "none"
            transcript.check(len(known) == len(seconds), f"takeover, {kind}: {words}", seconds)
    transcript.say(f"  a host responds {sum(boots) / len(boots):.1f} s after its power is back")
    allowed = (r'msg="delivery outcome unknown"|spoolgate stopped during|delivery deferred',)
    world.check_logs(transcript, since, "the nodes log no other warning", allowed)
    held_as_told(world, transcript, everybody)


def takeover(clients, node, death):
    """Seconds from the death until the other node has returned the offset of every upload it was asked for."""
    left = [c for c in clients if c.creations and c.current.location and c.end is None]

    def is_told(client):
        try:
            is_known = client.ask_node(node).status in (204, 404, 410, 201, 200)
        except Closed:
            is_known = False
        return is_known or client.end is not None

    told = wait(150, lambda: all(is_told(client) for client in left), 0.1)
    return time.monotonic() - death if told else None
