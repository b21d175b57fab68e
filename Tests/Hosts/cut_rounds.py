"""Power cuts at every moment of an upload's life, round after round, and what must hold after each."""

import time

from client import ANSWERED
from moments import ALL
from oracle import ends, judge
from scenes.kills import CLIENTS, client_of


def play(world, transcript, draw, rounds, strike, was_begun, after=lambda: ""):
    """Plays the rounds; all clients.

    At its moment each round calls `strike(number, clients, node, deaths)`, with the node of the moment or None. It cuts the
    power, appends the death, has the moment go on, and returns once another node serves: what to print of it. A replay is
    requested next. `after` prepares the next round, and returns what to print of that. `was_begun` is the oracle's.
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
            # A power failure may take back what was answered at once: no offset of it was told.
            if client.end == ANSWERED and client.current.is_promised:
                client.check_replay(world.replaying(draw), 60)
                replays += client.replays
        found = judge(world.application, clients, deaths, was_begun)
        faults += [f"round {number}, {moment}: {fault}" for fault in found]
        transcript.say(
            f"  round {number}: {moment}, {deaths[-1].node} lost its power, {''.join(said)}, {ends(clients)}{after()}"
            + (f"; {len(found)} FAULTS: {found[:2]}" if found else "")
        )
        everybody += clients
    transcript.check(
        not faults,
        f"{rounds} power cuts, {len(everybody)} uploads: {ends(everybody)}; {replays} replays;"
        f" no acknowledged byte lost, no POST twice; {missed} moments missed",
        "\n".join(faults),
    )
    return everybody


def middle(seconds):
    """The median and the longest, in words."""
    known = sorted(seconds)
    return f"median {known[len(known) // 2]:.1f} s, longest {known[-1]:.1f} s of {len(known)}"
