"""The responder's side of content that nginx writes into a file by itself."""

import array
import fcntl
import os
import select
import socket
import struct

import fastcgi
from responder import Disconnected

DATA = 8
OFFER, COUNT, END = 1, 2, 3
GRANT, DECLINE, WINDOW, STOP = 1, 2, 3, 4
REST = 1


def message(kind, flags=0, offset=0, limit=0, version=1):
    return struct.pack("!BBBBIQQ", kind, version, flags, 0, 0, offset, limit)


def record(kind, **values):
    return fastcgi.record(DATA, message(kind, **values))


class Lane:
    """One exchange whose content nginx offers to write."""

    def __init__(self, exchange, path, start=b""):
        self.exchange = exchange
        self.path = path
        self.offset = len(start)
        self.count = 0
        self.counts = []
        with open(path, "wb") as file:
            file.write(start)

    def told(self):
        """The next message of nginx's: kind, count, errno."""
        kind, content = self.exchange._record()
        if kind != DATA:
            raise AssertionError("record type %d where a message was due" % kind)
        if len(content) != 24:
            raise AssertionError("a message of %d bytes" % len(content))
        what, version, flags, zero, errno, count, limit = struct.unpack("!BBBBIQQ", content)
        if (version, flags, zero, limit) != (1, 0, 0, 0):
            raise AssertionError("a message that says %r" % content)
        return what, count, errno

    def expect_offer(self):
        if self.told() != (OFFER, 0, 0):
            raise AssertionError("no offer")

    def open(self, flags=os.O_WRONLY | os.O_APPEND):
        """The file as a gateway opens it: locked by this opening (F_OFD_SETLK)."""
        fd = os.open(self.path, flags)
        fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        return fd

    def is_locked(self):
        """Whether another opening than a new one has the lock (F_OFD_GETLK)."""
        fd = os.open(self.path, os.O_RDWR)
        try:
            found = fcntl.fcntl(fd, 36, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
            return struct.unpack("hhqqi4x", found)[0] != fcntl.F_UNLCK
        finally:
            os.close(fd)

    def pass_fds(self, data, fds):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        try:
            sent = self.exchange.sock.sendmsg([data], rights)
            self.exchange.write(data[sent:])
        except ConnectionError as error:
            raise Disconnected(str(error)) from None

    def grant(self, limit, rest=False, offset=None, before=b""):
        fd = self.open()
        try:
            offset = self.offset if offset is None else offset
            self.pass_fds(before + record(GRANT, flags=int(rest), offset=offset, limit=limit), [fd])
        finally:
            os.close(fd)

    def widen(self, limit, rest=False):
        self.exchange.write(record(WINDOW, flags=int(rest), limit=limit))

    def decline(self):
        self.exchange.write(record(DECLINE))

    def stop(self):
        self.exchange.write(record(STOP))

    def until_end(self, widen=None):
        """The errno of END; what was counted before is in `counts`."""
        while True:
            kind, count, errno = self.told()
            if count < self.count:
                raise AssertionError("%d after %d" % (count, self.count))
            self.count = count
            if os.path.getsize(self.path) < self.offset + count:
                raise AssertionError("%d were told and are not there" % count)
            if kind == END:
                return errno
            if kind != COUNT:
                raise AssertionError("message %d" % kind)
            self.counts.append(count)
            if widen:
                widen(count)

    def content(self):
        """What is in the file behind its start."""
        with open(self.path, "rb") as file:
            return file.read()[self.offset:]

    def is_silent(self, seconds):
        """Whether nothing comes for so long."""
        return not self.exchange._buffer and not select.select([self.exchange.sock], [], [], seconds)[0]
