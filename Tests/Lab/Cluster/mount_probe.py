#!/usr/bin/env python3
"""Checks the requirements of a shared spool on two mounts of one file system: mount_probe.py A B.

It prints one JSON object. It is a separate program, so that the test itself has no file of a mount open.
"""

import errno
import fcntl
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time

# F_OFD_GETLK, F_OFD_SETLK and F_OFD_SETLKW, which Python does not define.
GET, SET, SET_WAITING = 36, 37, 38
RANGE = 1 << 62
ROUNDS = 300
KILLS = 60


def other_side(word, path):
    """Another process, which runs the function of that name below and has printed its first line."""
    command = [sys.executable, __file__, word, path]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    return child


def lock_words(kind):
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, RANGE, 0)


def lock(descriptor):
    """Whether this open file description has acquired the lock."""
    try:
        fcntl.fcntl(descriptor, SET, lock_words(fcntl.F_WRLCK))
        return True
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise


def wait_for_lock(descriptor):
    """Acquires the lock, which is free, with the waiting system call."""
    fcntl.fcntl(descriptor, SET_WAITING, lock_words(fcntl.F_WRLCK))


def is_locked(descriptor):
    """Whether another open file description has the lock, on any mount."""
    answer = fcntl.fcntl(descriptor, GET, lock_words(fcntl.F_WRLCK))
    return struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK


def create(path):
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def links_after_removal(a, b):
    """The link count from fstat on A of a file that B removed: immediately, and within two seconds."""
    # Locked, as every open record is.
    path = "removed"
    descriptor = create(f"{a}/{path}")
    lock(descriptor)
    os.stat(f"{b}/{path}")
    os.unlink(f"{b}/{path}")
    at_once = os.fstat(descriptor).st_nlink
    began = time.monotonic()
    while os.fstat(descriptor).st_nlink and time.monotonic() - began < 2:
        time.sleep(0.01)
    finally_ = os.fstat(descriptor).st_nlink
    os.close(descriptor)
    return [at_once, finally_]


def lost_races(a, b):
    """How often B, which had a record open that A then removed, acquires its lock and treats it as existing; and
    the longest wait for the lock, since the server responds only after it has written its journal.
    """
    wrong, longest = 0, 0
    for number in range(5):
        path = f"race{number}"
        first = create(f"{a}/{path}")
        lock(first)
        second = os.open(f"{b}/{path}", os.O_RDWR)
        os.unlink(f"{a}/{path}")
        os.close(first)
        began = time.monotonic()
        while not lock(second):
            time.sleep(0.01)
        longest = max(longest, time.monotonic() - began)
        wrong += os.fstat(second).st_nlink != 0
        os.close(second)
    return [wrong, round(longest, 1)]


def unlocked_births(a, b):
    """How often B finds a file that A creates and locks immediately, while it is not locked.

    B opens each file; files that B finds too late, or finds locked, are fine.
    """
    child = other_side("watch", b)
    kept = []
    for number in range(ROUNDS):
        child.stdin.write(b"%d\n" % number)
        child.stdin.flush()
        descriptor = create(f"{a}/born{number}")
        if not lock(descriptor):
            raise RuntimeError("the birth's own lock was refused")
        kept.append(descriptor)
        child.stdout.readline()
    child.stdin.close()
    seen = int(child.stdout.readline())
    child.wait()
    for descriptor in kept:
        os.close(descriptor)
    return seen


def watch(b):
    """The other side of unlocked_births: a line in, look for the name; a line out, it was found."""
    print("ready", flush=True)
    unlocked = 0
    for line in sys.stdin:
        while True:
            try:
                descriptor = os.open(f"{b}/born{line.strip()}", os.O_RDWR)
                break
            except FileNotFoundError:
                pass
        unlocked += not is_locked(descriptor)
        os.close(descriptor)
        print("found", flush=True)
    print(unlocked, flush=True)


def stale_records(a, b):
    """How often B, which read a file while A had it locked, reads something other than A's last synced content
    immediately after acquiring the lock; and how often it reads a wrong size of a second file.
    """
    child = other_side("take", b)
    for number in range(ROUNDS):
        record, content = create(f"{a}/record{number}"), create(f"{a}/content{number}")
        lock(record)
        os.pwrite(record, b"0" * 512, 0)
        child.stdin.write(b"%d\n" % number)
        child.stdin.flush()
        child.stdout.readline()
        os.write(content, b"x" * 100)
        os.fdatasync(content)
        os.pwrite(record, b"1" * 512, 0)
        os.fdatasync(record)
        os.close(content)
        os.close(record)
        child.stdout.readline()
    child.stdin.close()
    stale = json.loads(child.stdout.readline())
    child.wait()
    return stale


