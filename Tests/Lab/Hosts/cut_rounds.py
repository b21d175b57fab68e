"""Power failures at every moment of an upload's life, in rounds, with the checks after each."""

import time

from Cluster.client import ANSWERED
from Cluster.moments import ALL
from Cluster.oracle import ends, judge
from Cluster.scenes.kills import CLIENTS, client_of


def play(world, transcript, draw, rounds, strike, was_begun, after=lambda: ""):
    """Plays the rounds; returns all clients.

    At its moment each round calls `strike(number, clients, node, deaths)`, with the node of the moment or None.
    `strike` cuts the power, appends the death, lets the moment continue, and returns, once another node serves, a
    text to print. Then a replay is requested. `after` prepares the next round and returns a text to print.
    `was_begun` is the oracle's.
    """
    faults, everybody, deaths, missed, replays = [], [], [], 0, 0
    for number in range(rounds):
        moment = ALL[number % len(ALL)]
        clients = [client_of(world, draw, f"-power{number}", index) for index in range(CLIENTS)]
        world.moments.look_out(moment, draw.randrange(1, 8))
        came, said = [], []

        def trouble(number=number, clients=clients, came=came, said=said):
            happened, node = world.moments.wait(10)
            came.append(happened)
            time.sleep(draw.uniform(0, 0.01))
            said.append(strike(number, clients, node, deaths))

        world.run(clients, 200, at_a_time=CLIENTS, beside=trouble)
        missed += not all(came)
        for client in clients:
            # A power failure may lose an upload whose only response was the final one: no offset was acknowledged.
            if client.end == ANSWERED and client.current.is_promised:
                client.check_replay(world.replaying(draw), 60)
                replays += client.replays
        found = judge(world.application, clients, deaths, was_begun)
        faults += [f"round {number}, {moment}: {fault}" for fault in found]
        transcript.say(
            f"  round {number}: {moment}, {deaths[-1].node} lost power, {''.join(said)}, {ends(clients)}{after()}"
            + (f"; {len(found)} FAULTS: {found[:2]}" if found else "")
        )
        everybody += clients
    transcript.check(
        not faults,
        f"{rounds} power failures, {len(everybody)} uploads: {ends(everybody)}; {replays} replays;"
        f" no acknowledged byte lost, no POST twice; {missed} moments missed",
        "\n".join(faults),
    )
    return everybody


def middle(seconds):
    """The median and the longest, as text."""
    known = sorted(seconds)
    return f"median {known[len(known) // 2]:.1f} s, longest {known[-1]:.1f} s of {len(known)}"
