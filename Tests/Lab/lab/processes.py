"""Programs and processes, conditions with a deadline, and ports."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
MODULE = os.path.join(ROOT, ".build/nginx-module/ngx_http_interim_module.so")
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
TICKS = os.sysconf("SC_CLK_TCK")


class Unavailable(Exception):
    """The machine lacks a requirement of the test."""


class NeverHappened(Exception):
    """A condition did not hold in time."""


def gateway():
    """The path of the built gateway."""
    if named := os.environ.get("SPOOLGATE"):
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"SPOOLGATE={named} is no program")
        return named
    for configuration in ("release", "debug"):
        path = os.path.join(ROOT, ".build", configuration, "spoolgate")
        if os.access(path, os.X_OK):
            return path
    raise Unavailable("the program is missing: make build, or SPOOLGATE=path")


def tool(name, kind):
    """The path of a program; `kind` is that of the packages that install it."""
    found = shutil.which(name, path=PATH)
    if not found:
        raise Unavailable(f"{name} is not installed (deploy/install-dependencies.sh {kind})")
    # Not its real path: mke2fs and others depend on the name that they are called by.
    return found


def lacking(kind, *names):
    """The reason why one of these programs is missing; None if all are there."""
    try:
        for name in names:
            tool(name, kind)
    except Unavailable as reason:
        return str(reason)
    return None


def unusable(path):
    """The reason why a device cannot be opened; None if it can."""
    try:
        os.close(os.open(path, os.O_RDWR))
        return None
    except OSError as error:
        return f"{path}: {error.strerror}"


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

    def __init__(self, command, log, environment=None, **more):
        self.log = log
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": PATH, **(environment or {})},
                start_new_session=True,
                **more,
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

    @property
    def children(self):
        return children(self.identity)

    @property
    def state(self):
        """A letter, see proc_pid_stat(5)."""
        return facts(self.identity)[0]

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

    def end(self, seconds, number=signal.SIGTERM):
        """Ends it as an operator does, and kills it after `seconds`; returns its exit status."""
        self.send(number)
        status = self.wait(seconds)
        return self.kill() if status is None else status

    def said(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def listens(self, address):
        """Whether it listens on a socket's path or a port of this machine."""
        if self.status is not None:
            raise RuntimeError(f"it ended with {self.status}: {self.said()[-1000:]}")
        try:
            if isinstance(address, int):
                socket.create_connection(("127.0.0.1", address), timeout=1).close()
            else:
                with socket.socket(socket.AF_UNIX) as one:
                    one.connect(address)
            return True
        except OSError:
            return False


def children(process):
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(one) for one in file.read().split()]


def facts(process):
    """The fields of proc_pid_stat(5) after the program's name."""
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()


def processor(process):
    """The processor time of a process, in seconds."""
    return sum(int(ticks) for ticks in facts(process)[11:13]) / TICKS


def memory(process):
    """The resident memory of a process, in KiB."""
    with open(f"/proc/{process}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])


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
