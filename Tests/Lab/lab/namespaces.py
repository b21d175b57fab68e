"""Runs a test in its own process and mount namespaces, so that no process or mount is left behind.

The first process of the namespaces is the test: when it ends, the kernel ends all other processes and mounts.
"""

import os
import shutil
import signal
import subprocess
import sys

from lab.processes import PATH, Unavailable, lacking
from lab.report import Transcript

_IN_NAMESPACE = "--in-namespace"
# If this program ends, the kernel ends unshare, and with it the first process of the namespaces. With that process
# end all other processes and mounts, even if this program is killed.
_NAMESPACES = (
    "setpriv --pdeathsig KILL"
    " unshare --mount --propagation private --pid --fork --kill-child --mount-proc"
).split()


class GivenUp(BaseException):
    """The run takes longer than its limit."""


def missing(kind):
    """The reason why this machine has no such namespaces; None if it has."""
    if os.geteuid() != 0:
        return "it creates namespaces and mounts file systems, which requires root"
    if reason := lacking(kind, "setpriv", "unshare"):
        return reason
    if subprocess.run([*_NAMESPACES, "true"], capture_output=True).returncode:
        return "this machine has no namespaces for processes and mounts"
    return None


def is_inside():
    """Whether this process is the test in its namespaces."""
    return sys.argv[1:2] == [_IN_NAMESPACE]


def command(kind, obstacle, play, prepare=lambda: None, *, scratch=None, limit=None, has_network=False):
    """Runs the program of a test, `make KIND-test`; returns its exit status.

    `obstacle` returns a reason other than missing namespaces why the test cannot run here, or None; with `--check`
    nothing else happens. `prepare` is called before the namespaces are created, and `play` in them, with a Transcript
    and a new directory below that of the variable `scratch` (default: KIND_SCRATCH). After `limit` seconds, or those
    in the variable KIND_LIMIT, the test is ended, which counts as a failure. With `has_network`, it also has its own
    network namespace.
    """
    os.environ["PATH"] = PATH
    is_check = sys.argv[1:] == ["--check"]
    if limit:
        limit = int(os.environ.get(f"{kind.upper()}_LIMIT") or limit)
    try:
        # The first process of the namespaces cannot remove the directory after their end, so another process does.
        if is_inside():
            return _inside(play, sys.argv[2], limit, f"{kind.upper()}_LIMIT")
        if reason := missing(kind) or obstacle():
            raise Unavailable(reason)
        if is_check:
            return 0
        prepare()
        directory = os.environ.get(scratch or f"{kind.upper()}_SCRATCH") or "/var/tmp"
        return _outside(f"spoolgate-{kind}-", directory, limit and limit + 60, has_network)
    except Unavailable as reason:
        print(f"SKIPPED make {kind}-test: {reason}", flush=True)
        return 1 if is_check else 0
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def _inside(play, scratch, limit, variable):
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    # From Ctrl-C in a terminal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    transcript = Transcript()
    if limit:
        signal.signal(signal.SIGALRM, _give_up)
        signal.alarm(limit)
    try:
        play(transcript, scratch)
    except Unavailable as reason:
        transcript.say(f"SKIPPED the rest: {reason}")
    except GivenUp:
        transcript.check(False, f"the run ends within {limit} s ({variable})")
    return transcript.end()


def _give_up(*_):
    raise GivenUp


def _outside(name, directory, limit, has_network):
    """Runs this program again in namespaces; returns its exit status."""
    scratch = _make_scratch(directory, name)
    more = ["--net"] if has_network else []
    inside = subprocess.Popen(
        [*_NAMESPACES, *more, sys.executable, os.path.abspath(sys.argv[0]), _IN_NAMESPACE, scratch]
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        # unshare ignores these signals while it waits.
        signal.signal(number, lambda *_: inside.kill())
    try:
        while True:
            try:
                status = inside.wait(limit)
                return status if status >= 0 else 128 - status
            except subprocess.TimeoutExpired:
                print(f"FAIL  the run did not end within {limit} s")
                return 1
            except KeyboardInterrupt:
                # The terminal also sent it to the processes in the namespace.
                pass
    finally:
        inside.kill()
        inside.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _make_scratch(directory, name):
    """Creates a directory for this run, and removes the directories of killed runs."""
    remove_left(directory, name, lambda path: shutil.rmtree(path, ignore_errors=True))
    scratch = os.path.join(directory, f"{name}{os.getpid()}")
    os.mkdir(scratch)
    os.chmod(scratch, 0o755)
    return scratch


def remove_left(directory, name, remove, end=""):
    """Calls `remove` with what killed runs left in a directory: their names are `name`, a process and perhaps `end`."""
    for entry in os.listdir(directory):
        process = entry.removeprefix(name).removesuffix(end)
        if entry != process and process.isdigit() and not os.path.exists(f"/proc/{process}"):
            remove(os.path.join(directory, entry))
