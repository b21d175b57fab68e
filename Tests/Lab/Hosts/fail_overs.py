"""One replicated disk: the active host loses power, and the passive one takes over."""

import time

import cut_rounds
from Cluster.oracle import Death
from Cluster.scenes import kills


def play(world, transcript, draw, rounds):
    takeovers, resyncs = [], []

    def strike(number, clients, node, deaths):
        for client in clients:
            client._route = lambda request: None
        deaths.append(Death(world.active, world.cut_power()))
        world.moments.go_on()
        world.fail_over()
        takeovers.append(time.monotonic() - deaths[-1].time)
        return f"the other serves after {takeovers[-1]:.1f} s"

    def after():
        resyncs.append(world.rejoin())
        return f", the disks are in sync after {resyncs[-1]:.1f} s"

    def was_begun(identity):
        return kills.was_begun(world, identity, [world.active])

    cut_rounds.play(world, transcript, draw, rounds, strike, was_begun, after)
    transcript.say(f"  takeover: {cut_rounds.middle(takeovers)}")
    transcript.say(f"  disks in sync again: {cut_rounds.middle(resyncs)}")
    uploads = world.gateways[world.active].uploads().values()
    corrupt = [one for one in uploads if one["state"] == "corrupt"]
    transcript.check(not corrupt, "no upload is corrupt", corrupt)
