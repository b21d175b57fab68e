#!/usr/bin/env python3
"""Builds the images of deploy/container from this source and runs them as a platform does (`make container-test`).
README.md has its settings.
"""

import ctypes
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import images
import podman
import scenes
from lab import namespaces, processes
from lab.processes import NeverHappened, Unavailable

TOOLS = "podman curl git ip".split()
NEW_NETWORK = 0x40000000


def play(transcript, scratch):
    try:
        play_scenes(transcript, scratch)
    except (NeverHappened, podman.Failed, subprocess.TimeoutExpired) as fault:
        transcript.check(False, "every step succeeds", fault)


def play_scenes(transcript, scratch):
    for directory in podman.RUN_DIRECTORIES:
        os.makedirs(directory, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
    machine = podman.Podman(scratch, "/" + os.path.basename(scratch))
    bases = images.bases(machine, scratch, transcript)
    if not images.build(machine, scratch, transcript, *bases):
        return
    # The containers' ports, bridges and rules are in a network namespace, which ends with this program.
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK):
        raise Unavailable("this machine has no network namespaces")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    scenes.Scenes(machine, scratch, transcript).play()


def remove_cgroups(name):
    """Removes the cgroups of killed containers, which are then empty."""
    for parent, directories, _ in os.walk("/sys/fs/cgroup"):
        if name not in directories:
            continue
        for group, _, _ in os.walk(os.path.join(parent, name), topdown=False):
            try:
                os.rmdir(group)
            except OSError:
                pass
        directories.remove(name)


def obstacle():
    """The reason why this machine cannot run the test; None if it can."""
    return processes.lacking("container", *TOOLS) or images.obstacle()


if __name__ == "__main__":
    made = [one for one in podman.RUN_DIRECTORIES if not os.path.exists(one)]
    try:
        sys.exit(namespaces.command("container", obstacle, play, limit=5400))
    finally:
        # The first process, not that of the namespaces, also removes what the containers left outside.
        if not namespaces.is_inside():
            for one in made:
                shutil.rmtree(one, ignore_errors=True)
            remove_cgroups(f"spoolgate-container-{os.getpid()}")
