"""A host: a QEMU guest with its own kernel, power, clock and disk."""

import os
import time
import urllib.error
import urllib.request

import network
from lab import qemu
from lab.processes import must


class Unreachable(Exception):
    """The host does not respond."""


class Host:
    """Boots on `start`; after `cut_power`, `start` boots it again with the same disk."""

    def __init__(self, name, number, image, directory, accelerator, minutes, disk):
        self.name = name
        self.address = f"{network.SERVICE}.{number}"
        self.storage = f"{network.STORAGE}.{number}"
        self.directory = os.path.join(directory, name)
        self._number = number
        self._image = image
        self._accelerator = accelerator
        self._minutes = minutes
        self._size = disk
        self._process = self._disk = None
        self._boots = 0
        os.makedirs(self.directory)
        self._devices = network.plug(name)
        if disk:
            with open(f"{self.directory}/disk.img", "wb") as file:
                file.truncate(disk)

    @property
    def is_on(self):
        return self._process is not None and self._process.status is None

    def start(self):
        """Boots it; returns once it responds."""
        self._boots += 1
        more = ["-serial", f"file:{self.directory}/console-{self._boots}"]
        more += ["-chardev", f"file,id=log,append=on,path={self.directory}/log", "-serial", "chardev:log"]
        if self._size:
            self._disk = qemu.Disk(f"{self.directory}/disk.img", "some", f"{self.name}-{self._boots}")
            more += self._disk.drive("disk")
        for number, device in enumerate(self._devices):
            mac = f"52:54:00:{number:02x}:00:{self._number:02x}"
            more += ["-netdev", f"tap,id=net{number},ifname={device},script=no,downscript=no"]
            more += ["-device", f"virtio-net-pci,netdev=net{number},mac={mac}"]
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 60 * self._minutes))
        more += ["-rtc", f"base={clock}"]
        kernel, initramfs = f"{self._image}/vmlinuz", f"{self._image}/hosts.cpio"
        line = f"host.name={self.name} host.number={self._number}"
        log = f"{self.directory}/qemu.log"
        self._process = qemu.start(self._accelerator, kernel, initramfs, line, more, log)
        began = time.monotonic()
        must(90, f"{self.name} boots: {self._said()}", self._answers)
        return time.monotonic() - began

    def cut_power(self):
        """Kills its disk and then the guest, so that nothing more is written."""
        if self._disk:
            self._disk.cut()
        if self._process:
            self._process.kill()
        if self._disk:
            self._disk.bury()
        self._process = self._disk = None

    def _answers(self):
        if not self.is_on:
            raise RuntimeError(f"{self.name} does not boot: {self._said()}")
        try:
            return self.run("true", seconds=2) == ""
        except Unreachable:
            return False

    def _said(self):
        try:
            with open(f"{self.directory}/console-{self._boots}", errors="replace") as file:
                return file.read()[-500:]
        except OSError:
            return ""

    def run(self, script, seconds=60, must_succeed=True):
        """Runs a script on it; returns its output."""
        url = f"http://{self.address}:8090/cgi-bin/run"
        try:
            with urllib.request.urlopen(url, script.encode(), timeout=seconds) as answer:
                text = answer.read().decode(errors="replace")
        except (OSError, urllib.error.URLError) as error:
            raise Unreachable(f"{self.name}: {error}") from None
        output, found, rest = text.rpartition("\nSTATUS ")
        if not found:
            raise Unreachable(f"{self.name}: the response ended early")
        status, _, error = rest.partition("\n")
        if must_succeed and int(status):
            said = (error or output).strip()[-600:]
            raise RuntimeError(f"{self.name}: {script[:80]!r}: exit {status}: {said}")
        return output

    def log(self):
        with open(f"{self.directory}/log", "ab"):
            pass
        with open(f"{self.directory}/log", errors="replace") as file:
            return file.read().replace("\r\n", "\n")

    def write(self, path, content):
        self.run(f"mkdir -p $(dirname {path}); cat >{path} <<'HOSTS_END'\n{content}\nHOSTS_END\n")

    def wait_until_mounted(self, path, kind):
        must(60, f"{path} is mounted on {self.name}", lambda: self.is_mounted(path, kind))

    def is_mounted(self, path, kind=""):
        said = self.run(f"grep ' {path} {kind}' /proc/mounts", must_succeed=False)
        return bool(said.strip())
