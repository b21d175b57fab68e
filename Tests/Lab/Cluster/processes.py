"""Processes of the test, conditions with a deadline, and ports.

Everything runs in new PID and mount namespaces (see cluster.py), whose first process is this program: when it ends,
the kernel ends all other processes and mounts.
"""

import os
import signal
import socket
import subprocess
import time


class Unavailable(Exception):
    """The machine lacks a requirement of the test."""


class NeverHappened(Exception):
    """A condition did not hold in time."""


def wait(seconds, holds, interval=0.05):
    """Whether a condition held in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


def must(seconds, what, holds):
    """Waits for a condition that is required."""
    if not wait(seconds, holds):
        raise NeverHappened(f"not within {seconds} s: {what}")


def free_ports(count):
    """Distinct free ports of loopback."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Process:
    """A program in the foreground, with its output appended to a file."""

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
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def identity(self):
        return self._process.pid

    @property
    def calls(self):
        """The state of each thread: its name, the number and arguments of its system call, and the kernel function
        it waits in.
        """
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
        """Its open files by descriptor."""
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
        """Kills it; may be called at any time and repeatedly."""
        self.send(signal.SIGKILL)
        return self.wait(20)

    def said(self):
        with open(self.log, errors="replace") as file:
            return file.read()


def run(command, timeout=60):
    """Runs a command; returns its output, or raises an exception that contains it."""
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
