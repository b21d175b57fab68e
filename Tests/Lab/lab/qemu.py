"""QEMU guests: how they are started, and their disks, whose write cache is partly lost in a power failure."""

import json
import os
import signal
import subprocess
import sys

from lab.guest import tool
from lab.processes import Process, wait

DISK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "disk.py")


class Disk:
    """A server of a disk (disk.py) for one boot; `keeps` and the rest are its arguments."""

    def __init__(self, image, keeps, seed, slowest=0.005, block=4096, lies=False):
        self._address = f"{image}.sock"
        if os.path.exists(self._address):
            os.unlink(self._address)
        words = (keeps, seed, str(slowest), str(block), "lies" if lies else "honest")
        self._process = subprocess.Popen(
            [sys.executable, DISK, image, self._address, *words], stdout=subprocess.PIPE, text=True
        )
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the disk {image} does not start")

    def drive(self, name, more=""):
        """The arguments of QEMU; `more` are options of the device."""
        return drive(name, f"file.driver=nbd,file.server.type=unix,file.server.path={self._address}", more)

    def cut(self):
        """Its power fails."""
        self._process.send_signal(signal.SIGUSR1)

    def bury(self):
        """Waits for its end after `cut`; returns its figures."""
        text, _ = self._process.communicate(timeout=120)
        return json.loads(text or "{}")

    def kill(self):
        self._process.kill()
        self._process.wait()


def drive(name, source, more=""):
    """The arguments of QEMU for a disk with a write cache."""
    device = f"virtio-blk-pci,drive={name},write-cache=on,discard=off,write-zeroes=off{more}"
    source = f"if=none,id={name},cache=writeback,discard=ignore,driver=raw,{source}"
    return ["-drive", source, "-device", device]


def start(accelerator, kernel, initramfs, line, more, log, memory=1024):
    """Starts a guest; `line` and `more` are added to the kernel's and QEMU's arguments; returns the process."""
    # Without no_timer_check the kernel panics when a busy host emulates the timer late.
    line = f"console=ttyS0 quiet panic=-1 mitigations=off no_timer_check {line}"
    command = [tool("qemu-system-x86_64"), "-accel", accelerator]
    command += ["-cpu", "host" if accelerator == "kvm" else "max", "-m", str(memory)]
    command += "-nodefaults -no-user-config -no-reboot -display none -device virtio-rng-pci".split()
    command += ["-kernel", kernel, "-initrd", initramfs, "-append", line, *more]
    return Process(command, log)


def accelerator(out, initramfs, word):
    """`kvm` if the guest's kernel, whose init prints `word`, runs with it here, else `tcg`, which emulates every
    instruction.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    console = f"{out}/console-of-kvm"
    open(console, "w").close()
    more = ["-serial", f"file:{console}"]
    guest = start("kvm", f"{out}/vmlinuz", f"{out}/{initramfs}", "", more, f"{out}/qemu.log")
    try:
        wait(10, lambda: guest.status is not None or word in _text(console), 0.1)
        return "kvm" if word in _text(console) else "tcg"
    finally:
        guest.kill()


def _text(path):
    with open(path, errors="replace") as file:
        return file.read()
