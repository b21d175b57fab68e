"""One spool: a host loses the network to the storage, briefly and for longer than a session lasts."""

import time

from Cluster.client import ANSWERED
from Cluster.gateway import FENCED
from Cluster.oracle import Death, check_once, ends, judge
from Cluster.scenes.kills import client_of, was_begun
from Cluster.world import NODES
from lab.processes import must, wait

CLIENTS = 8
MOMENT = 8


def play(world, transcript, draw):
    short(world, transcript, draw)
    long(world, transcript, draw)


def short(world, transcript, draw):
    clients = [client_of(world, draw, f"-short{number}", number) for number in range(CLIENTS)]
    since = len(world.gateways["n1"].log())

    def trouble():
        time.sleep(0.3)
        world.mounts["n1"].freeze()
        time.sleep(MOMENT)
        world.mounts["n1"].thaw()

    began = time.monotonic()
    world.run(clients, 120, at_a_time=CLIENTS, beside=trouble)
    check_once(transcript, world.application, clients)
    transcript.check(
        world.gateways["n1"].status() is None and "node fenced" not in world.gateways["n1"].log()[since:],
        f"n1 was without its storage for {MOMENT} s: {ends(clients)} after"
        f" {time.monotonic() - began:.0f} s, and n1 continues",
    )


def long(world, transcript, draw):
    """Only Ceph itself fences the host."""
    one = world.gateways["n1"]
    clients = [client_of(world, draw, f"-long{number}", number) for number in range(CLIENTS)]
    since, death = len(one.log()), []

    def trouble():
        time.sleep(0.3)
        world.mounts["n1"].freeze()
        death.append(Death("n1", time.monotonic()))
        for client in clients:
            client._route = lambda request: "n2"

    world.run(clients, 200, at_a_time=CLIENTS, beside=trouble)
    seconds = time.monotonic() - death[0].time
    faults = judge(world.application, clients, death, lambda one: was_begun(world, one, ["n2"]))
    transcript.check(
        not faults,
        f"n1 remains without its storage: {ends(clients)} on n2 {seconds:.0f} s after the cut",
        "\n".join(faults),
    )
    # Ceph fences a silent client once another one needs its locks, or after mds_session_autoclose.
    gone = wait(330, lambda: not world.mounts["n1"].sessions(), 1)
    world.mounts["n1"].thaw()
    status = one.wait(90)
    said = one.log()[since:]
    transcript.check(
        gone and status == FENCED and said.count('msg="node fenced"') == 1,
        f"its network is restored: it ends with {status}, and logs the reason in one line",
        said[-1500:],
    )
    world.mounts["n1"].stop()
    world.mounts["n1"].start()
    one.start()
    both = [world.gateways[name] for name in NODES]
    must(20, "both nodes list the same uploads", lambda: both[0].uploads().keys() == both[1].uploads().keys())
    for client in clients:
        if client.end == ANSWERED:
            client.check_replay("n1")
    faults = judge(world.application, clients, death, lambda one: was_begun(world, one))
    transcript.check(not faults, "mounted and started again, it replays the responses of n2", faults)
