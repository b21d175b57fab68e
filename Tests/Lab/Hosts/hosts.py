#!/usr/bin/env python3
"""Several hosts with their own kernels: two QEMU guests on one CephFS or with one replicated disk (`make
hosts-test`). README.md has its settings.
"""

import os
import random
import sys

sys.dont_write_bytecode = True

# Its guests are the nodes of the cluster test.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import fail_overs
import image
import network
import network_cuts
import polling
import power_cuts
import upgrade
from Cluster import ceph
from Cluster.scenes import boots, dead_node, kills, node_loss, other_node, own_spools
from hosts_world import HostsWorld
from lab import guest, namespaces, processes, qemu
from pair import PairWorld

BUILD = os.path.join(processes.ROOT, ".build/hosts")

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


def play(transcript, scratch):
    seed = int(os.environ.get("CLUSTER_SEED") or random.SystemRandom().randrange(1 << 32))
    accelerator = qemu.accelerator(BUILD, "hosts.cpio", "HOST ")
    transcript.say(f"{processes.gateway()}, CLUSTER_SEED={seed}, guests by {accelerator}")
    network.start()
    for kind in chosen("HOSTS_KINDS", SCENES):
        world = (PairWorld if kind == "pair" else HostsWorld)(scratch, kind, BUILD, accelerator)
        play_kind(kind, world, seed, transcript)


def prepare():
    program = processes.gateway()
    previous = os.environ.get("HOSTS_PREVIOUS") or program
    image.build(BUILD, {"spoolgate": program, "spoolgate-previous": previous})


def obstacle():
    """The reason why the test cannot run here; None if it can."""
    if not os.path.exists("/dev/net/tun"):
        return "/dev/net/tun is missing"
    reason = processes.lacking("hosts", "nginx", "ip", *image.PROGRAMS)
    if not reason and {"kernel", "fuse"} & set(chosen("HOSTS_KINDS", SCENES)):
        reason = ceph.missing()
    guest.check_tools()
    return reason


def chosen(variable, all_of_them):
    wanted = os.environ.get(variable, "").split()
    return [name for name in all_of_them if not wanted or name in wanted]


def play_kind(kind, world, seed, transcript):
    with world:
        transcript.say(f"{TITLES[kind]}: up in {world.seconds} s")
        for name in chosen("HOSTS_SCENES", SCENES[kind]):
            title, scene = SCENES[kind][name]
            draw = random.Random(f"{seed} {kind} {name}")
            world.play(transcript, f"{TITLES[kind]}: {title} ({name})", scene, draw, f"{kind}-{name}-")


if __name__ == "__main__":
    sys.exit(namespaces.command("hosts", obstacle, play, prepare, scratch="CLUSTER_SCRATCH", has_network=True))
