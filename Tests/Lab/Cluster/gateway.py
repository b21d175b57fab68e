"""One node: the built program with its own settings, log and socket."""

import json
import os
import re
import subprocess

from lab import gateway
from lab.gateway import write
from lab.processes import run

# The exit status of a fenced daemon.
FENCED = 75

SETTINGS = """socket-mode: "0666"
node: {name}
spool:
  directory: {spool}
  shared: {shared}
  reserve: 16MiB
timeouts: {{stall: 60s, drain: 20s, in-use: 20s}}
threads: {{maximum: {threads}}}
# So that offsets are acknowledged during requests, and heartbeats are sent.
interim: {{heartbeat: 1s}}
routes:
  default:
    upstream: {upstream}
    limits: {{min-size: 0}}
    queue: {{minimum-backoff: 1s, maximum-backoff: 2s}}
"""

# A separate boot identity, as on separate machines; only this process has the mount.
OTHER_BOOT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'


def settings(name, spool, upstream, is_shared, threads=500):
    """A node's settings, without `listen`."""
    return SETTINGS.format(
        name=name,
        spool=spool,
        shared="true" if is_shared else "false",
        upstream=upstream,
        threads=threads,
    )


def queue_runs(metrics):
    """The number of queue runs since a daemon started, in the page of its metrics."""
    return int(re.search(r"^spoolgate_queue_runs_total (\d+)", metrics, re.M)[1])


class Gateway(gateway.Gateway):
    """A daemon; after it has ended for any reason, `start` may be called again."""

    def __init__(self, name, directory, spool, upstream, is_shared, threads=500):
        self.name = name
        self.spool = spool
        self.starts = 0
        directory = os.path.join(directory, name)
        boot = os.path.join(directory, "boot_id")
        own = ["unshare", "--mount", "--propagation", "private", "sh", "-c", OTHER_BOOT, boot]
        super().__init__(directory, settings(name, spool, upstream, is_shared, threads), prefix=own)
        # The address for nginx.
        self.address = "unix:" + self.socket
        with open("/proc/sys/kernel/random/uuid") as fresh:
            write(boot, fresh.read())

    def launch(self):
        """Starts it without waiting."""
        super().launch()
        self.starts += 1

    def crash(self):
        self.kill()
        self.start()

    def restart(self):
        """Restarts it as an operator does."""
        status = self.process.end(40)
        self.start()
        return status

    def queue_runs(self):
        """The number of queue runs since it started."""
        return queue_runs(self.metrics())

    # Commands. They must not be run while this node's mount is stopped.

    def command(self, *words, must_succeed=True):
        """Runs a command of the program on this node; returns its output."""
        done = subprocess.run(
            [self.program, *words, "--config", self.settings],
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
        lines = run(["find", *folders, "-type", "f", "-exec", "sha256sum", "{}", "+"], timeout=120)
        return {line[66:].removeprefix(self.spool): line[:64] for line in lines.splitlines()}

    def uploads(self):
        """The output of `list`, by identity."""
        lines = self.command("list", "--json").splitlines()
        return {one["upload"]: one for one in map(json.loads, lines) if "upload" in one}
