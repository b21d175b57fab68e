"""A node: the gateway on its own host, and the file system of its spool."""

import base64
import socket

from Cluster import gateway
from host import Unreachable
from lab import fastcgi
from lab.processes import NeverHappened, must

PORT, ADMIN = 9000, "/run/admin.sock"


class Node:
    """Like Tests/Lab/Cluster's Gateway: after it has ended for any reason, `start` may be called again."""

    def __init__(self, host, spool, upstream, is_shared, name=None):
        self.name = name or host.name
        self.host = host
        self.spool = spool
        self.address = f"{host.address}:{PORT}"
        self.program = "spoolgate"
        self.starts = 0
        self._settings = (
            f"listen: tcp:{self.address}\nadmin-listen: unix:{ADMIN}\n"
            + gateway.settings(self.name, spool, upstream, is_shared)
        )

    def launch(self):
        self.host.write("/etc/spoolgate.yaml", self._settings)
        self.host.run(
            "rm -f /run/status; cd /; ulimit -n 32768\n"
            f"setsid sh -c '{self.program} serve --config /etc/spoolgate.yaml >/dev/ttyS1 2>&1 & echo $! >/run/pid;"
            " wait $!; echo $? >/run/ended; mv /run/ended /run/status' >/dev/null 2>&1 &\n"
        )
        self.starts += 1

    def start(self):
        self.launch()
        try:
            # After a power failure its own lock remains until Ceph drops the dead session.
            must(120, f"{self.name} serves", self._serves)
        except NeverHappened as never:
            raise NeverHappened(f"{never}: {self.log()[-500:]}") from None

    def kill(self):
        self._signal("KILL")

    crash = gateway.Gateway.crash

    def restart(self):
        """Restarts it as an operator does."""
        self._signal("TERM")
        status = self.wait(40)
        self.start()
        return status

    def _signal(self, name):
        if self.host.is_on:
            self.host.run(f"[ -f /run/pid ] && kill -{name} $(cat /run/pid)", seconds=30, must_succeed=False)
            if name == "KILL":
                self.wait(20)

    def status(self):
        """Its exit status, for a signal as in a shell; None while it runs, and if its host does not respond."""
        if not self.host.is_on:
            return "off"
        try:
            said = self.host.run("cat /run/status 2>/dev/null", must_succeed=False, seconds=20)
        except Unreachable:
            return None
        return int(said) if said.strip() else None

    def wait(self, seconds):
        """Its exit status; None if it does not end in time."""
        try:
            must(seconds, "it ends", lambda: self.status() is not None)
        except NeverHappened:
            return None
        return self.status()

    def _serves(self):
        status = self.status()
        if status is not None:
            raise RuntimeError(f"{self.name} ended with {status}: {self.log()[-500:]}")
        try:
            socket.create_connection((self.host.address, PORT), timeout=2).close()
            return True
        except OSError:
            return False

    def log(self):
        return self.host.log()

    def complaints(self, since=0, allowed=()):
        # The clock of one host is ahead, which its daemon logs.
        return gateway.Gateway.complaints(self, since, (*allowed, r" ahead-seconds=4\d\d\b"))

    def queue_runs(self):
        question = "".join(f"\\{byte:03o}" for byte in fastcgi.METRICS)
        answer = self.host.run(f"printf '{question}' | relay {ADMIN} | base64")
        return gateway.queue_runs(fastcgi.output(base64.b64decode(answer)).decode())

    def command(self, *words, must_succeed=True):
        line = f"{self.program} {' '.join(words)} --config /etc/spoolgate.yaml"
        return self.host.run(line, must_succeed=must_succeed)

    uploads = gateway.Gateway.uploads

    def digests(self):
        """The digests of all files of uploads, as read on this node."""
        lines = self.host.run(f"find {self.spool}/uploads {self.spool}/queue -type f -exec sha256sum {{}} +")
        return {line[66:].removeprefix(self.spool): line[:64] for line in lines.splitlines()}
