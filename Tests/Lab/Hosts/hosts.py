#!/usr/bin/env python3
"""Several hosts with their own kernels: two QEMU guests on one CephFS or with one replicated disk (`make
hosts-test`).

Environment: HOSTS_KINDS, some of `own kernel fuse pair` (default: all); HOSTS_SCENES, some of the words that a run
prints (default: all); HOSTS_ROUNDS, power failures of each kind (default 4); HOSTS_PREVIOUS, another build of the
program, for the rolling upgrade (default: the same); CLUSTER_UPLOADS, CLUSTER_ROUNDS, CLUSTER_SEED,
CLUSTER_SCRATCH, CLUSTER_KEEP and SPOOLGATE as for `make cluster-test`. Exit status: 0 if all assertions hold or the
test cannot run here, else 1. With --check it only reports what prevents the test: then 1, else 0.
"""

import os
import random
import shutil
import sys

sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path += [os.path.join(TESTS, name) for name in ("Cluster", "Drill")]
# Last, since some of its modules have the same names as the cluster's.
sys.path.append(os.path.join(TESTS, "Power"))

import ceph
import fail_overs
import gateway
import guest
import image
import namespaces
import network
import network_cuts
import polling
import power_cuts
import upgrade
from hosts_world import HostsWorld
from pair import PairWorld
from processes import Unavailable
from scenes import boots, dead_node, kills, node_loss, other_node, own_spools
from transcript import Transcript

NAME = "spoolgate-hosts-"
BUILD = os.path.join(gateway.ROOT, ".build/hosts")

SHARED = {
    "other": ("every request to the other node", other_node.play),
    "boots": ("a node restarts, and commands on both", boots.play),
    "dead": ("the deliveries of a dead node", dead_node.play),
    "loss": ("a node is lost, fenced, and wakes", node_loss.play),
    "upgrade": ("a rolling upgrade", upgrade.play),
    "network": ("a host loses its storage", network_cuts.play),
    "polling": ("the cost of polling for requests of other nodes", polling.play),
    "kills": ("kill -9 at every moment", kills.play),
    "power": ("power failures of one host", lambda *words: power_cuts.play(*words, rounds())),
}
SCENES = {
    "own": {"spools": ("a node dies with uploads open", own_spools.play)},
    # Without `kills`: if the daemon is killed while it acquires a lock, this client leaves the lock on the server.
    "kernel": {name: scene for name, scene in SHARED.items() if name != "kills"},
    "fuse": SHARED,
    "pair": {"power": ("power failures of the active host", lambda *words: fail_overs.play(*words, rounds()))},
}
TITLES = {
    "own": "A spool for each host",
    "kernel": "One CephFS, by the hosts' kernels",
    "fuse": "One CephFS, by ceph-fuse",
    "pair": "One replicated disk",
}


def rounds():
    return int(os.environ.get("HOSTS_ROUNDS") or 4)


def inside():
    transcript = Transcript()
    seed = int(os.environ.get("CLUSTER_SEED") or random.SystemRandom().randrange(1 << 32))
    accelerator = guest.accelerator(BUILD, "hosts.cpio", "HOST ")
    transcript.say(f"{gateway.program()}, CLUSTER_SEED={seed}, guests by {accelerator}")
    network.start()
    for kind in chosen("HOSTS_KINDS", SCENES):
        play(kind, seed, accelerator, transcript)
    print(f"\n{transcript.passed} passed, {transcript.failed} failed", flush=True)
    return 1 if transcript.failed else 0


def outside():
    program = gateway.program()
    previous = os.environ.get("HOSTS_PREVIOUS") or program
    image.build(BUILD, {"spoolgate": program, "spoolgate-previous": previous})
    return namespaces.play(
        __file__, NAME, os.environ.get("CLUSTER_SCRATCH", "/var/tmp"), has_network=True
    )


def obstacle():
    """The reason why the test cannot run here; None if it can."""
    if os.geteuid() != 0:
        return "it creates networks and mounts file systems, which requires root"
    for tool in ("setpriv", "unshare", "nginx", "ip"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            return f"{tool} is missing (deploy/install-dependencies.sh hosts)"
    if not os.path.exists("/dev/net/tun"):
        return "/dev/net/tun is missing"
    if {"kernel", "fuse"} & set(chosen("HOSTS_KINDS", SCENES)) and ceph.missing():
        return ceph.missing()
    return image.missing() or namespaces.missing()


def chosen(variable, all_of_them):
    wanted = os.environ.get(variable, "").split()
    return [name for name in all_of_them if not wanted or name in wanted]


def play(kind, seed, accelerator, transcript):
    scratch = sys.argv[2]
    if kind == "pair":
        world = PairWorld(scratch, BUILD, accelerator)
    else:
        world = HostsWorld(scratch, kind, BUILD, accelerator)
    with world:
        transcript.say(f"{TITLES[kind]}: up in {world.seconds} s")
        for name in chosen("HOSTS_SCENES", SCENES[kind]):
            title, scene = SCENES[kind][name]
            transcript.scene(f"{TITLES[kind]}: {title} ({name})")
            failed = transcript.failed
            try:
                if kind != "pair":
                    world.heal()
                scene(world, transcript, random.Random(f"{seed} {kind} {name}"))
            except Exception as error:  # noqa: BLE001: the next scenes are still useful
                transcript.check(False, f"ended early: {type(error).__name__}: {error}")
            if transcript.failed > failed:
                world.tell(transcript, f"{kind}-{name}-")


if __name__ == "__main__":
    missing = (Unavailable, guest.Unavailable)
    sys.exit(namespaces.command("make hosts-test", obstacle, outside, inside, missing))
