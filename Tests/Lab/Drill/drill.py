#!/usr/bin/env python3
"""An operator's day with spoolgate, in a Debian machine booted by systemd-nspawn (`make drill`). README.md has its
settings; make passes SAMPLE as DRILL_SAMPLE.
"""

import os
import shutil
import signal
import subprocess
import sys

# root must not write into the working tree.
sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.dirname(HERE), os.path.join(HERE, "../../../deploy/dist")]

import packages
import roots
from day import Day
from lab.namespaces import remove_left
from lab.processes import PATH, lacking, wait
from lab.report import Transcript
from machine import CGROUPS, NAME, Machine, remove_cgroup
from roots import Unavailable
from scenes import SAMPLE, SCENES

IN_NAMESPACE = "--in-namespace"
SUITES = "bookworm trixie"
# The packages of a minimal server and of the drill's own application and client, but none that the tested packages
# must install themselves.
PACKAGES = "systemd systemd-sysv dbus ca-certificates openssl curl python3"
FILES = {"etc/hostname": "drill\n", "etc/hosts": "127.0.0.1 localhost drill uploads.example\n"}
VERSIONS = "systemd libcurl4 libcurl4t64 nginx libfcgi0ldbl libfcgi0t64 libssl3 libssl3t64"


def main():
    if sys.argv[1:] != [IN_NAMESPACE]:
        enter_namespace()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    remove_left(CGROUPS, NAME, lambda left: wait(10, lambda: remove_cgroup(left)), "-beside")
    remove_left(os.environ.get("DRILL_SCRATCH", "/var/tmp"), NAME, shutil.rmtree)
    transcript = Transcript()
    played = 0
    is_sample = bool(os.environ.get("DRILL_SAMPLE"))
    suites = os.environ.get("DRILL_SUITES") or (packages.own_suite() if is_sample else SUITES)
    scenes = chosen(os.environ.get("DRILL_SCENES", "").split() or (SAMPLE if is_sample else SCENES))
    for suite in suites.split():
        try:
            play(suite, scenes, transcript)
            played += 1
        except Unavailable as reason:
            print(f"SKIPPED {suite}: {reason}", flush=True)
        except packages.BuildFailed as reason:
            transcript.check(False, f"{suite}: {reason}")
            played += 1
    return transcript.end() if played else 0


def enter_namespace():
    """Continues in a new mount namespace, so that no mount outlives this program."""
    if os.geteuid() != 0:
        print("SKIPPED make drill: it boots machines, which requires root")
        sys.exit(0)
    os.environ["PATH"] = PATH
    if reason := lacking("drill", "unshare", "nsenter", "systemd-nspawn", "debootstrap"):
        print(f"SKIPPED make drill: {reason}")
        sys.exit(0)
    namespace = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    mount = f"mount -t cgroup2 cgroup2 {CGROUPS}"
    if subprocess.run([*namespace, mount], capture_output=True).returncode:
        print("SKIPPED make drill: this host does not allow mounting a cgroup hierarchy")
        sys.exit(0)
    program = [sys.executable, os.path.join(HERE, "drill.py"), IN_NAMESPACE]
    os.execvp(namespace[0], [*namespace, f'{mount} && exec "$@"', "sh", *program])


def chosen(names):
    """The scenes of these modules, in the order of the day."""
    unknown = set(names) - set(SCENES)
    if unknown:
        sys.exit(f"unknown scenes: {' '.join(sorted(unknown))}; known scenes: {' '.join(SCENES)}")
    return [scene for name, scenes in SCENES.items() if name in names or name == "install" for scene in scenes]


def made(suite):
    given = os.environ.get("DRILL_DEBS")
    return packages.find(given, suite) if given else packages.make(suite)[0]


def play(suite, scenes, transcript):
    cached = roots.cached(suite, PACKAGES, "root", FILES)
    scratch = os.path.join(os.environ.get("DRILL_SCRATCH", "/var/tmp"), f"{NAME}{os.getpid()}")
    root = os.path.join(scratch, suite)
    try:
        os.mkdir(scratch)
        roots.copy(cached, root)
        machine = Machine(root, transcript)
        try:
            # First, so that nothing is built for a machine that cannot boot.
            machine.boot()
            debs = made(suite)
            for deb in debs:
                shutil.copy(deb, os.path.join(root, "root"))
            transcript.say(f"A clean Debian {suite}, booted: {versions(machine)}")
            day = Day(machine, [os.path.basename(deb) for deb in debs], os.path.join(HERE, "inside"), cached)
            for scene in scenes:
                day.play(scene)
                if scene is scenes[0]:
                    roots.keep_downloads(root, cached)
            transcript.scene("The day's end")
            day.judge_deliveries()
        finally:
            machine.power_off()
    finally:
        shutil.rmtree(scratch)


def versions(machine):
    """The versions of the gateway's dependencies that the machine has, or would install."""
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
