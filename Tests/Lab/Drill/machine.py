"""A Debian root booted by systemd-nspawn, and commands in it.

The program runs in a new mount namespace (see drill.py) with the unified cgroup hierarchy at /sys/fs/cgroup, which
systemd 257 requires, whatever the host uses. The machine has its own cgroup there, which a guard kills as soon as
this program has ended: no process and no mount is left behind.
"""

import difflib
import os
import subprocess
import typing

from roots import Unavailable

from lab.processes import Process, wait

CGROUPS = "/sys/fs/cgroup"

# The prefix of machines, their cgroups and scratch directories; this program's process id follows.
NAME = "spoolgate-drill-"

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "DEBIAN_FRONTEND": "noninteractive",
    **{name: os.environ[name] for name in ("http_proxy", "https_proxy") if name in os.environ},
}


OPTIONS = "-q --boot --register=no --keep-unit --resolv-conf=off --timezone=off"

# Holds the reading end of a pipe whose writing end only this program has, and so outlives it briefly.
GUARD = 'cat >/dev/null; echo 1 2>/dev/null >"$1/cgroup.kill"'


def remove_cgroup(cgroup):
    """Kills all processes in a cgroup and below it, and removes the cgroups; returns whether that succeeded."""
    try:
        with open(os.path.join(cgroup, "cgroup.kill"), "w") as kill:
            kill.write("1")
        for directory, _, _ in os.walk(cgroup, topdown=False):
            os.rmdir(directory)
    except OSError:
        return not os.path.isdir(cgroup)
    return True


class Result(typing.NamedTuple):
    """The result of a command: its exit status and its interleaved outputs."""

    status: int
    output: str

    @property
    def ok(self):
        return self.status == 0


class Machine:
    """One machine; with `beside`, a machine that shares only the loopback network of the other one."""

    def __init__(self, root, transcript, beside=None):
        self.root = root
        self.transcript = transcript
        self._beside = beside
        self._name = f"{NAME}{os.getpid()}" + ("-beside" if beside else "")
        self._prompt = "beside# " if beside else "# "
        self._cgroup = os.path.join(CGROUPS, self._name)
        self._process = None
        self._leader = None
        self._guard = None
        # The number of commands in the background.
        self._started = 0

    def boot(self):
        self._make_cgroup()
        self._guard = subprocess.Popen(
            ["sh", "-c", GUARD, "sh", self._cgroup], stdin=subprocess.PIPE, start_new_session=True
        )
        command = ["systemd-nspawn", *OPTIONS.split(), "--console=pipe", f"--machine={self._name}"]
        command += [self._network(), "-D", self.root]
        self._process = Process(command, self.root + ".console", preexec_fn=self._enter_cgroup)
        if not wait(60, self._is_booted, 0.1) or self._process.status is not None:
            said = self._process.said().strip().splitlines()[-3:] or ["no output"]
            raise Unavailable("systemd did not boot under systemd-nspawn: " + " / ".join(said))
        # PID 1 brings the interface up if it may, which it cannot in a container within a container.
        if not self.quietly("test $(($(cat /sys/class/net/lo/flags) & 1)) = 1").ok:
            raise Unavailable("a machine under systemd-nspawn has no loopback network here")
        # nspawn hides the kernel's boot identity behind its own file, but not from a service with its own /proc.
        # Commands would be refused, as the scene `timer` tests.
        self.quietly("umount /proc/sys/kernel/random/boot_id")

    def power_off(self):
        """Shuts the machine down, orderly if possible; may be called at any time and repeatedly."""
        if self._process and self._process.status is None:
            if self._leader:
                self.quietly("systemctl --no-block poweroff", timeout=5)
            if self._process.wait(20) is None:
                self._process.kill()
        self._leader = None
        wait(10, lambda: remove_cgroup(self._cgroup))
        if self._guard:
            self._guard.communicate()

    def _network(self):
        if self._beside is None:
            return "--private-network"
        return f"--network-namespace-path=/proc/{self._beside._leader}/ns/net"

    def _make_cgroup(self):
        try:
            os.mkdir(self._cgroup)
        except OSError as error:
            raise Unavailable(f"no cgroup can be made at {self._cgroup}: {error.strerror}") from None

    def _enter_cgroup(self):
        with open(os.path.join(self._cgroup, "cgroup.procs"), "w") as members:
            members.write("0")

    def _is_booted(self):
        if self._process.status is not None:
            return True
        if self._leader is None:
            first = self._process.children[:1]
            if not first:
                return False
            self._leader = first[0]
        state = self.quietly("systemctl is-system-running").output.strip()
        return state in ("running", "degraded")

    def run(self, command, timeout=120, limit=12, network=False):
        """Runs a command line in the machine as root, and prints it with its output."""
        self.transcript.command(command, self._prompt)
        result = self.quietly(command, timeout, network)
        self.transcript.output(result.output, limit)
        if not result.ok:
            self.transcript.say(f"  (exit {result.status})")
        return result

    def quietly(self, command, timeout=120, network=False):
        """As `run`, without printing. With `network` the command can use the host's network, as apt must."""
        try:
            done = subprocess.run(
                self._entry(command, network),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                env=ENVIRONMENT,
            )
        except subprocess.TimeoutExpired as error:
            said = (error.stdout or b"").decode(errors="replace")
            return Result(124, said + f"\n(timed out after {timeout} s)")
        return Result(done.returncode, done.stdout.decode(errors="replace"))

    def start(self, command):
        """Starts a command line and prints it; `finish` of the result waits for its end."""
        self.transcript.command(command + " &", self._prompt)
        self._started += 1
        log = f"{self.root}.command-{self._started}"
        environment = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        return Background(["env", "-i", *environment, *self._entry(command, False)], log)

    def _entry(self, command, network):
        spaces = ["-m", "-u", "-i", "-p", "-C"] + ([] if network else ["-n"])
        return ["nsenter", "-t", str(self._leader), *spaces, "sh", "-c", command]

    def path(self, path):
        return os.path.join(self.root, path.lstrip("/"))

    def read(self, path):
        return self.quietly(f"cat {path}").output

    def write(self, path, text, mode=0o644):
        """Writes a file of the drill, which the operator would not type."""
        path = self.path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)

    def edit(self, path, change):
        """Changes a file, or a new one, as an editor does, and prints the changed lines."""
        if not os.path.exists(self.path(path)):
            self.write(path, "")
        with open(self.path(path)) as file:
            before = file.read()
        after = change(before)
        with open(self.path(path), "w") as file:
            file.write(after)
        self.transcript.command(f"editor {path}", self._prompt)
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
        self.transcript.output("\n".join(l for l in lines if not l.startswith(("---", "+++", "@@"))), limit=24)


class Background(Process):
    """A command that runs in the background."""

    @property
    def output(self):
        """Its output so far."""
        return self.said()

    @property
    def is_running(self):
        return self.status is None

    def finish(self, seconds):
        if self.wait(seconds) is None:
            self.kill()
            return Result(124, self.output + f"\n(timed out after {seconds} s)")
        return Result(self.status, self.output)
