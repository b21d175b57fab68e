#!/usr/bin/env python3
"""Stalls a disk under uploads, and measures the responses of another location of the same nginx worker meanwhile
(`make stall-test`). README.md has its settings.
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import measure
import stage
from disks import DISKS
from lab import namespaces, processes

TOOLS = "setpriv unshare nginx fuse-overlayfs mkfs.ext4 losetup".split()


def play(transcript, scratch):
    for disk in map(DISKS.get, disks()):
        if reason := disk.obstacle():
            transcript.say(f"SKIPPED {disk.title}: {reason}")
        else:
            measure.play(disk, stage.rows(), scratch, transcript)


def disks():
    return stage.chosen("STALL_DISKS", "disk", DISKS)


def prepare():
    processes.gateway()
    stage.module()
    disks()
    stage.rows()


def obstacle():
    """The reason why this machine cannot run the test; None if it can."""
    if os.geteuid() != 0:
        return "it mounts file systems, which requires root"
    reasons = [DISKS[name].obstacle() for name in disks()]
    if all(reasons):
        return reasons[0]
    return processes.lacking("stall", *TOOLS) or namespaces.missing()


if __name__ == "__main__":
    sys.exit(namespaces.command("stall", obstacle, play, prepare, limit=900))
