"""One CephFS that every host mounts, by its kernel or by ceph-fuse; takes the place of Tests/Lab/Cluster's `Mount`."""

import network
from Cluster import ceph
from lab.processes import must

class HostMount:
    path = "/spool"

    def __init__(self, cluster, host, is_kernel):
        self._ceph = cluster
        self._host = host
        self._is_kernel = is_kernel

    def start(self):
        """Mounts it with a new session."""
        name = self._host.name
        if self._is_kernel:
            monitor = self._ceph.monitor.removeprefix("v2:")
            self._host.run(f"mount -t ceph {monitor}:/ {self.path} -o name={name},ms_mode=crc,mount_timeout=30")
            return self._host.wait_until_mounted(self.path, "ceph")
        settings = ceph.CLIENT.format(monitor=self._ceph.monitor, uncached="true")
        self._host.write("/etc/ceph/ceph.conf", settings)
        self._host.run(f"setsid ceph-fuse -f -n client.{name} {self.path} >/run/fuse.log 2>&1 </dev/null &\n")
        self._host.wait_until_mounted(self.path, "fuse.ceph-fuse")

    def stop(self):
        """Unmounts it, even if files of it are open."""
        if not self._host.is_on:
            return
        if not self._is_kernel:
            self._host.run("killall -9 ceph-fuse", must_succeed=False)
        self._host.run(f"umount -f -l {self.path}", must_succeed=False)
        must(20, "it is unmounted", lambda: not self._host.is_mounted(self.path))

    def freeze(self):
        """Unplugs the host from the storage network."""
        network.cut_storage(self._host.name)

    def thaw(self):
        network.restore_storage(self._host.name)

    def sessions(self):
        return self._ceph.sessions("entity_id", self._host.name)
