#!/usr/bin/env python3
"""Several nodes of spoolgate behind one nginx, with separate spools and with a shared one (`make cluster-test`).

Environment: CLUSTER_SCENES, the numbers of the scenes to run (default: all); CLUSTER_UPLOADS (default 200) and
CLUSTER_ROUNDS (default 100) of the random scenes; CLUSTER_SEED, their seed; CLUSTER_SCRATCH, the working directory
(default: /var/tmp); CLUSTER_KEEP, a directory for the nodes' logs after a failure; CLUSTER_PAGE_CACHE, not empty:
with the kernel's page cache; SPOOLGATE, the program. Exit status: 0 if all assertions hold or the test cannot run
here, else 1. With --check it only reports what prevents the test: then 1, else 0.
"""

import os
import random
import shutil
import sys

# root must not write into the working tree.
sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(HERE), "Drill"))

import ceph
import gateway
import namespaces
from processes import Unavailable
from scenes import SCENES
from transcript import Transcript
from world import World

NAME = "spoolgate-cluster-"


def inside():
    transcript = Transcript()
    seed = int(os.environ.get("CLUSTER_SEED") or random.SystemRandom().randrange(1 << 32))
    transcript.say(f"{gateway.program()}, CLUSTER_SEED={seed}")
    scenes = chosen()
    for is_shared in (False, True):
        wanted = [scene for scene in scenes if scene.is_shared == is_shared]
        if wanted:
            play(wanted, is_shared, seed, transcript)
    print(f"\n{transcript.passed} passed, {transcript.failed} failed", flush=True)
    return 1 if transcript.failed else 0


def outside():
    gateway.program()
    return namespaces.play(__file__, NAME, os.environ.get("CLUSTER_SCRATCH", "/var/tmp"))


def obstacle():
    """The reason why the test cannot run here; None if it can."""
    if os.geteuid() != 0:
        return "it mounts file systems, which requires root"
    for tool in ("setpriv", "unshare", "nginx"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            return f"{tool} is missing (deploy/install-dependencies.sh cluster)"
    if any(scene.is_shared for scene in chosen()) and ceph.missing():
        return ceph.missing()
    return namespaces.missing()


def chosen():
    wanted = os.environ.get("CLUSTER_SCENES", "").split()
    return [scene for scene in SCENES if not wanted or str(scene.number) in wanted]


def play(scenes, is_shared, seed, transcript):
    with World(sys.argv[2], is_shared) as world:
        transcript.say(
            f"two nodes, up in {world.seconds} s, {'one spool' if is_shared else 'a spool each'}"
        )
        for scene in scenes:
            transcript.scene(f"{scene.number}. {scene.title}")
            failed = transcript.failed
            try:
                world.heal()
                scene.play(world, transcript, random.Random(f"{seed} {scene.number}"))
            except Exception as error:  # noqa: BLE001: the next scenes are still useful
                transcript.check(False, f"ended early: {type(error).__name__}: {error}")
            if transcript.failed > failed:
                world.tell(transcript)


if __name__ == "__main__":
    sys.exit(namespaces.command("make cluster-test", obstacle, outside, inside, Unavailable))
