"""Debian root directories, created by debootstrap and cached, to be copied or to build in.

A cached root is created again if it is older than MAXIMUM_AGE, or if its packages, files or mirrors have changed.
Environment: DEBIAN_CACHE (the cache's directory), DEBIAN_MIRROR and DEBIAN_SECURITY_MIRROR.
"""

import fcntl
import json
import os
import shutil
import subprocess
import time

MAXIMUM_AGE = 14 * 24 * 3600
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
SECURITY = os.environ.get("DEBIAN_SECURITY_MIRROR", "http://deb.debian.org/debian-security")


class Unavailable(Exception):
    """This host lacks a requirement."""


def cached(suite, packages, name, files):
    """The directory of a suite's root with the given packages and files (texts by path)."""
    home = os.environ.get("DEBIAN_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "/var/cache", "spoolgate-roots"
    )
    directory = os.path.join(home, suite)
    os.makedirs(directory, exist_ok=True)
    root, stamp = os.path.join(directory, name), os.path.join(directory, name + ".json")
    made_of = {"packages": packages, "files": files, "mirrors": [MIRROR, SECURITY]}
    with open(os.path.join(directory, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_fresh(root, stamp, made_of):
            _make(suite, root, packages, files)
            with open(stamp, "w") as file:
                json.dump(made_of, file)
    return root


def copy(root, destination):
    _run(["cp", "-a", "--reflink=auto", root, destination])


def keep_downloads(machine_root, cached_root):
    """Copies the packages that apt fetched in a machine to the cache, for the next machines."""
    archives = "var/cache/apt/archives"
    for name in os.listdir(os.path.join(machine_root, archives)):
        kept = os.path.join(cached_root, archives, name)
        if name.endswith(".deb") and not os.path.exists(kept):
            shutil.copyfile(os.path.join(machine_root, archives, name), kept + ".new")
            os.rename(kept + ".new", kept)


def _is_fresh(root, stamp, made_of):
    try:
        with open(stamp) as file:
            same = json.load(file) == made_of
        return same and os.path.isdir(root) and time.time() - os.stat(stamp).st_mtime < MAXIMUM_AGE
    except (OSError, ValueError):
        return False


def _make(suite, root, packages, files):
    new = root + ".new"
    for left in (new, root):
        shutil.rmtree(left, ignore_errors=True)
    print(
        f"creating a root of {suite} at {root}: two minutes, every {MAXIMUM_AGE // 86400} days",
        flush=True,
    )
    include = ",".join(packages.split())
    _run(["debootstrap", "--variant=minbase", f"--include={include}", suite, new, MIRROR])
    lines = [f"deb {MIRROR} {suite} main", f"deb {MIRROR} {suite}-updates main"]
    lines.append(f"deb {SECURITY} {suite}-security main")
    _write(new, "etc/apt/sources.list", "\n".join(lines) + "\n")
    # Each copy is a separate machine. apt keeps fetched packages, for the cache.
    _write(new, "etc/apt/apt.conf.d/keep", 'Binary::apt::APT::Keep-Downloaded-Packages "true";\n')
    _write(new, "etc/machine-id", "")
    for path, text in files.items():
        _write(new, path, text)
    shutil.copyfile("/etc/resolv.conf", os.path.join(new, "etc/resolv.conf"))
    _run(["chroot", new, "apt-get", "-q", "update"])
    _run(["chroot", new, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qy", "upgrade"])
    os.rename(new, root)


def _write(root, path, text):
    path = os.path.join(root, path)
    if os.path.islink(path):
        os.unlink(path)
    with open(path, "w") as file:
        file.write(text)


def _run(command):
    try:
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except FileNotFoundError:
        raise Unavailable(
            f"{command[0]} is missing: run deploy/install-dependencies.sh drill"
        ) from None
    except subprocess.CalledProcessError as error:
        last = (error.stdout.strip().splitlines() or ["no output"])[-1]
        raise Unavailable(f"{' '.join(command[:4])}: exit {error.returncode}: {last}") from None
