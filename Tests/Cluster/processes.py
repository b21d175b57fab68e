"""Processes of the test, conditions with a deadline, and ports.

Everything runs in a PID and a mount namespace of its own (see cluster.py), of which this program is the first
process: however it ends, the kernel ends every other process and every mount with it.
"""

import os
import signal
import socket
import subprocess
import time


class Unavailable(Exception):
    """This machine cannot do what the test needs."""


class NeverHappened(Exception):
    """A condition did not come to hold in time."""


def wait(seconds, holds, interval=0.05):
    """Whether a condition came to hold in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


def must(seconds, what, holds):
    """Waits for what nothing can go on without."""
    if not wait(seconds, holds):
        raise NeverHappened(f"not within {seconds} s: {what}")


def free_ports(count):
    """Ports of loopback that nobody listens on; all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Process:
    """A program in the foreground, its output in a file, which is appended to."""

    def __init__(self, command, log, environment=None):
        self.log = log
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def status(self):
        """Its exit status, of a signal negative; None while it runs."""
        return self._process.poll()

    @property
    def identity(self):
        return self._process.pid

    @property
    def calls(self):
        """What each of its threads is in: its name, the call's number and arguments, and where the kernel waits."""
        threads = []
        for thread in os.listdir(f"/proc/{self.identity}/task"):
            said = []
            for name in ("comm", "syscall", "wchan"):
                try:
                    with open(f"/proc/{self.identity}/task/{thread}/{name}") as file:
                        said.append(file.read().strip())
                except OSError as error:
                    said.append(error.strerror)
            threads.append(" ".join(said))
        return threads

    @property
    def files(self):
        """Its open files, by their descriptors."""
        directory = f"/proc/{self.identity}/fd"
        return {one: os.readlink(f"{directory}/{one}") for one in os.listdir(directory)}

    def send(self, number):
        if self.status is None:
            os.kill(self._process.pid, number)

    def wait(self, seconds):
        """Its exit status; None if it does not end in time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self):
        """Ends it at once; safe at any time and more than once."""
        self.send(signal.SIGKILL)
        return self.wait(20)

    def said(self):
        with open(self.log, errors="replace") as file:
            return file.read()


def run(command, timeout=60):
    """Runs a command to its end; its output, or an exception that has what it said."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=timeout,
        text=True,
        errors="replace",
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:] or ["no output"]
        raise RuntimeError(f"{' '.join(command[:6])}: exit {done.returncode}: {' / '.join(said)}")
    return done.stdout
