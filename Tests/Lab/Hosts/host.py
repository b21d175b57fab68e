"""A host: a QEMU guest with its own kernel, power, clock and disk."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import network
from guest import tool
from processes import must

POWER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Power")


class Unreachable(Exception):
    """The host does not respond."""


class Host:
    """Boots on `start`; after `cut_power`, `start` boots it again with the same disk."""

    def __init__(self, name, number, image, directory, accelerator, minutes=0, disk=None):
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
        return self._process is not None and self._process.poll() is None

    def start(self):
        """Boots it; returns once it responds."""
        self._boots += 1
        drives = self._start_disk() if self._size else []
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 60 * self._minutes))
        command = [tool("qemu-system-x86_64"), "-accel", self._accelerator]
        command += ["-cpu", "host" if self._accelerator == "kvm" else "max", "-m", "1024"]
        command += "-nodefaults -no-user-config -no-reboot -display none".split()
        command += ["-kernel", f"{self._image}/vmlinuz", "-initrd", f"{self._image}/hosts.cpio"]
        line = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check "
        line += f"host.name={self.name} host.number={self._number}"
        command += ["-append", line, "-rtc", f"base={clock}", "-device", "virtio-rng-pci"]
        command += ["-serial", f"file:{self.directory}/console-{self._boots}"]
        command += ["-chardev", f"file,id=log,append=on,path={self.directory}/log"]
        command += ["-serial", "chardev:log", *drives]
        for number, device in enumerate(self._devices):
            mac = f"52:54:00:{number:02x}:00:{self._number:02x}"
            command += ["-netdev", f"tap,id=net{number},ifname={device},script=no,downscript=no"]
            command += ["-device", f"virtio-net-pci,netdev=net{number},mac={mac}"]
        with open(f"{self.directory}/qemu.log", "ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        began = time.monotonic()
        must(90, f"{self.name} boots: {self._said()}", self._answers)
        return time.monotonic() - began

    def _start_disk(self):
        """Starts the disk, whose write cache is partly lost in a power failure (Tests/Lab/Power/disk.py)."""
        address = f"{self.directory}/disk.sock"
        if os.path.exists(address):
            os.unlink(address)
        words = ["some", f"{self.name}-{self._boots}", "0.005", "4096", "honest"]
        self._disk = subprocess.Popen(
            [sys.executable, f"{POWER}/disk.py", f"{self.directory}/disk.img", address, *words],
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._disk.stdout.readline() != "ready\n":
            raise RuntimeError(f"the disk of {self.name} does not start")
        where = f"driver=raw,file.driver=nbd,file.server.type=unix,file.server.path={address}"
        device = "virtio-blk-pci,drive=disk,write-cache=on,discard=off,write-zeroes=off"
        return ["-drive", f"if=none,id=disk,cache=writeback,discard=ignore,{where}", "-device", device]

    def cut_power(self):
        """Kills its disk and then the guest, so that nothing more is written."""
        if self._disk:
            self._disk.send_signal(signal.SIGUSR1)
        if self._process:
            self._process.kill()
            self._process.wait()
        if self._disk:
            self._disk.stdout.readline()
            self._disk.kill()
            self._disk.wait()
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
        output, status, error = self._run(script, seconds)
        if must_succeed and status:
            said = (error or output).strip()[-600:]
            raise RuntimeError(f"{self.name}: {script[:80]!r}: exit {status}: {said}")
        return output

    def _run(self, script, seconds):
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
        return output, int(status), error

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
