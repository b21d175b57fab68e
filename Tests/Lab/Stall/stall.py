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

TOOLS = "nginx fuse-overlayfs mkfs.ext4 losetup".split()


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
    reasons = [DISKS[name].obstacle() for name in disks()]
    return reasons[0] if all(reasons) else processes.lacking("stall", *TOOLS)


if __name__ == "__main__":
    sys.exit(namespaces.command("stall", obstacle, play, prepare, limit=900))
