"""Runs a test in its own process and mount namespaces, so that no process or mount is left behind."""

import os
import shutil
import signal
import subprocess
import sys

IN_NAMESPACE = "--in-namespace"
# If this program ends, the kernel ends unshare, and with it the first process of the namespaces. With that process
# end all other processes and mounts, even if this program is killed.
_NAMESPACES = (
    "setpriv --pdeathsig KILL"
    " unshare --mount --propagation private --pid --fork --kill-child --mount-proc"
).split()


def missing():
    """The reason why this machine has no such namespaces; None if it has."""
    if subprocess.run([*_NAMESPACES, "true"], capture_output=True).returncode:
        return "this machine has no namespaces for processes and mounts"
    return None


def command(title, obstacle, outside, inside, unavailable):
    """Runs the program of a test; returns its exit status, or a sentence for `sys.exit`.

    `obstacle` returns the reason why the test cannot run here, or None; with `--check` nothing else happens.
    `outside` calls `play` to run the script again in namespaces, where `inside` is the test. `unavailable` are
    exceptions that name in one line what is missing.
    """
    try:
        # The first process of the namespaces cannot remove the directory after their end, so another process does.
        if sys.argv[1:2] == [IN_NAMESPACE]:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, lambda *_: sys.exit(143))
            # From Ctrl-C in a terminal.
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
    """Runs a script in namespaces, with IN_NAMESPACE and a new directory as arguments; returns its exit status.

    `name` is the prefix of the new directory in `directory`. After `limit` seconds the script is ended, which
    counts as a failure. With `has_network`, the script also has its own network namespace.
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
    for entry in os.listdir(directory):
        process = entry.removeprefix(name)
        if entry != process and process.isdigit() and not os.path.exists(f"/proc/{process}"):
            shutil.rmtree(os.path.join(directory, entry), ignore_errors=True)
    scratch = os.path.join(directory, f"{name}{os.getpid()}")
    os.mkdir(scratch)
    os.chmod(scratch, 0o755)
    return scratch
