"""What a shared spool relies on, of the file system itself."""

import json
import os
import sys

from processes import run

PROBE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "mount_probe.py")


def play(world, transcript, draw):
    paths = [mount.path for mount in world.mounts.values()]
    found = json.loads(run([sys.executable, PROBE, *paths], timeout=180))
    locks = found["locks"]
    transcript.check(
        locks["seen"] and locks["after death"] < 5,
        "a lock of one mount is seen and refused on the other,"
        f" and free {locks['after death']} s after its holder was killed",
        found,
    )
    transcript.check(
        found["links_after_removal"] == [0, 0],
        "fstat of an open file has no link once the other mount removed it",
        found,
    )
    wrong, longest = found["lost_races"]
    transcript.check(
        wrong == 0,
        f"who gets the lock of a removed file sees that it is gone; it waits up to {longest} s",
        found,
    )
    stale, size = found["stale_records"]
    transcript.check(
        stale == size == 0,
        "who waited for a file's lock and then reads it has what its last holder wrote:"
        f" {stale} of {found['rounds']} stale",
        found,
    )
    for name, sentence in (
        ("double_births", "a name is made by one alone (O_EXCL)"),
        ("stale_sizes", "sizes are as the other mount's last write left them"),
        ("stale_names", "names are as the other mount's last change left them"),
    ):
        transcript.check(found[name] == 0, f"{sentence}: {found[name]} of {found['rounds']}", found)
    transcript.check(
        found["locks_left"] == 0,
        "a process killed while it asks for a free lock leaves none, where the kernel need not wait:"
        f" {found['locks_left']} of {found['kills']}",
        found,
    )
    # Why the daemons never have the kernel wait (Descriptor.lock).
    transcript.say(
        f"      where the kernel was to wait, a lock was left: {found['locks_left_by_waiting']}"
        f" of {found['kills']}"
    )
    # Between its birth and its lock a file is nobody's, and whoever finds it has to bear that.
    transcript.say(
        f"      a file was seen before who made it could lock it: {found['unlocked_births']}"
        f" of {found['rounds']}"
    )
