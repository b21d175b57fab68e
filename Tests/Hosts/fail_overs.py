"""One replicated disk: the power of the active host goes at every moment of an upload's life, and the passive one takes over."""

import time

from client import ANSWERED
from moments import ALL
from oracle import Death, ends, judge
from scenes.kills import CLIENTS, INTERRUPTED, client_of


def play(world, transcript, draw, rounds):
    faults, everybody, deaths, missed, replays = [], [], [], 0, 0
    takeovers, resyncs = [], []
    for number in range(rounds):
        moment = ALL[number % len(ALL)]
        clients = [client_of(world, draw, f"-pair{number}", index) for index in range(CLIENTS)]
        for client in clients:
            client._route = lambda request: None
        world.moments.look_out(moment, draw.randrange(1, 8))
        came = []

        def trouble(draw=draw, came=came):
            happened, _ = world.moments.wait(10)
            time.sleep(draw.uniform(0, 0.01))
            came.append(happened)
            deaths.append(Death(world.active, world.cut_power()))
            world.moments.go_on()
            world.fail_over()
            takeovers.append(time.monotonic() - deaths[-1].time)

        world.run(clients, 120, at_a_time=CLIENTS, beside=trouble)
        missed += not all(came)
        for client in clients:
            # A power failure may take back what was answered at once: no offset of it was told.
            if client.end == ANSWERED and client.current.is_promised:
                client.check_replay()
                replays += client.replays
        found = judge(world.application, clients, deaths, lambda one: was_begun(world, one))
        faults += [f"round {number}, {moment}: {fault}" for fault in found]
        resyncs.append(world.rejoin())
        transcript.say(
            f"  round {number}: {moment}, {deaths[-1].node} lost its power, the other serves after"
            f" {takeovers[-1]:.1f} s, {ends(clients)}, the disks are alike after {resyncs[-1]:.1f} s"
            + (f"; {len(found)} FAULTS: {found[:2]}" if found else "")
        )
        everybody += clients
    transcript.check(
        not faults,
        f"{rounds} power cuts, {len(everybody)} uploads: {ends(everybody)}; {replays} replays;"
        f" no acknowledged byte lost, no POST twice; {missed} moments missed",
        "\n".join(faults),
    )
    for what, seconds in (("takeover", takeovers), ("disks alike again", resyncs)):
        known = sorted(seconds)
        transcript.say(f"  {what}: median {known[len(known) // 2]:.1f} s, longest {known[-1]:.1f} s")
    active = world.gateways[world.active]
    corrupt = [one for one in active.uploads().values() if one["state"] == "corrupt"]
    transcript.check(not corrupt, "nothing is corrupt", corrupt)


def was_begun(world, identity):
    one = world.gateways[world.active].uploads()[identity]
    return (one["state"], one["attempts"], one["reason"]) == ("indeterminate", 1, INTERRUPTED)
