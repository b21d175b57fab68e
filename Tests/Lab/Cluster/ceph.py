"""A whole Ceph cluster on loopback and in one directory: a monitor, a manager, a storage daemon in memory, a
metadata server, and mounts of its file system by ceph-fuse.

This module never opens a file on a mount: while a mount's ceph-fuse is stopped, a process with an open file hangs
when it closes it, and so do the children that it starts then.
"""

import json
import os
import signal
import subprocess
import uuid

from lab.processes import Process, free_ports, lacking, must, run, unusable, wait

PROGRAMS = "ceph ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse monmaptool".split()

# Without authentication there are no keys for encryption. The kernel must not cache content: it would keep
# returning the cached content of a file that two clients have open, even after the other one has written to it.
CLIENT = """[global]
mon host = {monitor}/0
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
fuse default permissions = true
fuse disable pagecache = {uncached}
client mount timeout = 20
"""

# Without the manager's figures statfs would report no free space, and the gateway would respond with 507. The
# session timeout is Ceph's default.
SETTINGS = (
    CLIENT
    + """fsid = {cluster}
ms bind msgr1 = false
ms bind port min = 26800
ms bind port max = 27300
public addr = {address}
mon allow pool size one = true
mon initial members = a
mon data avail crit = 1
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = memstore
osd op num shards = 1
osd op num threads per shard = 2
memstore device bytes = 4294967296
mds session timeout = 60
mds session autoclose = 300
mon data = {directory}/mon
mgr data = {directory}/mgr
osd data = {directory}/osd
mds data = {directory}/mds
run dir = {directory}/run
admin socket = {directory}/run/$name.$pid.asok
pid file =
log file =
log to stderr = true
err to stderr = true
[mon.a]
public addrv = {monitor}/0
"""
)


def missing():
    """The reason why Ceph cannot run here; None if it can."""
    return lacking("cluster", *PROGRAMS) or unusable("/dev/fuse")


class Ceph:
    """A cluster that runs from `start` until `stop`, with its mounts in `directory`."""

    def __init__(self, directory, address="127.0.0.1"):
        self.directory = directory
        self._address = address
        # The address for clients.
        self.monitor = None
        self._settings = os.path.join(directory, "ceph.conf")
        self._daemons = []
        self._mounts = []

    def start(self):
        cluster, port = str(uuid.uuid4()), free_ports(1)[0]
        for name in ("mon", "mgr", "osd", "mds", "run", "log"):
            os.makedirs(os.path.join(self.directory, name))
        monitor = self.monitor = f"v2:{self._address}:{port}"
        with open(self._settings, "w") as file:
            words = {"cluster": cluster, "monitor": monitor, "address": self._address, "directory": self.directory}
            uncached = "false" if os.environ.get("CLUSTER_PAGE_CACHE") else "true"
            file.write(SETTINGS.format(uncached=uncached, **words))
        os.environ["CEPH_CONF"] = self._settings
        map = os.path.join(self.directory, "monmap")
        run(["monmaptool", "--create", "--addv", "a", f"[{monitor}]", "--fsid", cluster, map])
        run(["ceph-mon", "-c", self._settings, "-i", "a", "--mkfs", "--monmap", map])
        self._daemon("ceph-mon", "a")
        self.command("osd", "create")
        run(["ceph-osd", "-c", self._settings, "-i", "0", "--mkfs"])
        self._daemon("ceph-osd", "0")
        self._daemon("ceph-mds", "a")
        self._daemon("ceph-mgr", "a")
        self.command("osd", "pool", "create", "metadata", "8")
        self.command("osd", "pool", "create", "content", "8")
        self.command("fs", "new", "spool", "metadata", "content")
        must(60, "the metadata server is active", self._is_active)
        # statfs reports the manager's figures.
        must(60, "the store reports its free space", self._has_room)

    def stop(self):
        """Ends everything; may be called at any time and repeatedly."""
        for mount in self._mounts:
            mount.stop()
        for daemon in reversed(self._daemons):
            daemon.kill()
        self._daemons.clear()

    def command(self, *words):
        """The output of a cluster command, decoded if it is JSON."""
        text = run(["ceph", "-c", self._settings, "--format", "json", *words], timeout=90)
        try:
            return json.loads(text)
        except ValueError:
            return text

    def mount(self, name):
        mount = Mount(self, name, self._settings)
        self._mounts.append(mount)
        mount.start()
        return mount

    def evict(self, sessions):
        """Removes these sessions and their locks, and blocks them from the store."""
        if not sessions:
            raise RuntimeError("there is no session to evict")
        for session in sessions:
            self.command("tell", "mds.a", "client", "evict", f"id={session}")

    def sessions(self, name, value):
        """The numbers by which the metadata server identifies the sessions of a client with that metadata."""
        clients = self.command("tell", "mds.a", "client", "ls")
        return [one["id"] for one in clients if one["client_metadata"].get(name) == value]

    def _daemon(self, program, identity):
        log = os.path.join(self.directory, "log", program)
        command = [program, "-c", self._settings, "-f", "-i", identity]
        self._daemons.append(Process(command, log))

    def _is_active(self):
        for daemon in self._daemons:
            if daemon.status is not None:
                said = daemon.said().strip().splitlines()[-2:] or ["no output"]
                raise RuntimeError("a daemon of Ceph ended: " + " / ".join(said))
        ranks = self.command("fs", "dump")["filesystems"][0]["mdsmap"]["info"].values()
        return any(rank["state"] == "up:active" for rank in ranks)

    def _has_room(self):
        return self.command("df")["stats"]["total_avail_bytes"] > 1 << 30


class Mount:
    """One client of the file system, like a separate machine."""

    def __init__(self, ceph, name, settings):
        self.path = os.path.join(ceph.directory, name)
        self.name = name
        self._ceph = ceph
        self._settings = settings
        self._process = None

    def start(self):
        """Mounts the file system with a new session."""
        os.makedirs(self.path, exist_ok=True)
        log = os.path.join(self._ceph.directory, "log", f"fuse-{self.name}")
        command = ["ceph-fuse", "-c", self._settings, "-f", "-n", f"client.{self.name}"]
        self._process = Process([*command, self.path], log)
        must(30, f"{self.path} is mounted: {self._process.said()[-300:]}", self._is_mounted)

    def stop(self):
        """Ends it like a power failure; may be called at any time and repeatedly."""
        if self._process is None:
            return
        self._process.kill()
        self._process = None
        # Lazily, because a process may still have files open.
        subprocess.run(["umount", "-l", self.path], capture_output=True, timeout=20)
        wait(10, lambda: not self._is_mounted())

    def freeze(self):
        """Stops the mount, so that the cluster receives nothing from it."""
        self._process.send(signal.SIGSTOP)

    def thaw(self):
        if self._process:
            self._process.send(signal.SIGCONT)

    def sessions(self):
        return self._ceph.sessions("mount_point", self.path)

    def _is_mounted(self):
        if self._process is not None and self._process.status is not None:
            raise RuntimeError("ceph-fuse: " + self._process.said().strip()[-300:])
        with open("/proc/self/mountinfo") as mounts:
            return any(line.split()[4] == self.path for line in mounts)
