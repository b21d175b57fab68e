"""The requirements of a shared spool on the file system."""

import json
import os
import sys

from lab.processes import run

PROBE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "mount_probe.py")


def play(world, transcript, draw):
    paths = [mount.path for mount in world.mounts.values()]
    found = json.loads(run([sys.executable, PROBE, *paths], timeout=180))
    locks, rounds, kills = found["locks"], found["rounds"], found["kills"]
    wrong, longest = found["lost_races"]
    stale, size = found["stale_records"]
    for holds, sentence in (
        (
            locks["seen"] and locks["after death"] < 5,
            "a lock of one mount is detected and refused on the other,"
            f" and free {locks['after death']} s after its holder was killed",
        ),
        (
            found["links_after_removal"] == [0, 0],
            "fstat of an open file shows no link after the other mount removed it",
        ),
        (wrong == 0, f"the lock of a removed file shows that it was removed, after up to {longest} s"),
        (
            stale == size == 0,
            f"a read after waiting for the lock returns the last holder's content: {stale} of {rounds} stale",
        ),
        none(found, "double_births", "a name is created only once (O_EXCL)", rounds),
        none(found, "stale_sizes", "sizes are those of the other mount's last write", rounds),
        none(found, "stale_names", "names are those of the other mount's last change", rounds),
        none(found, "locks_left", "a process killed in the call for a free lock leaves none (non-waiting call)", kills),
    ):
        transcript.check(holds, sentence, found)
    # The reason why the daemons never use the waiting call (`Descriptor.lock`).
    transcript.say(f"      with the waiting call, a lock was left: {found['locks_left_by_waiting']} of {kills}")
    # Between its creation and its lock a file belongs to no process, which other processes must tolerate.
    births = found["unlocked_births"]
    transcript.say(f"      a new file was found before its creator had locked it: {births} of {rounds}")


def none(found, name, sentence, most):
    """Whether a count is 0, and a sentence with it."""
    return found[name] == 0, f"{sentence}: {found[name]} of {most}"
