"""The requirements of a shared spool on the file system."""

import json
import os
import sys

from lab.processes import run

PROBE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "mount_probe.py")


def play(world, transcript, draw):
    paths = [mount.path for mount in world.mounts.values()]
    found = json.loads(run([sys.executable, PROBE, *paths], timeout=180))
    locks = found["locks"]
    transcript.check(
        locks["seen"] and locks["after death"] < 5,
        "a lock of one mount is detected and refused on the other,"
        f" and free {locks['after death']} s after its holder was killed",
        found,
    )
    transcript.check(
        found["links_after_removal"] == [0, 0],
        "fstat of an open file shows no link after the other mount removed it",
        found,
    )
    wrong, longest = found["lost_races"]
    transcript.check(
        wrong == 0,
        f"the lock of a removed file shows that it was removed, after up to {longest} s",
        found,
    )
    stale, size = found["stale_records"]
    transcript.check(
        stale == size == 0,
        "a read after waiting for the lock returns the last holder's content:"
        f" {stale} of {found['rounds']} stale",
        found,
    )
    for name, sentence in (
        ("double_births", "a name is created only once (O_EXCL)"),
        ("stale_sizes", "sizes are those of the other mount's last write"),
        ("stale_names", "names are those of the other mount's last change"),
    ):
        transcript.check(found[name] == 0, f"{sentence}: {found[name]} of {found['rounds']}", found)
    transcript.check(
        found["locks_left"] == 0,
        "a process killed in the call for a free lock leaves none (non-waiting call):"
        f" {found['locks_left']} of {found['kills']}",
        found,
    )
    # The reason why the daemons never use the waiting call (`Descriptor.lock`).
    transcript.say(
        f"      with the waiting call, a lock was left: {found['locks_left_by_waiting']}"
        f" of {found['kills']}"
    )
    # Between its creation and its lock a file belongs to no process, which other processes must tolerate.
    transcript.say(
        f"      a new file was found before its creator had locked it: {found['unlocked_births']}"
        f" of {found['rounds']}"
    )
