#!/usr/bin/env python3
"""An operator's day with spoolgate, in a Debian machine booted by systemd-nspawn (`make drill`).

Environment: DRILL_SUITES, the Debian suites (default: this host's own); DRILL_DEBS, a directory
with the packages (default: .build/deb); DRILL_CACHE, where roots are kept; DRILL_SCRATCH, where machines
live (default: /var/tmp). Exit status: 0 all assertions hold, or nothing could be done here; 1 not.
"""

import os
import shutil
import signal
import subprocess
import sys

# Root writes nothing into the working tree.
sys.dont_write_bytecode = True

import packages
import roots
from day import Day
from machine import CGROUPS, NAME, Machine, remove_cgroup
from roots import Unavailable
from scenes import SCENES
from transcript import Transcript

HERE = os.path.dirname(os.path.abspath(__file__))
IN_NAMESPACE = "--in-namespace"
VERSIONS = "systemd libcurl4 libcurl4t64 nginx libfcgi0ldbl libfcgi0t64 libssl3 libssl3t64"


def main():
    if sys.argv[1:] != [IN_NAMESPACE]:
        enter_namespace()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    remove_left(CGROUPS, lambda left: Machine.wait(10, lambda: remove_cgroup(left)))
    remove_left(os.environ.get("DRILL_SCRATCH", "/var/tmp"), shutil.rmtree)
    transcript = Transcript()
    played = 0
    for suite in (os.environ.get("DRILL_SUITES") or own_suite()).split():
        try:
            play(suite, transcript)
            played += 1
        except Unavailable as reason:
            print(f"SKIPPED {suite}: {reason}", flush=True)
        except packages.BuildFailed as reason:
            transcript.check(False, f"{suite}: {reason}")
            played += 1
    if played:
        print(f"\n{transcript.passed} passed, {transcript.failed} failed", flush=True)
    return 1 if transcript.failed else 0


def enter_namespace():
    """Goes on in a mount namespace of its own, so that no mount outlives this program."""
    if os.geteuid() != 0:
        print("SKIPPED make drill: it boots machines, for which it must be root")
        sys.exit(0)
    for tool in ("unshare", "nsenter", "systemd-nspawn", "debootstrap"):
        if not shutil.which(tool):
            print(f"SKIPPED make drill: {tool} is not there (deploy/install-dependencies.sh drill)")
            sys.exit(0)
    command = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run(
        command + ["mount", "-t", "cgroup2", "cgroup2", CGROUPS], capture_output=True
    ).returncode:
        print("SKIPPED make drill: this host lets nobody mount a cgroup hierarchy")
        sys.exit(0)
    os.execvp(
        command[0],
        command
        + [
            "sh",
            "-c",
            f'mount -t cgroup2 cgroup2 {CGROUPS} && exec "$@"',
            "sh",
            sys.executable,
            os.path.join(HERE, "drill.py"),
            IN_NAMESPACE,
        ],
    )


def own_suite():
    with open("/etc/os-release") as release:
        fields = dict(line.rstrip().split("=", 1) for line in release if "=" in line)
    return fields.get("VERSION_CODENAME", "bookworm").strip('"')


def play(suite, transcript):
    cached = roots.cached(suite)
    scratch = os.path.join(os.environ.get("DRILL_SCRATCH", "/var/tmp"), f"{NAME}{os.getpid()}")
    root = os.path.join(scratch, suite)
    try:
        os.mkdir(scratch)
        roots.copy(cached, root)
        machine = Machine(root, transcript)
        try:
            # First, so that nothing is built for a machine that cannot be had.
            machine.boot()
            debs = packages.of(suite, own_suite())
            for deb in debs:
                shutil.copy(deb, os.path.join(root, "root"))
            transcript.say(f"A clean Debian {suite}, booted: {versions(machine)}")
            day = Day(
                machine,
                [os.path.basename(deb) for deb in debs],
                os.path.join(HERE, "inside"),
                cached,
            )
            for scene in SCENES:
                day.play(scene)
                if scene is SCENES[0]:
                    roots.keep_downloads(root, cached)
            transcript.scene("The day's end")
            day.judge_deliveries()
        finally:
            machine.power_off()
    finally:
        shutil.rmtree(scratch)


def remove_left(directory, remove):
    """Removes what a drill that was killed could not."""
    for entry in os.listdir(directory):
        process = entry.removeprefix(NAME).removesuffix("-beside")
        if entry != process and process.isdigit() and not os.path.exists(f"/proc/{process}"):
            remove(os.path.join(directory, entry))


def versions(machine):
    """What the machine has, or would install, of what the gateway stands on."""
    found, name = [], None
    for line in machine.quietly(f"apt-cache policy {VERSIONS}").output.splitlines():
        if not line.startswith(" "):
            name = line.rstrip(":")
        elif "Candidate:" in line and "(none)" not in line:
            found.append(f"{name} {line.split()[-1]}")
    return ", ".join(found)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
