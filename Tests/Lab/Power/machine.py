"""The machine: a QEMU guest with two disks, its control and its power failures."""

import dataclasses
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from guest import tool

HERE = os.path.dirname(os.path.abspath(__file__))
DISKS = ("data", "other")
SIZE = 1 << 30
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
# Requests an upload that does not exist: 404 shows that nginx and the gateway serve.
PROBE = (
    b"HEAD /dir/x/upload-resource/00000000000000000000000000 HTTP/1.1\r\nHost: localhost\r\n"
    b"Connection: close\r\nUpload-Draft-Interop-Version: 8\r\n\r\n"
)


@dataclasses.dataclass
class Conduct:
    """The behavior of the disks in one boot."""

    # The part of the write cache that survives the power failure: none, all, some.
    keeps: str = "some"
    seed: str = "0"
    # The longest pause before a flush, in seconds.
    slowest: float = 0.02
    # The number of bytes that a disk writes atomically.
    block: int = 4096
    # Whether flushes do nothing.
    lies: bool = False
    # Whether the disks are plain files of QEMU.
    is_plain: bool = False

    def __str__(self):
        if self.is_plain:
            return "plain files"
        return f"keeps {self.keeps}, flushes in {self.slowest} s, blocks of {self.block}"


@dataclasses.dataclass
class Host:
    """The properties shared by all boots."""

    # The directory of the kernel and the initramfs, and that of the disks and logs.
    build: str
    work: str
    accelerator: str
    processors: int = 1
    # Whether the guest has a previous build of the gateway.
    has_previous: bool = False


@dataclasses.dataclass
class Lane:
    """nginx's activity in the spool (spool_receive)."""

    # The files of uploads that it has open, its threads that write, and the bytes written since the boot.
    files: int = 0
    writes: int = 0
    bytes: int = 0

    def __str__(self):
        return f"{self.files} files open, {self.writes} writes, {self.bytes} bytes"


