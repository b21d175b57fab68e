#!/usr/bin/env python3
"""Several nodes of spoolgate behind one nginx, with separate spools and with a shared one (`make cluster-test`).
README.md has its settings.
"""

import os
import random
import sys

# root must not write into the working tree.
sys.dont_write_bytecode = True
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from Cluster import ceph
from Cluster.scenes import SCENES
from Cluster.world import World
from lab import namespaces, processes


def play(transcript, scratch):
    seed = int(os.environ.get("CLUSTER_SEED") or random.SystemRandom().randrange(1 << 32))
    transcript.say(f"{processes.gateway()}, CLUSTER_SEED={seed}")
    for is_shared in (False, True):
        if wanted := [scene for scene in chosen() if scene.is_shared == is_shared]:
            play_in_world(wanted, World(scratch, is_shared), seed, transcript)


def obstacle():
    """The reason why the test cannot run here; None if it can."""
    reason = processes.lacking("cluster", "nginx")
    if not reason and any(scene.is_shared for scene in chosen()):
        reason = ceph.missing()
    return reason


def chosen():
    wanted = os.environ.get("CLUSTER_SCENES", "").split()
    return [scene for scene in SCENES if not wanted or str(scene.number) in wanted]


def play_in_world(scenes, world, seed, transcript):
    with world:
        spools = "one spool" if world.is_shared else "a spool each"
        transcript.say(f"two nodes, up in {world.seconds} s, {spools}")
        for scene in scenes:
            draw = random.Random(f"{seed} {scene.number}")
            world.play(transcript, f"{scene.number}. {scene.title}", scene.play, draw)


if __name__ == "__main__":
    sys.exit(namespaces.command("cluster", obstacle, play, processes.gateway))
