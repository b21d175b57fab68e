"""The Debian packages under test, made by `make deb` on the suite that they are for.

For this host's own suite that is here; for another one it is in a root of that suite, with this
host's Swift toolchain bound into it. Its build directory stays in the cache: the next time is short.
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

# What `make deb` begins with; deploy/install-dependencies.sh brings the rest.
BUILDERS = "make ca-certificates"
SOURCE = "usr/src/spoolgate"


def of(suite, own_suite):
    """The paths of the packages for a suite."""
    given = os.environ.get("DRILL_DEBS")
    if given:
        below = os.path.join(given, suite)
        return _built(below if os.path.isdir(below) else given)
    if suite == own_suite:
        _run(
            ["make", "-C", REPOSITORY, "deb"],
            f"make deb for {suite}",
            os.path.join(REPOSITORY, ".build/deb.log"),
        )
        return _built(os.path.join(REPOSITORY, ".build/deb"))
    return _build_in_root(suite)


def _built(directory):
    found = []
    for name in NAMES:
        files = sorted(glob.glob(os.path.join(directory, f"{name}_*.deb")), key=os.path.getmtime)
        if not files:
            raise Unavailable(f"no package {name} in {directory} (make deb)")
        found.append(files[-1])
    return found


def _build_in_root(suite):
    toolchain = _toolchain()
    root = roots.cached(suite, BUILDERS, "build")
    with open(root + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        source = os.path.join(root, SOURCE)
        _copy_source(source)
        # In this program's own mount namespace: they are gone with it.
        place = root + toolchain
        os.makedirs(place, exist_ok=True)
        for command in (
            ["mount", "--bind", toolchain, place],
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
                    f"PATH=/usr/sbin:/usr/bin:/sbin:/bin:{toolchain}/usr/bin",
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
        return _built(os.path.join(source, ".build/deb"))


def _toolchain():
    swift = shutil.which("swift")
    above = os.path.dirname(os.path.realpath(swift)).removesuffix("/usr/bin") if swift else ""
    if not above or not os.path.isdir(os.path.join(above, "usr/lib/swift")):
        raise Unavailable(
            "no Swift toolchain in a directory of its own, which a root of another suite could use"
        )
    return above


def _copy_source(destination):
    """Puts the working tree there as git knows it, and keeps what was built before."""
    os.makedirs(destination, exist_ok=True)
    for name in os.listdir(destination):
        path = os.path.join(destination, name)
        if name == ".build":
            continue
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
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
    # Which sources of others SwiftPM has here already, it need not fetch again.
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
        raise Unavailable(f"the source could not be copied to {destination}")


def _run(command, what, log):
    print(f"{what}: some minutes the first time; {log} grows", flush=True)
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
    """There is everything to build the packages with, and they do not build."""
