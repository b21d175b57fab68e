"""A test in namespaces of its own for processes and mounts: however it ends, nothing that it started or mounted is left."""

import os
import shutil
import signal
import subprocess
import sys

IN_NAMESPACE = "--in-namespace"
# The kernel ends the first process of the namespaces with unshare, and unshare with this program. Every other process
# and every mount ends with the first process, also if this program is killed.
_NAMESPACES = (
    "setpriv --pdeathsig KILL"
    " unshare --mount --propagation private --pid --fork --kill-child --mount-proc"
).split()


def missing():
    """Why this machine has no such namespaces; None if it has."""
    if subprocess.run([*_NAMESPACES, "true"], capture_output=True).returncode:
        return "this machine has no namespaces for processes and mounts"
    return None


def command(title, obstacle, outside, inside, unavailable):
    """Runs the program of a test; its exit status, or a sentence for `sys.exit`.

    `obstacle` says why the test cannot run here, or None; with `--check` nothing else happens. `outside` has `play` run the
    script again in namespaces, where `inside` is the test. `unavailable` are exceptions that say in one line what is missing.
    """
    try:
        # A namespace is left by a process that is its first, so another one removes the directory.
        if sys.argv[1:2] == [IN_NAMESPACE]:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, lambda *_: sys.exit(143))
            # Of a terminal's Ctrl-C.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return inside()
        is_check = sys.argv[1:] == ["--check"]
        reason = obstacle()
        if reason:
            print(f"SKIPPED {title}: {reason}")
            return 1 if is_check else 0
        return 0 if is_check else outside()
    except unavailable as reason:
        return f"{title}: {reason}"
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def play(script, name, directory, limit=None, has_network=False):
    """Runs a script in namespaces, with IN_NAMESPACE and a directory of its own as arguments; its exit status.

    `name` begins the directory's name, which lies in `directory`. After `limit` seconds the script is ended, which is
    a failure. If `has_network`, the script has a network namespace of its own, too.
    """
    scratch = _make_scratch(directory, name)
    inside = subprocess.Popen(
        [
            *_NAMESPACES,
            *(["--net"] if has_network else []),
            sys.executable,
            os.path.abspath(script),
            IN_NAMESPACE,
            scratch,
        ]
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
                print(f"FAIL  the run did not end by itself {limit} s after its start")
                return 1
            except KeyboardInterrupt:
                # The terminal sent it to the processes in the namespace, too.
                pass
    finally:
        inside.kill()
        inside.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _make_scratch(directory, name):
    """A directory for this run. Directories of killed runs are removed."""
    for entry in os.listdir(directory):
        process = entry.removeprefix(name)
        if entry != process and process.isdigit() and not os.path.exists(f"/proc/{process}"):
            shutil.rmtree(os.path.join(directory, entry), ignore_errors=True)
    scratch = os.path.join(directory, f"{name}{os.getpid()}")
    os.mkdir(scratch)
    os.chmod(scratch, 0o755)
    return scratch