def take(b):
    """The other side of stale_records."""
    print("ready", flush=True)
    stale = [0, 0]
    for line in sys.stdin:
        record = os.open(f"{b}/record{line.strip()}", os.O_RDWR)
        os.pread(record, 512, 0)
        print("read", flush=True)
        while not lock(record):
            pass
        stale[0] += os.pread(record, 512, 0) != b"1" * 512
        content = os.open(f"{b}/content{line.strip()}", os.O_RDWR)
        stale[1] += os.fstat(content).st_size != 100
        os.close(content)
        os.close(record)
        print("done", flush=True)
    print(json.dumps(stale), flush=True)


def stale_sizes(a, b):
    """How often B reads another size than A has written, while A's file stays open."""
    descriptor, stale = create(f"{a}/growing"), 0
    for number in range(1, ROUNDS + 1):
        os.write(descriptor, b"x" * 1000)
        stale += os.stat(f"{b}/growing").st_size != number * 1000
    os.close(descriptor)
    return stale


def stale_names(a, b):
    """How often B misses a name that A created, or finds one that A removed."""
    stale = 0
    for number in range(ROUNDS):
        path = f"name{number}"
        stale += os.path.exists(f"{b}/{path}")
        os.close(create(f"{a}/{path}"))
        stale += not os.path.exists(f"{b}/{path}")
        os.unlink(f"{a}/{path}")
        stale += os.path.exists(f"{b}/{path}")
    return stale


def double_births(a, b):
    """How often both can create the same name."""
    twice = 0
    for number in range(ROUNDS):
        os.close(create(f"{a}/twice{number}"))
        try:
            os.close(create(f"{b}/twice{number}"))
            twice += 1
        except FileExistsError:
            pass
    return twice


def locks(a, b):
    """Whether B detects A's lock and is refused it, by descriptors open for writing and for reading; and how many
    seconds after the death of A's process B acquires it."""
    descriptor = create(f"{a}/locked")
    lock(descriptor)
    writing, reading = os.open(f"{b}/locked", os.O_RDWR), os.open(f"{b}/locked", os.O_RDONLY)
    seen = [is_locked(writing), is_locked(reading), not lock(writing)]
    os.close(descriptor)
    while not lock(writing):
        pass
    fcntl.fcntl(writing, SET, lock_words(fcntl.F_UNLCK))
    child = other_side("hold", f"{a}/locked")
    seen.append(is_locked(writing))
    child.kill()
    child.wait()
    began = time.monotonic()
    while not lock(writing) and time.monotonic() - began < 10:
        time.sleep(0.005)
    return {"seen": all(seen), "after death": round(time.monotonic() - began, 3)}


def locks_left(a, b, ask=lock):
    """How often a process that was killed while it acquired free locks has left one that is never released."""
    left = 0
    for number in range(KILLS):
        folder = f"asked-{ask.__name__}-{number}"
        os.mkdir(f"{a}/{folder}")
        child = os.fork()
        if child == 0:
            ask_until_killed(f"{a}/{folder}", ask)
        time.sleep(0.01 + random.random() / 50)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for name in os.listdir(f"{b}/{folder}"):
            descriptor = os.open(f"{b}/{folder}/{name}", os.O_RDWR)
            deadline = time.monotonic() + 2
            while is_locked(descriptor) and time.monotonic() < deadline:
                time.sleep(0.01)
            left += is_locked(descriptor)
            os.close(descriptor)
    return left


def ask_until_killed(folder, ask):
    """Part of locks_left: creates files and locks them."""
    try:
        for each in range(1 << 20):
            ask(create(f"{folder}/{each}"))
    finally:
        os._exit(1)


def locks_left_by_waiting(a, b):
    """The same with the waiting system call."""
    return locks_left(a, b, wait_for_lock)


def hold(path):
    lock(os.open(path, os.O_RDWR))
    print("held", flush=True)
    time.sleep(60)


def main():
    sides = {"watch": watch, "take": take, "hold": hold}
    if sys.argv[1] in sides:
        return sides[sys.argv[1]](sys.argv[2])
    a, b = (f"{mount}/probe" for mount in sys.argv[1:])
    os.mkdir(a, 0o700)
    probes = (locks, locks_left, locks_left_by_waiting, links_after_removal, lost_races, unlocked_births)
    probes += (double_births, stale_records, stale_sizes, stale_names)
    found = {probe.__name__: probe(a, b) for probe in probes}
    print(json.dumps({**found, "rounds": ROUNDS, "kills": KILLS}))


main()
