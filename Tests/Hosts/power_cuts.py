"""One spool: the power of a host goes at every moment of an upload's life, round after round."""

import time

from client import ANSWERED
from moments import ALL
from oracle import Death, ends, judge
from processes import wait
from scenes.kills import CLIENTS, client_of, held_as_told, was_begun
from wire import Cut, ask
from world import NODES

# Of so many rounds one leaves it to Ceph to give up the dead host's locks; in the others it is shut out at once.
UNAIDED = 10


def play(world, transcript, draw, rounds):
    faults, everybody, deaths, missed, replays = [], [], [], 0, 0
    takeovers, unaided, boots = [], [], []
    since = {name: len(gateway.log()) for name, gateway in world.gateways.items()}
    for number in range(rounds):
        moment = ALL[number % len(ALL)]
        is_aided = number % UNAIDED != UNAIDED - 1
        clients = [client_of(world, draw, f"-power{number}", index) for index in range(CLIENTS)]
        world.moments.look_out(moment, draw.randrange(1, 8))
        came = []

        def trouble(draw=draw, clients=clients, is_aided=is_aided, came=came):
            happened, name = world.moments.wait(10)
            time.sleep(draw.uniform(0, 0.01))
            name = name or draw.choice(NODES)
            sessions = world.mounts[name].sessions()
            world.hosts[name].cut_power()
            deaths.append(Death(name, time.monotonic()))
            came.append(happened)
            # From now on the other host is asked.
            for client in clients:
                client._route = lambda request, other=world.other(name): other
            world.moments.go_on()
            if is_aided:
                for session in sessions:
                    world.ceph.command("tell", "mds.a", "client", "evict", f"id={session}")
            seconds = takeover(world, clients, world.other(name), deaths[-1].time)
            (takeovers if is_aided else unaided).append(seconds)
            boots.append(world.power_on(name))

        world.run(clients, 200, at_a_time=CLIENTS, beside=trouble)
        missed += not all(came)
        for client in clients:
            # A power failure may take back what was answered at once: no offset of it was told.
            if client.end == ANSWERED and client.current.is_promised:
                client.check_replay(draw.choice(NODES), 60)
                replays += client.replays
        found = judge(world.application, clients, deaths, lambda one: was_begun(world, one))
        faults += [f"round {number}, {moment}: {fault}" for fault in found]
        transcript.say(
            f"  round {number}: {moment}, {deaths[-1].node} lost its power"
            f" ({'shut out' if is_aided else 'left to Ceph'}), {ends(clients)}"
            + (f"; {len(found)} FAULTS: {found[:2]}" if found else "")
        )
        everybody += clients
    transcript.check(
        not faults,
        f"{rounds} power cuts, {len(everybody)} uploads: {ends(everybody)}; {replays} replays;"
        f" no acknowledged byte lost, no POST twice; {missed} moments missed",
        "\n".join(faults),
    )
    for what, seconds in (("shut out at once", takeovers), ("left to Ceph", unaided)):
        known = sorted(one for one in seconds if one is not None)
        if seconds:
            transcript.check(
                len(known) == len(seconds),
                f"takeover, {what}: median {known[len(known) // 2]:.1f} s, longest {known[-1]:.1f} s"
                f" of {len(known)}",
                seconds,
            )
    transcript.say(f"  a host answers {sum(boots) / len(boots):.1f} s after its power is back")
    allowed = (r'msg="outcome unknown"|the process ended during|delivery deferred',)
    said = [
        line
        for name, gateway in world.gateways.items()
        for line in gateway.complaints(since[name], allowed)
    ]
    transcript.check(not said, "the nodes complain of nothing else", "\n".join(said[:20]))
    held_as_told(world, transcript, everybody)


def takeover(world, clients, node, death):
    """Seconds from the death until the other node tells the offset of every upload that it was asked for."""
    left = [c for c in clients if c.creations and c.current.location and c.end is None]

    def is_told(client):
        try:
            answer = ask(
                world.front.port, "HEAD", client.current.location, {"X-Node": node}
            )
        except Cut:
            return client.end is not None
        return answer.status in (204, 404, 410, 201, 200) or client.end is not None

    told = wait(150, lambda: all(is_told(client) for client in left), 0.1)
    return time.monotonic() - death if told else None
