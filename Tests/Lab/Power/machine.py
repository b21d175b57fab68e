"""The machine: a QEMU guest with two disks, its control and its power failures."""

import dataclasses
import fcntl
import os
import signal
import tempfile
import time

from lab import qemu
from lab.exchange import ask
from lab.guest import run, tool
from lab.http1 import Closed
from lab.processes import free_ports

DISKS = ("data", "other")
SECTORS = ",physical_block_size=4096,logical_block_size=512"
SIZE = 1 << 30
# The option of each mkfs that makes it overwrite anything.
MAKE = {"ext4": "-F", "xfs": "-f", "btrfs": "-f"}
# An upload that does not exist: 404 shows that nginx and the gateway serve.
NOTHING = "/dir/x/upload-resource/00000000000000000000000000"


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
        self.http, self.https, self.control = free_ports(3)
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
            if conduct.is_plain:
                drives += qemu.drive(name, f"file.driver=file,file.filename={image}", SECTORS)
                continue
            seed = f"{conduct.seed}-{name}"
            disk = qemu.Disk(image, conduct.keeps, seed, conduct.slowest, conduct.block, conduct.lies)
            self._disks.append(disk)
            drives += disk.drive(name, SECTORS)
        return drives

    def _start(self, drives, words):
        host = self._host
        forward = ",".join(
            f"hostfwd=tcp:127.0.0.1:{here}-:{there}"
            for here, there in ((self.http, 8080), (self.https, 8443), (self.control, 8090))
        )
        more = ["-smp", str(host.processors)]
        more += ["-serial", f"file:{self.console}", "-serial", f"file:{self.log}"]
        more += ["-netdev", f"user,id=net,restrict=off,{forward}"]
        more += ["-device", "virtio-net-pci,netdev=net,romfile=", *drives]
        line = " ".join(f"pow.{name}={value}" for name, value in words.items())
        files = (f"{host.build}/vmlinuz", f"{host.build}/guest.cpio")
        return qemu.start(host.accelerator, *files, line, more, f"{host.work}/qemu.log", memory=768)

    def cut(self):
        """Cuts the power: the disks stop, then QEMU is killed. Usable from any thread."""
        for disk in self._disks:
            disk.cut()
        self.process.send(signal.SIGKILL)
        self.is_dead = True

    def bury(self):
        """Waits for the end of every process; records the disks' figures."""
        self.process.wait(None)
        for name, disk in zip(DISKS, self._disks):
            self.figures[name] = disk.bury()
        self._turn.close()

    def discard(self):
        """Ends the machine in any state, for a run that is stopped."""
        self.is_dead = True
        for process in (self.process, *self._disks):
            process.kill()
        self._turn.close()

    def words(self):
        """The lines of init on the console, as (seconds since boot, word, rest)."""
        with open(self.console, errors="replace") as file:
            lines = [[*line.split(None, 3), ""] for line in file if line.startswith("POW ")]
        return [(float(line[1]), line[2], line[3].strip()) for line in lines if len(line) > 3]

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
            if self.process.status is not None:
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
            fields = {"Upload-Draft-Interop-Version": "8"}
            return ask(self.http, "HEAD", NOTHING, fields, patience=5).status == 404
        except Closed:
            return False

    def ask(self, question, limit=60):
        """The response of guest/ask."""
        answer = ask(self.control, "GET", f"/cgi-bin/ask?{question}", {}, patience=limit)
        return answer.content.decode(errors="replace")


def take_turn():
    """Waits until no other guest runs on this machine, since the time limits assume that. The open file is the
    lock.
    """
    path = os.path.join(tempfile.gettempdir(), "spoolgate-power-turn")
    file = open(path, "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def make_disks(work, kind):
    """Creates two new images with empty file systems, with the defaults of mkfs."""
    os.makedirs(f"{work}/logs", exist_ok=True)
    for name in DISKS:
        path = f"{work}/{name}.img"
        if os.path.exists(path):
            os.unlink(path)
        with open(path, "wb") as file:
            file.truncate(SIZE)
        run(tool(f"mkfs.{kind}"), "-q", MAKE[kind], path)
