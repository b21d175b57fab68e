#!/usr/bin/env python3
"""Puts each fault of faults/*.patch back, one at a time, and lets the simulation find it.

Usage: mutants.py [all | NAME...]

Works in a copy of the sources with a build of its own (.build/mutants). MUTANT_SECONDS is the time for each fault
(default 600), in JOBS processes (default 3, because worlds mostly wait); REPLAYS how often the world that found it is
played again (default 10), SWIFT_BUILD the command that builds (default "swift build"). A world finds a fault only if
it breaks a law again with the fault, and none in three plays without it.
"""

import contextlib
import os
import pathlib
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAULTS = ROOT / "Tests/Simulation/faults"
COPY = ROOT / ".build/mutants"
PROGRAM = ".build/debug/spoolgatePackageTests.xctest"
FAULTLESS = ".build/debug/faultless.xctest"
ARGUMENTS = ["--testing-library", "swift-testing", "--filter", r"^SimulationTests\."]
MODULE = ".build/nginx-module/ngx_http_interim_module.so"
MODES = {"simulated": {}, "real sockets": {"SIMULATION_SOCKETS": "1"}}


def run(command, **options):
    return subprocess.run(command, cwd=COPY, text=True, capture_output=True, **options)


def copy_sources():
    """Copies what the simulation needs; unchanged files keep their times, so that a second build is short."""
    COPY.mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / "Package.resolved", COPY)
    (COPY / MODULE).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / MODULE, COPY / MODULE)
    for folder in ["Sources", "Tests", "nginx"]:
        (COPY / folder).mkdir(exist_ok=True)
        old = {path.relative_to(COPY) for path in (COPY / folder).rglob("*") if path.is_file()}
        for source in (ROOT / folder).rglob("*"):
            target = COPY / source.relative_to(ROOT)
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            old.discard(source.relative_to(ROOT))
            if not target.exists() or target.read_bytes() != source.read_bytes():
                shutil.copyfile(source, target)
        for path in old:
            (COPY / path).unlink()
    manifest = (ROOT / "Package.swift").read_text()
    for name in re.findall(r'\.testTarget\(\s*name: "(\w+)"', manifest):
        if name != "SimulationTests":
            manifest = without_target(manifest, name)
    path = COPY / "Package.swift"
    if not path.exists() or path.read_text() != manifest:
        path.write_text(manifest)


def without_target(manifest, name):
    start = re.search(r'        \.testTarget\(\s*name: "%s"' % name, manifest).start()
    end, depth = manifest.index("(", start), 0
    while True:
        depth += {"(": 1, ")": -1}.get(manifest[end], 0)
        end += 1
        if depth == 0:
            return manifest[:start] + manifest[end:].lstrip(",\n")


def build():
    command = shlex.split(os.environ.get("SWIFT_BUILD", "swift build")) + ["--build-tests"]
    done = run(command)
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if "error:" in line]
        return "\n".join(errors[:5]) or done.stdout[-500:] + done.stderr[-500:]
    return None


def breaks(program, environment, times):
    """How many of these plays of one world break a law."""
    return sum("!!! law" in run([program, *ARGUMENTS], env=dict(os.environ, **environment)).stdout
               for _ in range(times))


def search(environment, jobs, first):
    """The output of the first process that finds something, or of one that found nothing."""
    processes = [subprocess.Popen([PROGRAM, *ARGUMENTS], cwd=COPY, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, start_new_session=True,
                                  env=dict(os.environ, **environment, SIMULATION_FIRST=str(first + job * 1_000_000)))
                 for job in range(jobs)]
    outputs = queue.Queue()
    for process in processes:
        threading.Thread(target=lambda one=process: outputs.put(one.stdout.read()), daemon=True).start()
    for _ in processes:
        output = outputs.get()
        if " breaks law " in output:
            break
    for process in processes:
        # With nginx, if there is one.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return output


def find(patch, seconds):
    mode = MODES[patch.read_text().partition(": ")[0]]
    applied = run(["patch", "-p1", "--no-backup-if-mismatch", "-i", str(patch)])
    if applied.returncode != 0:
        return False, f"the patch does not apply:\n{applied.stdout}"
    try:
        error = build()
        if error:
            return False, f"the fault does not build:\n{error}"
        jobs, replays = (int(os.environ.get(*setting)) for setting in (("JOBS", "3"), ("REPLAYS", "10")))
        begun, other, first = time.monotonic(), [], 1
        while time.monotonic() - begun < seconds:
            rest = seconds - int(time.monotonic() - begun)
            output = search(dict(mode, SIMULATION_SECONDS=str(rest), SIMULATION_FIND="1"), jobs, first)
            took = time.monotonic() - begun
            found = re.search(r"simulation: seed (\d+) breaks (law \d.*)", output)
            if found is None:
                break
            world = dict(mode, SIMULATION_SEED=found[1])
            again = breaks(PROGRAM, world, replays)
            if again and not breaks(FAULTLESS, world, 3):
                text = f"seed {found[1]}, {took:.1f} s, again in {again} of {replays}: {found[2]}"
                return True, "; ".join([text, *other])
            other.append(f"not by seed {found[1]}, again in {again} of {replays}: {found[2]}")
            first += 10_000_000
        return False, "; ".join([f"NOT FOUND in {time.monotonic() - begun:.0f} s", *other]) + f"\n{output[-300:]}"
    finally:
        run(["patch", "-R", "-p1", "--no-backup-if-mismatch", "-i", str(patch)])


def main():
    names = [name for name in sys.argv[1:] if name != "all"]
    patches = [FAULTS / f"{name}.patch" for name in names] or sorted(FAULTS.glob("*.patch"))
    copy_sources()
    error = build()
    if error:
        sys.exit(f"the sources do not build:\n{error}")
    shutil.copy2(COPY / PROGRAM, COPY / FAULTLESS)
    failed = 0
    for patch in patches:
        is_found, text = find(patch, int(os.environ.get("MUTANT_SECONDS", "600")))
        failed += not is_found
        print(f"{patch.stem}: {text}", flush=True)
    print(f"{len(patches) - failed} of {len(patches)} faults found")
    sys.exit(failed != 0)


main()
