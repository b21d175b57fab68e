"""The base images, and the images of deploy/container/Containerfile."""

import os
import shlex
import shutil
import subprocess

from lab.processes import ROOT as SOURCE
from lab.processes import Unavailable, lacking, run

CONTAINERFILE = "deploy/container/Containerfile"
TARGETS = ("gateway", "nginx", "application")
# The path of this machine's Swift in the image that builds.
TOOLCHAIN = "/usr/local/toolchain"


def obstacle():
    """The reason why base images are unavailable; None if they are available."""
    if not os.environ.get("BASE") and (reason := lacking("container", "debootstrap")):
        return f"BASE is not set, and {reason}"
    if not os.environ.get("SWIFT") and not _toolchain():
        return "SWIFT is not set, and this machine has no Swift in a separate directory"
    return None


def bases(podman, scratch, transcript):
    """The names of the base image for running programs and of the one for building; both can be started."""
    base, swift = os.environ.get("BASE"), os.environ.get("SWIFT")
    if not base:
        base = "localhost/spoolgate-test-base"
        suite = _suite()
        transcript.command(f"debootstrap --variant=minbase {suite} {scratch}/root")
        try:
            run(["debootstrap", "--variant=minbase", suite, f"{scratch}/root"], timeout=None)
        except RuntimeError as error:
            raise Unavailable(f"debootstrap made no {suite}: {error}") from None
        _add_sources(f"{scratch}/root", suite)
        run(["tar", "-C", f"{scratch}/root", "-cf", f"{scratch}/root.tar", "."], timeout=None)
        podman("import", f"{scratch}/root.tar", base, timeout=600)
        os.unlink(f"{scratch}/root.tar")
    if reason := podman.try_runtimes(base):
        raise Unavailable(reason)
    if not swift:
        swift = "localhost/spoolgate-test-swift"
        with open(f"{scratch}/swift", "w") as file:
            file.write(f"FROM {base}\nENV PATH={TOOLCHAIN}/bin:/usr/sbin:/usr/bin:/sbin:/bin\n")
        podman("build", "-q", "-f", f"{scratch}/swift", "-t", swift, scratch, timeout=600)
    return base, swift


def build(podman, scratch, transcript, base, swift):
    """Builds all targets; returns whether that succeeded."""
    transcript.scene("The images are built from a clone")
    options = ["--build-arg", f"BASE={base}", "--build-arg", f"SWIFT={swift}"]
    options += ["--build-arg", f"BUILD={commit()}"]
    if not os.environ.get("SWIFT"):
        options += ["--volume", f"{_toolchain()}:{TOOLCHAIN}:ro"]
    options += _mirrors(scratch) + shlex.split(os.environ.get("CONTAINER_BUILD") or "")
    for target in TARGETS:
        transcript.command(f"podman build -f {CONTAINERFILE} --target {target} -t {name(target)} .")
        log = f"{scratch}/{target}.log"
        arguments = ["-f", f"{SOURCE}/{CONTAINERFILE}", "--target", target, "-t", name(target)]
        is_built = podman.build(log, *arguments, *options, SOURCE, timeout=5400)
        with open(log, errors="replace") as file:
            said = "\n".join(file.read().splitlines()[-30:])
        if not transcript.check(is_built, f"the image {target} is built", said):
            return False
    return True


def name(target):
    return f"localhost/spoolgate-test-{target}"


def commit():
    """The commit that `spoolgate --version` must print."""
    command = ["git", "-C", SOURCE, "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "test"


def _suite():
    with open("/etc/os-release") as file:
        for line in file:
            if line.startswith("VERSION_CODENAME="):
                return line.split("=")[1].strip().strip('"')
    return "stable"


def _add_sources(root, suite):
    """Adds the updates, as in Debian's own images."""
    with open(f"{root}/etc/apt/sources.list") as file:
        first = file.readline().split()
    if len(first) < 3 or "debian" not in first[1]:
        return
    with open(f"{root}/etc/apt/sources.list", "a") as file:
        file.write(f"deb {first[1]} {suite}-updates main\n")
        file.write(f"deb {first[1].rstrip('/')}-security {suite}-security main\n")


def _toolchain():
    """The directory of this machine's Swift; None if it is missing or part of the system."""
    program = shutil.which("swift")
    if not program:
        return None
    directory = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    return None if directory in ("/", "/usr") else directory


def _mirrors(scratch):
    """Build arguments for the mirrors of git repositories in this machine's directories."""
    command = ["git", "config", "--get-regexp", r"^url\..*\.insteadof$"]
    done = subprocess.run(command, capture_output=True, text=True)
    arguments, lines = [], []
    for line in done.stdout.splitlines():
        key, original = line.split(" ", 1)
        mirror = key.removeprefix("url.").rsplit(".", 1)[0]
        if not os.path.isdir(mirror):
            continue
        lines.append(f'[url "{mirror}"]\n\tinsteadOf = {original}\n')
        volume = f"{mirror.rstrip('/')}:{mirror.rstrip('/')}:ro"
        if volume not in arguments:
            arguments += ["--volume", volume]
    if lines:
        with open(f"{scratch}/gitconfig", "w") as file:
            file.write("[safe]\n\tdirectory = *\n" + "".join(lines))
        arguments += ["--volume", f"{scratch}/gitconfig:/etc/gitconfig:ro"]
    return arguments
