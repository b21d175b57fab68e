"""One spool: one node after the other is updated to another build, during uploads."""

import threading
import time

from Cluster.oracle import check_once, ends
from Cluster.scenes.kills import client_of
from Cluster.world import NODES

CLIENTS = 24


def play(world, transcript, draw):
    for name in NODES:
        world.gateways[name].program = "spoolgate-previous"
        world.gateways[name].restart()
    before = version(world)
    clients = [client_of(world, draw, f"-upgrade{number}", number) for number in range(CLIENTS)]
    done = threading.Event()

    def upgrade():
        for name in NODES:
            time.sleep(1)
            world.gateways[name].program = "spoolgate"
            status = world.gateways[name].restart()
            transcript.check(status == 0, f"{name} ended cleanly, and serves with the new build")
        done.set()

    world.run(clients, 120, at_a_time=4, beside=upgrade)
    check_once(transcript, world.application, clients)
    transcript.check(done.is_set(), f"from {before} to {version(world)}, {ends(clients)} meanwhile")


def version(world):
    return ", ".join(node.command("--version").strip() for node in world.gateways.values())
