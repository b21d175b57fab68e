#!/usr/bin/env python3
"""Power failures: uploads into a guest, SIGKILL of the guest, a new boot with the same disks, and a check of every
promise (`make power-test`). README.md has its settings, which make passes in variables named POWER_.
"""

import fcntl
import os
import random
import shutil
import signal
import sys
import time

sys.dont_write_bytecode = True

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import beside_walk
import controls
import image
from lab import guest, processes, qemu
from lab.processes import ROOT, Unavailable
from lab.report import Transcript
from ledger import MOMENTS, NGINX_WRITES
from machine import MAKE, Host
from results import SHOWN, Results
from series import Plan, Series
from transport import TRANSPORTS

CHECK = "--check"
LANES = ("alternate", "always", "never")
# The number of power failures with spool_receive in a series by which nginx must have written content.
MOST_WITHOUT_LANE = 4
# The seconds after which a sample begins no further round or control.
SAMPLE = 50
# The seconds after which the kernel ends a sample.
SAMPLE_END = 118


def setting(name, default=""):
    return os.environ.get(f"POWER_{name}") or default


class Run:
    """The settings of a run."""

    def __init__(self):
        self.is_sample = bool(setting("SAMPLE"))
        self.file_systems = setting("FS", "ext4" if self.is_sample else "ext4 xfs btrfs").split()
        self.rounds = int(setting("ROUNDS", "2" if self.is_sample else "4"))
        self.moment = setting("MOMENT") or None
        self.lane = setting("LANE", "alternate")
        self.seed = setting("SEED") or str(random.SystemRandom().randrange(1 << 32))
        self.directory = os.path.abspath(setting("DIRECTORY", os.path.join(ROOT, ".build/power")))
        self.began = time.monotonic()
        names = setting("CONTROLS", "all-syncs" if self.is_sample else "quick")
        named = {"quick": controls.QUICK, "all": tuple(controls.CONTROLS), "none": ()}
        self.controls = named.get(names) or tuple(names.split()) if names != "none" else ()
        for value, known in (
            (self.file_systems, MAKE),
            (self.controls, controls.CONTROLS),
            ([self.moment] if self.moment else [], [*MOMENTS, NGINX_WRITES]),
            ([self.lane], LANES),
        ):
            unknown = [one for one in value if one not in known]
            if unknown:
                sys.exit(f"make power-test: unknown {unknown[0]}; known: {' '.join(known)}")

    @property
    def selection(self):
        """Identifies the results that a resumed run continues."""
        words = [*self.file_systems, str(self.rounds), self.moment or "any", f"lane-{self.lane}", *self.controls]
        return " ".join(words)

    def is_over(self):
        return self.is_sample and time.monotonic() - self.began > SAMPLE


def main():
    try:
        image.check_tools()
        if sys.argv[1:] == [CHECK]:
            guest.kernel(os.path.join(Run().directory, "guest"))
            return 0
        return play(Run())
    except Unavailable as reason:
        print(f"SKIPPED make power-test: {reason}")
        return 1 if sys.argv[1:] == [CHECK] else 0


def play(run):
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    transcript = Transcript()
    if run.is_sample:
        signal.signal(signal.SIGALRM, stop_sample)
        signal.alarm(SAMPLE_END)
    try:
        carry_out(run, transcript)
    except SampleOver:
        print(f"SKIPPED the rest of make power-test: {SAMPLE_END} s have elapsed", flush=True)
    return transcript.end()


class SampleOver(BaseException):
    """The time of a sample has elapsed, on a machine that is too slow or too busy."""


def stop_sample(*_):
    raise SampleOver


def carry_out(run, transcript):
    host = prepare(run)
    program = guest.digest(processes.gateway())
    results = Results(os.path.join(run.directory, "results.jsonl"), program, run.selection)
    if run.is_sample:
        # It is too short to continue another run.
        results.end()
    transcript.say(
        f"{processes.gateway()} ({program}), {host.accelerator}, POWER_SEED={run.seed}, "
        f"results in {results.path}"
    )
    if "h2" not in TRANSPORTS:
        transcript.say("without HTTP/2: this Python has no h2 (python3-h2)")
    if not host.has_previous:
        transcript.say(
            "without a previous build: no earlier run used another program, and POWER_PREVIOUS is not set"
        )
    for file_system in run.file_systems:
        transcript.scene(f"{run.rounds} cuts on {file_system}")
        play_series(run, host, results, file_system)
        tell(results, file_system, transcript)
    if "btrfs" in run.file_systems and not run.moment:
        transcript.scene(beside_walk.TITLE)
        faults = beside_walk.play(host)
        transcript.check(not faults, "every accepted upload reaches the application", "\n".join(faults))
    for name in run.controls:
        if run.is_over():
            transcript.say("(no time for the negative controls)")
            break
        transcript.scene(f"negative control {name}: {controls.CONTROLS[name][0]}")
        noticed = controls.play(host, name, "ext4", run.seed, results, run.lane)
        transcript.check(noticed, f"broken promises: {', '.join(noticed) or 'none'}")
    results.end()


def prepare(run):
    """Builds the guest from the current programs."""
    build, work = (os.path.join(run.directory, name) for name in ("guest", "work"))
    for directory in (build, f"{work}/logs"):
        os.makedirs(directory, exist_ok=True)
    # Two runs in one directory would use the same disks.
    lock = os.open(os.path.join(run.directory, "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(
            f"make power-test: another run uses {run.directory}; set POWER_DIRECTORY for a second one"
        )
    before = previous(run.directory)
    image.build(build, processes.gateway(), before)
    accelerator = qemu.accelerator(build, "guest.cpio", "POW ")
    return Host(build, work, accelerator, int(setting("PROCESSORS", "1")), bool(before))


def previous(directory):
    """The program that each spool begins with: the given one, or that of the last run with a different program.

    None if no such program exists yet.
    """
    if named := setting("PREVIOUS"):
        return named
    last, before = (os.path.join(directory, f"{name}-program") for name in ("last", "previous"))
    current = processes.gateway()
    if not os.path.exists(last) or guest.digest(last) != guest.digest(current):
        if os.path.exists(last):
            os.replace(last, before)
        shutil.copy(current, last)
    return before if os.path.exists(before) else None


def play_series(run, host, results, file_system):
    """Plays the rounds of a series that are missing in the results."""
    done = results.cuts(file_system)
    if done >= run.rounds:
        return
    if done:
        print(f"  {done} cuts are in the results already", flush=True)
    plan = Plan(file_system, file_system, run.seed, run.moment, lane=run.lane)
    with Series(host, plan, results, done) as series:
        series.play(run.rounds - done, run.is_over)
        for wonder in series.ledger.wonders[:10]:
            print(f"  unexpected: {wonder[:600]}", flush=True)


def tell(results, file_system, transcript):
    cuts, lane, seconds, figures, broken = results.sum(file_system)
    shown = [f"{round(figures[name])} {words}" for name, words in SHOWN.items() if figures[name]]
    transcript.say(
        f"  {cuts} cuts, {lane.cuts} of them with spool_receive ({lane.used} in which nginx wrote, {lane.in_use} while "
        f"it had files open, {lane.in_write} during a write), {round(seconds)} s: {', '.join(shown)}"
    )
    transcript.check(cuts and not broken, f"{file_system}: no promise is broken", dict(broken))
    if lane.cuts >= MOST_WITHOUT_LANE:
        transcript.check(lane.used, f"{file_system}: nginx writes content into the spool itself")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted; the same command continues from the results", file=sys.stderr)
        sys.exit(130)
