"""File systems whose disk can be stalled and resumed at any time."""

import glob
import os
import signal
import subprocess

from lab.processes import Process, must, run, unusable


class Fuse:
    """A FUSE file system. Its server is stopped for a stall, so that every operation on the file system waits."""

    name = "fuse"
    title = "a FUSE file system"
    # Whether a write that waits does so until the end of the stall.
    holds_writes = True

    def __init__(self, directory):
        self._directory = directory
        self.mount = os.path.join(directory, "mount")
        self._server = None

    @classmethod
    def obstacle(cls):
        """Why this machine cannot have such a disk; None if it can."""
        return unusable("/dev/fuse")

    def __enter__(self):
        try:
            self._serve(self.mount)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _serve(self, place):
        parts = {name: f"{self._directory}/{name}" for name in ("lowerdir", "upperdir", "workdir")}
        for path in (place, *parts.values()):
            os.makedirs(path)
        options = ",".join(f"{name}={path}" for name, path in parts.items())
        self._served = place
        self._server = Process(["fuse-overlayfs", "-f", "-o", options, place], f"{self._directory}/fuse.log")
        must(20, f"{place} is mounted: {self._server.said()}", lambda: os.path.ismount(place))

    def stall(self):
        """Returns when every operation waits."""
        self._server.send(signal.SIGSTOP)
        must(5, "the server is stopped", lambda: self._server.state == "T")

    def resume(self):
        if self._server:
            self._server.send(signal.SIGCONT)

    def __exit__(self, *_):
        """May be called at any time, once no process uses the file system any more."""
        self.resume()
        if self._server:
            subprocess.run(["umount", "--lazy", self._served], capture_output=True)
            self._server.wait(10)
            self._server.kill()


class Ext4(Fuse):
    """ext4 on a loop device whose file is on such a file system: the device stalls, and the page cache does not."""

    name = "ext4"
    title = "ext4 on a block device"
    # The kernel lets a process write a page occasionally.
    holds_writes = False

    @classmethod
    def obstacle(cls):
        reason = super().obstacle() or unusable("/dev/loop-control")
        if reason:
            return reason
        if subprocess.run(["losetup", "--find"], capture_output=True).returncode:
            return "no loop device is free"
        if not glob.glob("/sys/class/bdi/*/strict_limit"):
            return "the kernel has no strict_limit for a device's unwritten pages (Linux 6.2)"
        return None

    def __enter__(self):
        try:
            below = f"{self._directory}/below"
            self._serve(below)
            file = f"{below}/disk"
            with open(file, "wb") as disk:
                disk.truncate(8 << 30)
            run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard", file])
            os.makedirs(self.mount)
            # The kernel frees the device when the file system is unmounted.
            run(["mount", "-o", "loop", file, self.mount])
            self._bound_dirty_pages()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _bound_dirty_pages(self):
        """Limits the device to a hundredth of the memory for unwritten pages, so that writes wait soon after it
        stalls.
        """
        device = os.stat(self.mount).st_dev
        for name in ("strict_limit", "max_ratio"):
            path = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/{name}"
            with open(path, "w") as file:
                file.write("1")

    def __exit__(self, *_):
        self.resume()
        if os.path.ismount(self.mount):
            subprocess.run(["umount", self.mount], capture_output=True, timeout=60)
        super().__exit__()


DISKS = {disk.name: disk for disk in (Fuse, Ext4)}
