"""Two hosts with the nodes n1 and n2, nginx and the application next to them, and the storage of the spool."""

import os

import network
from Cluster import ceph
from Cluster.application import Application
from Cluster.front import Front
from Cluster.world import NODES, World
from host import Host
from node import Node
from storage import HostMount

# The minutes by which the clock of n2 is ahead.
AHEAD = 7
DISK = 256 << 20


class HostsWorld(World):
    """Like the World of Tests/Lab/Cluster, with two guests as hosts.

    `kind` is the storage of the spool: "own" disks, or one CephFS mounted by the hosts' "kernel" or by "fuse"; or the
    disk of a PairWorld.
    """

    def __init__(self, scratch, kind, image, accelerator):
        super().__init__(scratch, kind in ("kernel", "fuse"))
        self.directory = os.path.join(scratch, kind)
        self.kind = kind
        self.slowness = 10 if accelerator == "tcg" else 1
        self.hosts = {}
        self._image = image
        self._accelerator = accelerator

    def _start(self):
        self._start_application()
        if self.is_shared:
            self.ceph = ceph.Ceph(os.path.join(self.directory, "ceph"), f"{network.STORAGE}.1")
            os.mkdir(self.ceph.directory)
            self.ceph.start()
        for number, name in enumerate(NODES):
            host = self._boot(name, AHEAD * number)
            if self.is_shared:
                self.mounts[name] = HostMount(self.ceph, host, self.kind == "kernel")
                self.mounts[name].start()
            else:
                host.run("mkfs.ext4 -q /dev/vda && mount -t ext4 /dev/vda /spool")
            self.gateways[name] = Node(host, "/spool/spool", self.upstream, self.is_shared)
            self.gateways[name].start()
        self.front = Front(self.directory, self.gateways.values(), self.is_shared)
        self.front.start()

    def _start_application(self):
        self.application = Application(self.moments, f"{network.SERVICE}.1")
        self.upstream = f"http://{network.SERVICE}.1:{self.application.port}"

    def _boot(self, name, minutes=0):
        """Boots a new host, whose clock is ahead by these minutes."""
        directory = os.path.join(self.directory, "hosts")
        disk = None if self.is_shared else DISK
        number = 11 + NODES.index(name)
        self.hosts[name] = Host(name, number, self._image, directory, self._accelerator, minutes, disk)
        self.hosts[name].start()
        return self.hosts[name]

    def power_on(self, name):
        """Boots a host after a power failure, mounts the shared spool and starts its node; returns the duration of
        the boot.
        """
        seconds = self.hosts[name].start()
        self.mounts[name].start()
        self.gateways[name].start()
        return seconds

    def __exit__(self, *arguments):
        # A power failure ends all processes on the host.
        for name, host in self.hosts.items():
            host.cut_power()
            network.unplug(name)
        self.gateways.clear()
        self.mounts.clear()
        super().__exit__(*arguments)
