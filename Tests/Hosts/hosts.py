#!/usr/bin/env python3
"""Several hosts with kernels of their own: two QEMU guests on one CephFS or with one replicated disk (`make hosts-test`).

Environment: HOSTS_KINDS, out of `own kernel fuse pair` (default: all); HOSTS_SCENES, words out of those that a run prints
(default: all); HOSTS_ROUNDS, power cuts of each kind (default 4); HOSTS_PREVIOUS, another build of the program, for the
rolling upgrade (default: the same); CLUSTER_UPLOADS, CLUSTER_ROUNDS, CLUSTER_SEED, CLUSTER_SCRATCH, CLUSTER_KEEP and SPOOLGATE as
for `make cluster-test`. Exit status: 0 all assertions hold, or nothing could be done here; 1 not. With --check it only
says what stands in the way: then 1, else 0.
"""

import os
import random
import shutil
import sys

sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path += [os.path.join(TESTS, name) for name in ("Cluster", "Drill")]
# Last: it has other modules by the names of the cluster's.
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
    "boots": ("a node starts again, and commands on both", boots.play),
    "dead": ("what a dead node was sending", dead_node.play),
    "loss": ("a node is lost, shut out, and wakes", node_loss.play),
    "upgrade": ("a rolling upgrade", upgrade.play),
    "network": ("a host loses its storage", network_cuts.play),
    "polling": ("what looking for each other costs", polling.play),
    "kills": ("kill -9 at every moment", kills.play),
    "power": ("power cuts of one host", lambda *words: power_cuts.play(*words, rounds())),
}
SCENES = {
    "own": {"spools": ("a node dies with uploads open", own_spools.play)},
    # Not `kills`: where the daemon is killed while it asks for a lock, this client leaves the lock with the server.
    "kernel": {name: scene for name, scene in SHARED.items() if name != "kills"},
    "fuse": SHARED,
    "pair": {"power": ("power cuts of the active host", lambda *words: fail_overs.play(*words, rounds()))},
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
    """Why it cannot be done here; None if it can."""
    if os.geteuid() != 0:
        return "it makes networks and mounts file systems, for which it must be root"
    for tool in ("setpriv", "unshare", "nginx", "ip"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            return f"{tool} is not there (deploy/install-dependencies.sh hosts)"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun here"
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
            except Exception as error:  # noqa: BLE001: the next scenes still tell something
                transcript.check(False, f"ended early: {type(error).__name__}: {error}")
            if transcript.failed > failed:
                world.tell(transcript, f"{kind}-{name}-")


if __name__ == "__main__":
    missing = (Unavailable, guest.Unavailable)
    sys.exit(namespaces.command("make hosts-test", obstacle, outside, inside, missing))
