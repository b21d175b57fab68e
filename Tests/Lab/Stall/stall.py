#!/usr/bin/env python3
"""Stalls a disk under uploads, and measures the responses of another location of the same nginx worker meanwhile
(`make stall-test`).

Environment: STALL_DISKS, kinds of disks, some of `fuse ext4` (default: both); STALL_ROWS, rows of the table
(default: all; names in stage.py); STALL_SECONDS, the length of a stall (8); STALL_UPLOADS, concurrent uploads (20);
STALL_MIB, the size of each (32); STALL_LIMIT, the timeout of the run in seconds (900); STALL_SCRATCH, a directory
for all files (/var/tmp); STALL_MODULE, the nginx module; SPOOLGATE, the program. Exit status: 0 all assertions
hold, or the machine cannot run the test; 1 otherwise. With --check it only reports why the machine cannot run it:
then 1, else 0.
"""

import os
import shutil
import signal
import sys

sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
for neighbour in ("Drill", "Cluster"):
    sys.path.append(os.path.join(os.path.dirname(HERE), neighbour))

import gateway
import measure
import namespaces
import stage
from disks import DISKS
from namespaces import IN_NAMESPACE
from processes import Unavailable
from transcript import Transcript

NAME = "spoolgate-stall-"
CHECK = "--check"
TOOLS = "setpriv unshare nginx fuse-overlayfs mkfs.ext4 losetup".split()
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


class GivenUp(BaseException):
    """The run takes longer than STALL_LIMIT."""


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
        for disk in map(DISKS.get, disks()):
            if reason := disk.obstacle():
                transcript.say(f"SKIPPED {disk.title}: {reason}")
            else:
                measure.play(disk, stage.rows(), sys.argv[2], transcript)
    except GivenUp:
        transcript.check(False, f"the run ends within {limit()} s (STALL_LIMIT)")
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    print(f"\n{transcript.passed} passed, {transcript.failed} failed", flush=True)
    return 1 if transcript.failed else 0


def limit():
    return int(os.environ.get("STALL_LIMIT") or 900)


def give_up(*_):
    raise GivenUp


def disks():
    return stage.chosen("STALL_DISKS", "disk", DISKS)


def outside():
    """Runs the test in new namespaces if the machine can."""
    reason = obstacle()
    is_check = sys.argv[1:] == [CHECK]
    if reason:
        print(f"SKIPPED make stall-test: {reason}")
        return 1 if is_check else 0
    if is_check:
        return 0
    try:
        gateway.program()
        stage.module()
    except Unavailable as missing:
        print(f"SKIPPED make stall-test: {missing}")
        return 0
    disks()
    stage.rows()
    directory = os.environ.get("STALL_SCRATCH") or "/var/tmp"
    return namespaces.play(__file__, NAME, directory, limit() + 60)


def obstacle():
    """The reason why this machine cannot run the test; None if it can."""
    if os.geteuid() != 0:
        return "it mounts file systems, which requires root"
    for tool in TOOLS:
        if not shutil.which(tool, path=PATH):
            return f"{tool} is not installed (deploy/install-dependencies.sh stall)"
    reasons = [DISKS[name].obstacle() for name in disks()]
    if all(reasons):
        return reasons[0]
    return namespaces.missing()


if __name__ == "__main__":
    sys.exit(main())
