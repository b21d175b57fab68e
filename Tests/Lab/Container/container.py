#!/usr/bin/env python3
"""Builds the images of deploy/container from this source and runs them as a platform does (`make container-test`).

Environment: BASE and SWIFT, the base images (default: both are created with debootstrap, the second with this
machine's Swift); CONTAINER_BUILD, further arguments of `podman build`; CONTAINER_LIMIT, the timeout of the run in
seconds (5400); CONTAINER_SCRATCH, a directory for all files (/var/tmp). Exit status: 0 all assertions hold, or the
machine cannot run the test; 1 otherwise. With --check it only reports why the machine cannot run it: then 1, else
0.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys

sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
for neighbour in ("Drill", "Cluster"):
    sys.path.append(os.path.join(os.path.dirname(HERE), neighbour))

import images
import namespaces
import podman
import scenes
from namespaces import IN_NAMESPACE
from processes import NeverHappened, Unavailable
from transcript import Transcript

NAME = "spoolgate-container-"
CHECK = "--check"
TOOLS = "podman curl git ip setpriv unshare".split()
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
NEW_NETWORK = 0x40000000


class GivenUp(BaseException):
    """The run takes longer than CONTAINER_LIMIT."""


def main():
    os.environ["PATH"] = PATH
    # The first process of the namespaces cannot remove the directory after their end, so this one does.
    if sys.argv[1:2] != [IN_NAMESPACE]:
        return outside()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(limit())
    transcript = Transcript()
    try:
        play(sys.argv[2], transcript)
    except Unavailable as reason:
        print(f"SKIPPED make container-test: {reason}")
        return 0
    except GivenUp:
        transcript.check(False, f"the run ends within {limit()} s (CONTAINER_LIMIT)")
    except (NeverHappened, podman.Failed, subprocess.TimeoutExpired) as fault:
        transcript.check(False, "every step succeeds", fault)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    print(f"\n{transcript.passed} passed, {transcript.failed} failed", flush=True)
    return 1 if transcript.failed else 0


def play(scratch, transcript):
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
    scenes.play(machine, scratch, transcript)


def limit():
    return int(os.environ.get("CONTAINER_LIMIT") or 5400)


def give_up(*_):
    raise GivenUp


def outside():
    """Runs the test in new namespaces if the machine can."""
    reason = obstacle()
    is_check = sys.argv[1:] == [CHECK]
    if reason:
        print(f"SKIPPED make container-test: {reason}")
        return 1 if is_check else 0
    if is_check:
        return 0
    made = [one for one in podman.RUN_DIRECTORIES if not os.path.exists(one)]
    directory = os.environ.get("CONTAINER_SCRATCH") or "/var/tmp"
    try:
        return namespaces.play(__file__, NAME, directory, limit() + 60)
    finally:
        for one in made:
            shutil.rmtree(one, ignore_errors=True)
        remove_cgroups(NAME + str(os.getpid()))


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
    if os.geteuid() != 0:
        return "it creates namespaces and networks, which requires root"
    for tool in TOOLS:
        if not shutil.which(tool, path=PATH):
            return f"{tool} is not installed (deploy/install-dependencies.sh container)"
    return images.obstacle(PATH) or namespaces.missing()


if __name__ == "__main__":
    sys.exit(main())
