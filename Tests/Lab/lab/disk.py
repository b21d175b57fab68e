#!/usr/bin/env python3
"""A disk with a volatile write cache, as an NBD server, and the effect of a power failure on it.

A write is in the image immediately, so that it can be read back. The server remembers the previous content of each
block until the guest flushes. A power failure reverts, block by block, any number of the newest writes since the
last flush. QEMU's own `cache=writeback` on a file is weaker: all data that left the guest survives a SIGKILL of
QEMU, flushed or not.

Invariant: after the reply to a flush, no earlier write is reverted; after SIGUSR1 (the power failure) no request is
performed or receives a reply.

    disk.py IMAGE SOCKET none|all|some SEED SECONDS BLOCK honest|lies
"""

import collections
import json
import os
import random
import signal
import socket
import struct
import sys
import time

HANDSHAKE, OPTION = 0x4E42444D41474943, 0x49484156454F5054
OPTION_REPLY, REPLY = 0x3E889045565A9, 0x67446698
EXPORT_NAME, ABORT, LIST, INFO, GO = 1, 2, 3, 6, 7
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
# Has flags, supports flush and FUA.
FLAGS = 1 | 4 | 8
FUA = 1
INVALID = 22

# The disk writes back by itself if its history exceeds this many bytes.
HISTORY = 64 << 20


class Cut(BaseException):
    """The power failed."""


class Disk:
    """One image, and the history of each block since the last flush."""

    def __init__(self, path, block, ignores_flush=False):
        self.file = os.open(path, os.O_RDWR)
        self.size = os.fstat(self.file).st_size
        self.figures = collections.Counter()
        self._block = block
        self._ignores_flush = ignores_flush
        # Block number: its earlier contents, oldest first.
        self._old = collections.defaultdict(list)
        # Block numbers in the order of writes.
        self._order = collections.deque()

    def write(self, at, data, is_durable):
        first, last = at // self._block, (at + len(data) - 1) // self._block
        before = os.pread(self.file, (last - first + 1) * self._block, first * self._block)
        for number in range(first, last + 1):
            start = (number - first) * self._block
            self._old[number].append(before[start : start + self._block])
            self._order.append(number)
        os.pwrite(self.file, data, at)
        self.figures["written"] += len(data)
        if is_durable and not self._ignores_flush:
            for number in range(first, last + 1):
                self._old.pop(number, None)
        while len(self._order) * self._block > HISTORY:
            number = self._order.popleft()
            if self._old.get(number):
                self._old[number].pop(0)

    def flush(self):
        self.figures["flushes"] += 1
        if not self._ignores_flush:
            self._old.clear()
            self._order.clear()

    def lose(self, keeps, chance):
        """Reverts what a power failure loses: `keeps` says how much of the cache survives."""
        for number, versions in sorted(self._old.items()):
            if not versions:
                continue
            self.figures["unflushed"] += 1
            if keeps == "all" or (keeps == "some" and chance.random() < 0.3):
                continue
            back = 0 if keeps == "none" else chance.randrange(len(versions))
            os.pwrite(self.file, versions[back], number * self._block)
            self.figures["taken back"] += 1
        self._old.clear()


def read(peer, count):
    data = bytearray(count)
    view, got = memoryview(data), 0
    while got < count:
        more = peer.recv_into(view[got:])
        if not more:
            raise EOFError
        got += more
    return data


def greet(peer, size):
    """The fixed newstyle handshake; returns once the client may send requests."""
    peer.sendall(struct.pack(">QQH", HANDSHAKE, OPTION, 3))
    read(peer, 4)
    while True:
        _, option, length = struct.unpack(">QII", read(peer, 16))
        read(peer, length)

        def reply(kind, data=b"", option=option):
            peer.sendall(struct.pack(">QIII", OPTION_REPLY, option, kind, len(data)) + data)

        if option == EXPORT_NAME:
            peer.sendall(struct.pack(">QH", size, FLAGS))
            return
        if option in (INFO, GO):
            reply(3, struct.pack(">HQH", 0, size, FLAGS))
            reply(3, struct.pack(">HIII", 3, 512, 4096, 1 << 25))
            reply(1)
            if option == GO:
                return
        elif option == LIST:
            reply(2, struct.pack(">I", 0))
            reply(1)
        elif option == ABORT:
            reply(1)
            raise EOFError
        else:
            reply(0x80000001)


def serve(peer, disk, chance, slowest):
    greet(peer, disk.size)
    while True:
        _, flags, kind, handle, at, count = struct.unpack(">IHHQQI", read(peer, 28))
        answer = b""
        if kind == READ:
            answer = os.pread(disk.file, count, at)
        elif kind == WRITE:
            disk.write(at, read(peer, count), bool(flags & FUA))
        elif kind == FLUSH:
            # If the power fails during the pause, the flush has not happened.
            time.sleep(chance.random() ** 3 * slowest)
            disk.flush()
        elif kind == DISCONNECT:
            return
        error = 0 if kind <= FLUSH else INVALID
        peer.sendall(struct.pack(">IIQ", REPLY, error, handle) + answer)


def main(path, address, keeps, seed, slowest, block, honesty):
    """Serves `path` on the unix socket `address` until SIGUSR1; then reverts blocks and prints figures."""
    disk = Disk(path, int(block), ignores_flush=honesty == "lies")
    chance = random.Random(seed)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(1)

    def cut(*_):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        raise Cut

    peer = None
    try:
        signal.signal(signal.SIGUSR1, cut)
        print("ready", flush=True)
        while True:
            peer, _ = listener.accept()
            try:
                serve(peer, disk, chance, float(slowest))
            except (EOFError, OSError):
                pass
    except Cut:
        pass
    disk.lose(keeps, chance)
    # The guest runs for some more milliseconds, and must not receive errors from its disk.
    if peer:
        peer.settimeout(30)
        try:
            while peer.recv(1 << 20):
                pass
        except OSError:
            pass
    print(json.dumps(disk.figures), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
