"""Two hosts with one replicated disk: the active one serves, the passive one has a copy (DRBD, protocol C)."""

import time

import network
from Cluster.front import Front
from Cluster.world import NODES
from hosts_world import HostsWorld
from lab.processes import must
from node import Node

# The configuration of a pair in OPERATIONS.md.
RESOURCE = """global {{ usage-count no; }}
resource spool {{
    device    /dev/drbd0;
    disk      /dev/vda;
    meta-disk internal;
    net {{ protocol C; timeout 20; connect-int 1; ping-int 2; ping-timeout 10; }}
    disk {{ resync-rate 100M; c-plan-ahead 0; }}
    on n1 {{ address {n1}:7789; }}
    on n2 {{ address {n2}:7789; }}
}}
"""


class PairWorld(HostsWorld):
    """Both hosts are the node n1, one at a time."""

    active = "n1"

    def _start(self):
        self._start_application()
        for name in NODES:
            self._boot(name)
            self._join(name, is_new=True)
        first = self.hosts["n1"]
        must(30, "the disks are connected", lambda: "cs:Connected" in self._state("n1"))
        # Both are empty, so nothing has to be copied.
        first.run("drbdadm new-current-uuid --clear-bitmap spool/0")
        must(30, "the disks are alike", self._is_alike)
        first.run("drbdadm primary spool && mkfs.ext4 -q /dev/drbd0")
        first.run("mount -t ext4 /dev/drbd0 /spool")
        for name, host in self.hosts.items():
            self.gateways[name] = Node(host, "/spool", self.upstream, False, name="n1")
        self.gateways["n1"].start()
        self.front = Front(self.directory, [Address(name, self.gateways[name]) for name in NODES], True)
        self.front.start()

    def _join(self, name, is_new=False):
        addresses = {one: f"{network.STORAGE}.{11 + number}" for number, one in enumerate(NODES)}
        host = self.hosts[name]
        host.write("/etc/drbd.conf", RESOURCE.format(**addresses))
        if is_new:
            host.run("yes yes | drbdadm create-md --force spool")
        host.run("drbdadm up spool")

    def _state(self, name):
        """The connection, the roles and the disks, according to the kernel: cs:Connected ro:... ds:..."""
        return self.hosts[name].run("grep ' 0:' /proc/drbd", must_succeed=False)

    def _is_alike(self):
        return "ds:UpToDate/UpToDate" in self._state(self.active)

    def heal(self):
        """Does nothing: each power failure is followed by a repair."""

    @property
    def passive(self):
        return self.other(self.active)

    def cut_power(self):
        """Cuts the power of the active host; returns the time."""
        self.hosts[self.active].cut_power()
        return time.monotonic()

    def fail_over(self):
        """Performs the operator's steps on the passive host once the active one is off; returns once it serves."""
        host = self.hosts[self.passive]
        # Until its connection times out, it considers the other one the primary.
        must(30, "the disk can be made primary", lambda: self._is_primary(host))
        host.run("mount -t ext4 /dev/drbd0 /spool")
        self.gateways[self.passive].start()
        self.active = self.passive

    def _is_primary(self, host):
        host.run("drbdadm primary spool", must_succeed=False)
        return "ro:Primary" in self._state(host.name)

    def rejoin(self):
        """Boots the host after its power failure; returns the seconds until both disks are in sync."""
        self.hosts[self.passive].start()
        began = time.monotonic()
        self._join(self.passive)
        must(120, "the disks are alike", self._is_alike)
        return time.monotonic() - began

    def replaying(self, draw):
        """The node from which a replay is requested: nginx finds it."""
        return None


class Address:
    """A node as nginx addresses it: both hosts are behind one name of an upstream."""

    def __init__(self, name, gateway):
        self.name = name
        self.address = gateway.address