class Machine:
    """One boot of the guest; the disks outlive it."""

    def __init__(self, host, words, conduct, number):
        self._turn = take_turn()
        self.http, self.https, self.control = (free_port() for _ in range(3))
        self.is_dead = False
        self.figures = {}
        self._host = host
        self.console = f"{host.work}/logs/console-{number}"
        self.log = f"{host.work}/logs/gateway-{number}"
        for path in (self.console, self.log):
            open(path, "w").close()
        self._disks = []
        try:
            drives = self._start_disks(conduct)
            self.began = time.monotonic()
            self.process = self._start(drives, words)
        except BaseException:
            for disk in self._disks:
                disk.kill()
            self._turn.close()
            raise

    def _start_disks(self, conduct):
        drives = []
        for name in DISKS:
            image = f"{self._host.work}/{name}.img"
            where = f"driver=raw,file.driver=file,file.filename={image}"
            if not conduct.is_plain:
                where = f"driver=raw,file.driver=nbd,file.server.type=unix,file.server.path={image}.sock"
                self._disks.append(self._start_disk(name, image, conduct))
            drives += [
                "-drive",
                f"if=none,id={name},cache=writeback,discard=ignore,{where}",
                "-device",
                f"virtio-blk-pci,drive={name},write-cache=on,physical_block_size=4096,"
                "logical_block_size=512,discard=off,write-zeroes=off",
            ]
        return drives

    def _start_disk(self, name, image, conduct):
        address = f"{image}.sock"
        if os.path.exists(address):
            os.unlink(address)
        server = subprocess.Popen(
            [
                sys.executable,
                f"{HERE}/disk.py",
                image,
                address,
                conduct.keeps,
                f"{conduct.seed}-{name}",
                str(conduct.slowest),
                str(conduct.block),
                "lies" if conduct.lies else "honest",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        if server.stdout.readline() != "ready\n":
            raise RuntimeError(f"the disk {name} does not start")
        return server

    def _start(self, drives, words):
        host = self._host
        forward = ",".join(
            f"hostfwd=tcp:127.0.0.1:{here}-:{there}"
            for here, there in ((self.http, 8080), (self.https, 8443), (self.control, 8090))
        )
        # Without no_timer_check the kernel panics when a busy host emulates the timer late.
        line = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check "
        line += " ".join(f"pow.{name}={value}" for name, value in words.items())
        with open(f"{host.work}/qemu.log", "a") as output:
            return subprocess.Popen(
                [
                    tool("qemu-system-x86_64"),
                    "-accel",
                    host.accelerator,
                    "-cpu",
                    "host" if host.accelerator == "kvm" else "max",
                    "-smp",
                    str(host.processors),
                    "-m",
                    "768",
                    "-nodefaults",
                    "-no-user-config",
                    "-no-reboot",
                    "-display",
                    "none",
                    "-kernel",
                    f"{host.build}/vmlinuz",
                    "-initrd",
                    f"{host.build}/guest.cpio",
                    "-append",
                    line,
                    "-serial",
                    f"file:{self.console}",
                    "-serial",
                    f"file:{self.log}",
                    "-device",
                    "virtio-rng-pci",
                    "-netdev",
                    f"user,id=net,restrict=off,{forward}",
                    "-device",
                    "virtio-net-pci,netdev=net,romfile=",
                    *drives,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def cut(self):
        """Cuts the power: the disks stop, then QEMU is killed. Usable from any thread."""
        for disk in self._disks:
            os.kill(disk.pid, signal.SIGUSR1)
        self.process.kill()
        self.is_dead = True

    def bury(self):
        """Waits for the end of every process; records the disks' figures."""
        self.process.wait()
        for name, disk in zip(DISKS, self._disks):
            text, _ = disk.communicate(timeout=120)
            self.figures[name] = json.loads(text or "{}")
        self._turn.close()

    def discard(self):
        """Ends the machine in any state, for a run that is stopped."""
        self.is_dead = True
        for process in (self.process, *self._disks):
            if process.poll() is None:
                process.kill()
                process.wait()
        self._turn.close()

    def words(self):
        """The lines of init on the console, as (seconds since boot, word, rest)."""
        with open(self.console, errors="replace") as file:
            lines = [line.split(None, 3) for line in file if line.startswith("POW ")]
        return [
            (float(line[1]), line[2], line[3].strip() if len(line) > 3 else "")
            for line in lines
            if len(line) > 2
        ]

    def lane(self):
        """nginx's activity in the spool in the last report of guest/witness.c; None without a report."""
        found = [rest.split() for _, word, rest in self.words() if word == "lane"]
        # The power may fail in the middle of a line.
        found = [one for one in found if len(one) == 3 and all(map(str.isdigit, one))]
        return Lane(*map(int, found[-1])) if found else None

    def last_words(self):
        """The last output of the gateway and nginx that is not part of the gateway's log."""
        with open(self.log, errors="replace") as file:
            said = [line.strip() for line in file if not line.startswith("time=")]
        return said[-1] if said else ""

    def wait(self, limit=120):
        """Waits until nginx and the gateway serve; returns the seconds since power on, or None."""
        while time.monotonic() - self.began < limit:
            if self.process.poll() is not None:
                return None
            words = [word for _, word, _ in self.words()]
            if "gateway-ended" in words or "nginx-failed" in words:
                return None
            # Twice: if there are two daemons, each receives one of the requests.
            if "up" in words and self._serves() and self._serves():
                return time.monotonic() - self.began
            time.sleep(0.05)
        return None

    @property
    def has_booted(self):
        """Whether the guest's kernel reached init."""
        return bool(self.words())

    def _serves(self):
        try:
            with socket.create_connection(("127.0.0.1", self.http), timeout=5) as peer:
                peer.sendall(PROBE)
                return peer.recv(4096).startswith(b"HTTP/1.1 404")
        except OSError:
            return False

    def ask(self, question, limit=60):
        """The response of guest/ask."""
        url = f"http://127.0.0.1:{self.control}/cgi-bin/ask?{question}"
        with urllib.request.urlopen(url, timeout=limit) as answer:
            return answer.read().decode(errors="replace")


def take_turn():
    """Waits until no other guest runs on this machine, since the time limits assume that. The open file is the
    lock.
    """
    path = os.path.join(tempfile.gettempdir(), "spoolgate-power-turn")
    file = open(path, "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_disks(work, kind):
    """Creates two new images with empty file systems, with the defaults of mkfs."""
    os.makedirs(f"{work}/logs", exist_ok=True)
    for name in DISKS:
        path = f"{work}/{name}.img"
        if os.path.exists(path):
            os.unlink(path)
        with open(path, "wb") as file:
            file.truncate(SIZE)
        subprocess.run(
            [tool(MAKE[kind][0]), *MAKE[kind][1:], path], check=True, stdout=subprocess.DEVNULL
        )
