"""One node: the built program with its own settings, log and socket."""

import json
import os
import re
import signal
import socket
import struct
import subprocess

from processes import NeverHappened, Process, Unavailable, must, run

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

# The interval of the daemons' queue runs, in seconds.
QUEUE_RUN = 2

# The exit status of a fenced daemon.
FENCED = 75

SETTINGS = """listen: unix:{directory}/spoolgate.sock
socket-mode: "0666"
node: {name}
spool:
  directory: {spool}
  shared: {shared}
  reserve: 16MiB
timeouts: {{stall: 60s, drain: 20s, in-use: 20s}}
threads: {{maximum: {threads}}}
delivery: {{queue-run-interval: {queue_run}s}}
# So that offsets are acknowledged during requests, and heartbeats are sent.
interim: {{progress-interval: 1s, progress-size: 64KiB, heartbeat: 1s}}
routes:
  default:
    upstream: {upstream}
    limits: {{min-size: 0}}
    queue: {{minimum-backoff: 1s, maximum-backoff: 2s}}
"""

# A separate boot identity, as on separate machines; only this process has the mount.
OTHER_BOOT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'


def program():
    """The path of the built program."""
    named = os.environ.get("SPOOLGATE")
    if named:
        return named
    for configuration in ("release", "debug"):
        path = os.path.join(ROOT, ".build", configuration, "spoolgate")
        if os.access(path, os.X_OK):
            return path
    raise Unavailable("the program is missing: make build, or SPOOLGATE=path")


def admin_page(path, target):
    """A page of a daemon's admin socket, requested by FastCGI as nginx does."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(20)
        one.connect(path)
        # In one write: the daemon may respond and close before it has read the empty record at the end of the
        # content.
        one.sendall(admin_question(target))
        return admin_answer(b"".join(iter(lambda: one.recv(1 << 16), b"")))


def admin_question(target):
    pairs = ((b"REQUEST_METHOD", b"GET"), (b"REQUEST_URI", target.encode()))
    parameters = b"".join(struct.pack("BB", len(n), len(v)) + n + v for n, v in pairs)
    request = ((1, b"\0\1" + bytes(6)), (4, parameters), (4, b""), (5, b""))
    return b"".join(
        struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content
        for kind, content in request
    )


def admin_answer(rest):
    page = b""
    while rest:
        _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", rest[:8])
        page += rest[8 : 8 + length] if kind == 6 else b""
        rest = rest[8 + length + padding :]
    return page.decode()


class Gateway:
    """A daemon; after it has ended for any reason, `start` may be called again."""

    def __init__(self, name, directory, spool, upstream, is_shared, threads=500):
        self.name = name
        self.directory = os.path.join(directory, name)
        self.socket = os.path.join(self.directory, "spoolgate.sock")
        # The address for nginx.
        self.address = "unix:" + self.socket
        self.spool = spool
        self._settings = os.path.join(self.directory, "spoolgate.yaml")
        self._boot = os.path.join(self.directory, "boot_id")
        self._log = os.path.join(self.directory, "log")
        self._process = None
        self.starts = 0
        os.makedirs(self.directory)
        with open(self._settings, "w") as file:
            file.write(
                SETTINGS.format(
                    name=name,
                    directory=self.directory,
                    spool=spool,
                    shared="true" if is_shared else "false",
                    queue_run=QUEUE_RUN,
                    upstream=upstream,
                    threads=threads,
                )
            )
        with open("/proc/sys/kernel/random/uuid") as fresh, open(self._boot, "w") as boot:
            boot.write(fresh.read())

    def launch(self):
        """Starts it without waiting."""
        command = [program(), "serve", "--config", self._settings]
        own = ["unshare", "--mount", "--propagation", "private", "sh", "-c", OTHER_BOOT, self._boot]
        self._process = Process([*own, *command], self._log)
        self.starts += 1

    def start(self):
        self.launch()
        try:
            must(30, f"{self.name} serves", self._serves)
        except NeverHappened as never:
            raise NeverHappened(f"{never}: {self._process.calls} {self._process.files}") from None

    def kill(self):
        if self._process:
            self._process.kill()

    def crash(self):
        self.kill()
        self.start()

    def restart(self):
        """Restarts it as an operator does."""
        self._process.send(signal.SIGTERM)
        status = self._process.wait(40)
        self.start()
        return status

    @property
    def identity(self):
        return self._process.identity

    def status(self):
        """Its exit status; None while it runs."""
        return self._process.status if self._process else None

    def wait(self, seconds):
        return self._process.wait(seconds)

    def _serves(self):
        if self.status() is not None:
            raise RuntimeError(f"{self.name} ended with {self.status()}: {self.log()[-500:]}")
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(self.socket)
            return True
        except OSError:
            return False

    def log(self):
        return self._process.said() if self._process else ""

    def complaints(self, since=0, allowed=()):
        """The log lines at level warning or above that match none of the patterns."""
        return [
            line
            for line in self.log()[since:].splitlines()
            if re.search(r" level=(warning|error|critical) |Fatal error|Crash", line)
            and not any(re.search(pattern, line) for pattern in allowed)
        ]

    def queue_runs(self):
        """The number of queue runs since it started."""
        page = admin_page(os.path.join(self.directory, "admin.sock"), "/metrics")
        return int(re.search(r"^spoolgate_queue_runs_total (\d+)", page, re.M)[1])

    # Commands. They must not be run while this node's mount is stopped.

    def command(self, *words, must_succeed=True):
        """Runs a command of the program on this node; returns its output."""
        done = subprocess.run(
            [program(), *words, "--config", self._settings],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if must_succeed and done.returncode:
            raise RuntimeError(f"{self.name}: {words}: {done.returncode}: {done.stderr[-500:]}")
        return done.stdout

    def digests(self):
        """The digests of all files of uploads, as read on this node."""
        folders = [f"{self.spool}/uploads", f"{self.spool}/queue"]
        lines = run(
            ["find", *folders, "-type", "f", "-exec", "sha256sum", "{}", "+"], timeout=120
        )
        return {line[66:].removeprefix(self.spool): line[:64] for line in lines.splitlines()}

    def uploads(self):
        """The output of `list`, by identity."""
        lines = self.command("list", "--json").splitlines()
        return {one["upload"]: one for one in map(json.loads, lines) if "upload" in one}
