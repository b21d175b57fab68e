"""Builds the Debian packages with `make deb`, on the suite for which they are.

Packages for this host's suite are built on the host; those for another suite in a root of that suite, into which this
host's Swift toolchain is mounted. The root keeps its build directory in the cache, so that the next build is short.
Building for another suite requires root and a separate mount namespace.
"""

import fcntl
import glob
import os
import shutil
import subprocess

import roots
from roots import Unavailable

REPOSITORY = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
NAMES = ("spoolgate", "libnginx-mod-http-interim", "spoolgate-client")

# The packages that `make deb` needs to start; deploy/install-dependencies.sh installs the others.
BUILDERS = "make ca-certificates"
SOURCE = "usr/src/spoolgate"


# The suffixes that `deb.sh` appends to a suite's versions.
SUFFIXES = {"bookworm": "~deb12", "trixie": "~deb13"}


def own_suite():
    with open("/etc/os-release") as release:
        fields = dict(line.rstrip().split("=", 1) for line in release if "=" in line)
    return fields.get("VERSION_CODENAME", "bookworm").strip('"')


def make(suite):
    """Builds the packages for a suite. Returns their paths and the source tree in which they were built."""
    if suite == own_suite():
        log = os.path.join(REPOSITORY, ".build/deb.log")
        _run(["make", "-C", REPOSITORY, "deb"], f"make deb for {suite}", log)
        return find(os.path.join(REPOSITORY, ".build/deb"), suite), REPOSITORY
    source = _build_in_root(suite)
    return find(os.path.join(source, ".build/deb"), suite), source


def find(directory, suite):
    """The paths of the newest packages for a suite in a directory."""
    found = []
    for name in NAMES:
        pattern = f"{name}_*{SUFFIXES.get(suite, '')}_*.deb"
        files = sorted(glob.glob(os.path.join(directory, pattern)), key=os.path.getmtime)
        if not files:
            raise Unavailable(f"no package {pattern} in {directory}: run make deb")
        found.append(files[-1])
    return found


def _build_in_root(suite):
    swift = toolchain()
    root = roots.cached(suite, BUILDERS, "build", {})
    with open(root + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        source = os.path.join(root, SOURCE)
        _copy_source(source)
        # They end with this program's own mount namespace.
        place = root + swift
        os.makedirs(place, exist_ok=True)
        for command in (
            ["mount", "--bind", swift, place],
            ["mount", "-t", "proc", "proc", os.path.join(root, "proc")],
            ["mount", "--rbind", "/dev", os.path.join(root, "dev")],
        ):
            subprocess.run(command, check=True)
        try:
            _run(
                [
                    "chroot",
                    root,
                    "env",
                    "-i",
                    "HOME=/root",
                    "LANG=C.UTF-8",
                    f"PATH=/usr/sbin:/usr/bin:/sbin:/bin:{swift}/usr/bin",
                    "sh",
                    "-c",
                    f"apt-get -q update && make -C /{SOURCE} deb",
                ],
                f"make deb in a root of {suite}",
                root + ".log",
            )
        finally:
            for place in (place, os.path.join(root, "proc"), os.path.join(root, "dev")):
                subprocess.run(["umount", "-l", place], check=False)
        return source


def toolchain():
    """The directory of this host's Swift that contains `usr`."""
    swift = shutil.which("swift")
    above = os.path.dirname(os.path.realpath(swift)).removesuffix("/usr/bin") if swift else ""
    if not above or not os.path.isdir(os.path.join(above, "usr/lib/swift")):
        raise Unavailable(
            "no Swift toolchain in a separate directory, which can be mounted into a root of another suite"
        )
    return above


def _copy_source(destination):
    """Copies the working tree as git sees it, with its last commit, and keeps the previous build directory."""
    os.makedirs(destination, exist_ok=True)
    for name in os.listdir(destination):
        path = os.path.join(destination, name)
        if name == ".build":
            continue
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    # The versions of the packages come from the commit and its tag.
    history = destination + ".history"
    shutil.rmtree(history, ignore_errors=True)
    git = ["git", "clone", "-q", "--depth", "1", "--no-checkout", f"file://{REPOSITORY}", history]
    subprocess.run(git, check=True)
    os.rename(os.path.join(history, ".git"), os.path.join(destination, ".git"))
    os.rmdir(history)
    listed = subprocess.run(
        ["git", "-C", REPOSITORY, "ls-files", "-co", "--exclude-standard", "-z"],
        check=True,
        capture_output=True,
    ).stdout
    names = [
        name
        for name in listed.decode().split("\0")
        if name and os.path.lexists(os.path.join(REPOSITORY, name))
    ]
    # SwiftPM need not fetch dependencies that this tree already has.
    build = os.path.join(destination, ".build")
    if not os.path.isdir(build):
        names += [
            name
            for name in (
                "Package.resolved",
                ".build/checkouts",
                ".build/repositories",
                ".build/workspace-state.json",
            )
            if os.path.exists(os.path.join(REPOSITORY, name)) and name not in names
        ]
    elif os.path.exists(os.path.join(REPOSITORY, "Package.resolved")):
        names = list(dict.fromkeys(names + ["Package.resolved"]))
    pack = subprocess.Popen(
        ["tar", "-C", REPOSITORY, "--null", "-T", "-", "-cf", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    unpack = subprocess.Popen(["tar", "-C", destination, "-xf", "-"], stdin=pack.stdout)
    pack.stdin.write("\0".join(names).encode())
    pack.stdin.close()
    if pack.wait() or unpack.wait():
        raise Unavailable(f"cannot copy the source to {destination}")
    subprocess.run(["git", "-C", destination, "reset", "-q"], check=True)


def _run(command, what, log):
    print(f"{what}: the first time this takes some minutes; log: {log}", flush=True)
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "w") as file:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
    if done.returncode:
        with open(log) as file:
            last = (file.read().strip().splitlines() or ["no output"])[-1]
        raise BuildFailed(f"{what}: exit {done.returncode}: {last} ({log})")


class BuildFailed(Exception):
    """The build of the packages failed; all its requirements are met."""
