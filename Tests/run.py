#!/usr/bin/env python3
"""Run all tests to their end, several processes at a time, and print a summary.

It needs a debug build (`swift build --build-tests`) and the nginx module; `make test` builds both. A process runs one
test at a time, so that a test has its process, its descriptors and Swift's threads to itself; several processes use
the cores, because most tests wait.

Invariants: each test that the build contains ends, is skipped, or counts as failed, even if its process crashes or
hangs; and a failed test does not stop the others.
"""

import argparse
import collections
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUTPUT = os.path.join(ROOT, ".build/tests")
BINARY = ".build/debug/spoolgatePackageTests.xctest"

# The sweep uses all cores; at the lowest priority it uses the time in which other tests wait, and whatever is left
# of it at the end uses all cores too.
SWEEP = "FaultTests.FaultSweep"
# Suites that take longest begin first, each in its own process, so that none is left at the end. The order changes
# only the time of a run; `slowest` in its summary shows what belongs here.
LONG = ["GatewayTests.QueueTests"] + ["EndToEndTests.%sTests" % name for name in (
    "Page", "Probe", "MakeRun", "TusClient", "Engine", "Outcome", "ProxyRecipe", "HostileDirectory", "CheckLive",
    "PageModule", "Client", "Interim", "Race", "Kill", "LaneKill", "Scale", "Progress", "Script")] + [
    "UpstreamTests.NeighbourTests", "FastCGIFrontTests.FrontTests", "GatewayTests.GateTests", "FaultTests.LieTests",
    "GatewayTests.CostTests", "GatewayTests.FailingRouteTests"]
# Of the other suites, those of these targets begin first, because they wait most of their time.
WAITING = ["EndToEndTests", "ResumableUploadTests", "UpstreamTests", "GatewayTests"]
# Tests that also run with a gateway that does not let nginx write content; the first two in every run.
WITHOUT_LANE = ["EndToEndTests.%sTests" % name for name in (
    "Upload", "Kill", "Interim", "TusClient", "Race", "Sync", "FullDisk", "Progress")]
ALWAYS_WITHOUT_LANE = 2
# Also runs with nginx in `make test-all`, with new worlds.
SIMULATION = "SimulationTests.SimulationTests"
# The suites of one process, at most.
SUITES = 12
# A process without a result for this long hangs: a test's own deadlines are shorter.
SILENCE = 1200
SLOWEST = 25

# Gives a process its own processes, network, shared memory and /tmp, where the system permits it: tests then do not
# meet other programs of the machine, another run, or each other; and nothing is left when it ends.
UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--ipc"]
# Within: the loopback device; a network, without which browsers are offline; an own /tmp unless the sources are there;
# and the first process, which waits for all others.
INSIDE = """
import fcntl, os, socket, struct, subprocess, sys
tap = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", b"eth0", 0x2 | 0x1000))
with socket.socket() as any:
    address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton("198.18.0.1"))
    fcntl.ioctl(any, 0x8916, struct.pack("16s16s8x", b"eth0", address))
    for device in (b"lo", b"eth0"):
        fcntl.ioctl(any, 0x8914, struct.pack("16sH22x", device, 0x1 | 0x40))
if sys.argv[1]:
    subprocess.run(["mount", "--bind", sys.argv[1], "/tmp"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm"], check=True)
first = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
while True:
    ended, status = os.wait()
    if ended == first:
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
"""


class Job:
    """A process: `suites` of the test program, or a command that is one test."""

    def __init__(self, name, command=None, suites=(), environment=None, nice=0):
        self.name = name
        self.command = command
        self.suites = list(suites)
        self.environment = environment or {}
        self.nice = nice
        self.log = os.path.join(OUTPUT, re.sub(r"[^\w.-]+", "-", name) + ".log")


class Result:
    """How a test ended. `kind` is passed, failed or skipped; times are in seconds."""

    def __init__(self, job, test, kind="failed", wall=0.0, processor=0.0, messages=()):
        self.job = job
        self.test = test
        self.kind = kind
        self.wall = wall
        self.processor = processor
        self.messages = list(messages)

    @property
    def title(self):
        return self.test if self.job.name == self.test else "%s [%s]" % (self.test, self.job.name)


class Run:
    """The state that all threads share."""

    def __init__(self, total, isolates, scratch):
        self.isolates = isolates
        self.scratch = scratch
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.results = []
        self.left = total
        self.children = set()
        self.loads = []
        self.ends = False

    def say(self, text):
        seconds = int(time.monotonic() - self.began)
        with self.lock:
            print("%2d:%02d  %s" % (seconds // 60, seconds % 60, text), flush=True)

    def add(self, result):
        with self.lock:
            self.results.append(result)
        if result.kind == "failed":
            self.say("FAILED  %s\n%s" % (result.title, indented(result.messages)))

    def end(self, job, results, wall):
        with self.lock:
            self.left -= 1
            self.loads.append(os.getloadavg()[0])
        self.say("%s: %s, %.0f s (%d to go)" % (job.name, counted(results), wall, self.left))

    def kill(self):
        """End every process; no further one starts."""
        with self.lock:
            self.ends = True
            children = list(self.children)
        for child in children:
            end(child)


def indented(lines):
    return "\n".join("        " + line for text in lines for line in text.splitlines())


def counted(results):
    kinds = collections.Counter(result.kind for result in results)
    return ", ".join("%d %s" % (kinds[kind], kind) for kind in ("passed", "failed", "skipped"))


def end(child):
    """Kill a process and its group: a test's own programs end with it."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def read(path):
    with open(path, "rb") as file:
        return file.read()


def ticks(path):
    """A process's clock ticks in the processor, with those of its ended children."""
    return sum(int(field) for field in read(path + "/stat").rpartition(b")")[2].split()[11:15])


def children(pid):
    found = []
    for thread in os.listdir("/proc/%d/task" % pid):
        try:
            found += [int(child) for child in read("/proc/%d/task/%s/children" % (pid, thread)).split()]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def processor_time(pid, isolated=False):
    """The seconds that a process and its descendants, ended or not, have spent in the processor."""
    total, waiting = 0, [pid]
    if isolated:
        # Its only child sees all others, and only those.
        waiting = []
        try:
            within = "/proc/%d/root/proc" % children(pid)[0]
            paths = [within + "/" + name for name in os.listdir(within) if name.isdigit()]
        except (OSError, IndexError):
            return 0.0
        for path in paths:
            try:
                total += ticks(path)
            except OSError:
                pass
    while waiting:
        one = waiting.pop()
        try:
            total += ticks("/proc/%d" % one)
            waiting += children(one)
        except OSError:
            pass
    return total / os.sysconf("SC_CLK_TCK")


def tail(path, count=40):
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 20_000))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-count:])


def may_isolate():
    """Whether this user may have namespaces, as root usually may."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*UNSHARE, sys.executable, "-c", INSIDE, folder, "/bin/true"]
        try:
            return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
        except FileNotFoundError:
            return False


def start(run, job, command, folder):
    """Start a process; its files in /tmp are in `folder` if it has a namespace."""
    environment = dict(os.environ, **job.environment)
    if run.isolates and job.suites:
        temporary = folder + "/tmp"
        os.mkdir(temporary)
        os.chmod(temporary, 0o1777)
        if (ROOT + "/").startswith("/tmp/"):
            temporary = ""
        command = [*UNSHARE, sys.executable, "-c", INSIDE, temporary, *command]
    log = open(job.log, "wb")
    with log, run.lock:
        if run.ends:
            return None
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=lambda: os.nice(job.nice))
        run.children.add(child)
    return child


def forget(run, child):
    with run.lock:
        run.children.discard(child)
    end(child)


def run_command(run, job):
    """Run a command as one test."""
    began = time.monotonic()
    child = start(run, job, job.command, None)
    if child is None:
        return []
    processor = 0.0
    while True:
        try:
            child.wait(1)
            break
        except subprocess.TimeoutExpired:
            processor = max(processor, processor_time(child.pid))
            if time.monotonic() - began > 2 * SILENCE:
                end(child)
    forget(run, child)
    kind = "passed" if child.returncode == 0 else "failed"
    if child.returncode == 0 and "SKIPPED" in tail(job.log):
        kind = "skipped"
    messages = [] if kind == "passed" else [tail(job.log)]
    result = Result(job, job.name, kind, time.monotonic() - began, processor, messages)
    run.add(result)
    return [result]


class Stream:
    """Reads the events of one process of the test program, and records the end of each test."""

    def __init__(self, run, job, child):
        self.run = run
        self.job = job
        self.child = child
        self.titles = {}
        self.running = {}
        self.issues = {}
        self.results = []
        self.ended = set()
        self.last = time.monotonic()

    def read(self, line):
        record = json.loads(line)
        payload = record["payload"]
        if record["kind"] == "test":
            if payload["kind"] == "function":
                target = payload["id"].partition(".")[0]
                self.titles[payload["id"]] = "%s %s: %s" % (
                    target, os.path.basename(payload["sourceLocation"]["fileID"]),
                    payload.get("displayName") or payload["name"])
            return
        self.last = time.monotonic()
        test = payload.get("testID")
        kind = payload["kind"]
        texts = [message["text"] for message in payload.get("messages") or ()]
        if kind == "issueRecorded" and payload["issue"].get("severity", "error") == "error" \
                and not payload["issue"].get("isKnown"):
            where = payload["issue"].get("sourceLocation") or {}
            place = "%s:%s: " % (where.get("fileID", "?"), where.get("line", "?"))
            self.issues.setdefault(test, []).append(place + "\n".join(texts))
        if test not in self.titles:
            return
        instant = payload["instant"]["absolute"]
        if kind == "testStarted":
            self.running[test] = (instant, processor_time(self.child.pid, self.run.isolates))
        elif kind == "testSkipped":
            self.finish(test, "skipped", messages=texts)
        # A test without a case is skipped, and ends too.
        elif kind == "testEnded" and test in self.running:
            began, before = self.running.pop(test)
            failures = self.issues.pop(test, [])
            self.finish(test, "failed" if failures else "passed", instant - began,
                        max(0.0, processor_time(self.child.pid, self.run.isolates) - before), failures)

    def finish(self, test, kind, wall=0.0, processor=0.0, messages=()):
        self.ended.add(test)
        result = Result(self.job, self.titles[test], kind, wall, processor, messages)
        self.results.append(result)
        self.run.add(result)

    def close(self, status, why):
        """Count the tests that did not end, and issues outside of tests, as failures."""
        missing = [test for test in self.titles if test not in self.ended]
        for test in missing:
            if test in self.running:
                self.finish(test, "failed", messages=[why + "\n" + tail(self.job.log)])
            else:
                self.finish(test, "failed", messages=["did not run: " + why])
        loose = [text for texts in self.issues.values() for text in texts]
        failed = any(result.kind == "failed" for result in self.results)
        if loose or not self.titles or (status != 0 and not failed):
            result = Result(self.job, self.job.name, messages=loose or [why + "\n" + tail(self.job.log)])
            self.results.append(result)
            self.run.add(result)


def run_suites(run, job, binary):
    """Run suites of the test program in one process."""
    pattern = "^(%s)(/|$)" % "|".join(re.escape(suite) for suite in job.suites)
    with tempfile.TemporaryDirectory(dir=run.scratch, ignore_cleanup_errors=True) as folder:
        fifo = folder + "/events"
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        child = start(run, job, [binary, "--testing-library", "swift-testing", "--no-parallel", "--filter", pattern,
                                 "--event-stream-output-path", fifo, "--event-stream-version", "0"], folder)
        if child is None:
            os.close(reader)
            return []
        stream = Stream(run, job, child)
        rest, why = b"", ""
        try:
            while True:
                ended = child.poll() is not None
                ready = select.select([reader], [], [], 0 if ended else 0.5)[0]
                part = b""
                if ready:
                    try:
                        part = os.read(reader, 1 << 20)
                    except BlockingIOError:
                        pass
                if part:
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        if line:
                            stream.read(line)
                elif ended:
                    break
                elif ready:
                    # Nobody writes yet, or no longer.
                    time.sleep(0.02)
                if not ended and time.monotonic() - stream.last > SILENCE and job.suites != [SWEEP]:
                    why = "its process did not end a test for %d s" % SILENCE
                    end(child)
        finally:
            os.close(reader)
            forget(run, child)
    stream.close(child.returncode, why or "its process ended with status %d" % child.returncode)
    return stream.results


def work(run, jobs, binary):
    while True:
        with run.lock:
            if not jobs or run.ends:
                return
            job = jobs.popleft()
        began = time.monotonic()
        try:
            results = run_command(run, job) if job.command else run_suites(run, job, binary)
        except Exception as reason:
            results = [Result(job, job.name, messages=["%s: %s" % (type(reason).__name__, reason)])]
            run.add(results[0])
        run.end(job, results, time.monotonic() - began)


def suites(binary):
    """The suites of the test program, in its order."""
    listed = subprocess.run([binary, "--testing-library", "swift-testing", "--list-tests"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    return list(dict.fromkeys(line.partition("/")[0] for line in listed.splitlines() if "." in line))


def portion():
    """The number of the portion of the large samples: the commit's, so that portions vary and a run can be repeated."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True).stdout
    return int(commit[:7] or "0", 16)


def module_has_changed():
    """Whether the nginx module differs from the last release; also if git cannot tell."""
    with open(ROOT + "/Makefile") as file:
        release = re.search(r"(?m)^PREVIOUS \?= (\S+)", file.read()).group(1)
    same = subprocess.run(["git", "diff", "--quiet", release, "--", ":(glob)nginx/module/*.[ch]", "nginx/module/config",
                           ":(glob)nginx/module/*.sh", "nginx/module/nginx.org"], cwd=ROOT, stderr=subprocess.DEVNULL)
    return same.returncode != 0


def make_jobs(asked, binary):
    """All jobs, in the order of their start."""
    known = suites(binary)
    jobs = []
    if SWEEP in known:
        jobs.append(Job("the fault sweep", suites=[SWEEP], nice=19))
    commands = ["module-test", "check", "lint"]
    if asked.all or module_has_changed():
        commands.insert(0, "nginx-org-test")
    if not asked.tests:
        jobs += [Job("make " + name, ["make", "--no-print-directory", name]) for name in commands]
    jobs += [Job(name, suites=[name]) for name in LONG if name in known]
    without = [name for name in WITHOUT_LANE if name in known]
    for name in without if asked.all else without[:ALWAYS_WITHOUT_LANE]:
        jobs.append(Job(name + " without spool_receive", suites=[name], environment={"SPOOLGATE_LANE": "0"}))
    if asked.all and SIMULATION in known:
        jobs.append(Job("the simulation with nginx", suites=[SIMULATION], environment={
            "SIMULATION_SOCKETS": "1", "SIMULATION_SECONDS": "120", "SIMULATION_FIRST": "%d000" % time.time()}))
    rest = collections.OrderedDict()
    for name in known:
        if name not in LONG and name != SWEEP:
            rest.setdefault(name.partition(".")[0], []).append(name)
    for target in sorted(rest, key=lambda target: (WAITING + [target]).index(target)):
        names = rest[target]
        # Each process gets suites from the whole list: slow ones are neighbours.
        count = -(-len(names) // SUITES)
        for index in range(count):
            jobs.append(Job("%s %d of %d" % (target, index + 1, count), suites=names[index::count]))
    if asked.only:
        jobs = [Job(job.name, job.command, [name for name in job.suites if re.search(asked.only, name)],
                    job.environment, job.nice) for job in jobs]
        jobs = [job for job in jobs if job.suites or (job.command and re.search(asked.only, job.name))]
    return [Job(job.name + (" #%d" % number if number else ""), job.command, job.suites, job.environment, job.nice)
            for number in range(asked.repeat) for job in jobs]


def summarize(run):
    """Print the summary, and write all times; return the exit code."""
    seconds = time.monotonic() - run.began
    results = run.results
    slow = sorted(results, key=lambda result: -result.wall)
    with open(OUTPUT + "/times.tsv", "w") as file:
        file.write("wall\tprocessor\tresult\ttest\n")
        for result in slow:
            file.write("%.2f\t%.2f\t%s\t%s\n" % (result.wall, result.processor, result.kind, result.title))
    reasons = collections.Counter(
        re.sub(r'(?s).*skipped: "(.*)".*', r"\1", text) for result in results if result.kind == "skipped"
        for text in result.messages)
    for reason, count in reasons.most_common():
        print("skipped %d: %s" % (count, reason.splitlines()[0] if reason else "no reason"))
    print("\nThe %d slowest (all: %s):" % (SLOWEST, os.path.relpath(OUTPUT + "/times.tsv", ROOT)))
    print("wall s  processor s")
    for result in slow[:SLOWEST]:
        print("%6.1f  %11.1f  %s" % (result.wall, result.processor, result.title))
    failed = [result for result in results if result.kind == "failed"]
    if failed:
        print("\nFailures (output of each process: %s/):" % os.path.relpath(OUTPUT, ROOT))
    for result in failed:
        print("FAILED  %s\n%s" % (result.title, indented(result.messages)))
    mean = sum(run.loads) / max(1, len(run.loads))
    print("\n%s in %d:%02d minutes, with %.0f processor seconds, at a load of %.1f on %d cores" % (
        counted(results), seconds // 60, seconds % 60, sum(result.processor for result in results), mean,
        os.cpu_count()))
    if run.ends:
        print("interrupted")
    return 1 if failed or run.ends or not results else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also what `make test` leaves out")
    parser.add_argument("--processes", type=int, default=3 * os.cpu_count() + 2, help="run at a time")
    parser.add_argument("--binary", default=BINARY, help="the test program (default: the debug build's)")
    parser.add_argument("--only", help="only suites and commands whose name matches")
    parser.add_argument("--tests", action="store_true", help="no make commands")
    parser.add_argument("--shared", action="store_true", help="no namespaces, as for a user who may have none")
    parser.add_argument("--repeat", type=int, default=1, help="run everything so often")
    asked = parser.parse_args()
    binary = os.path.join(ROOT, asked.binary)
    if not os.path.exists(binary):
        sys.exit("%s is missing: swift build --build-tests" % binary)
    if not asked.all:
        os.environ.setdefault("SPOOLGATE_PORTION", str(portion()))
    shutil.rmtree(OUTPUT, ignore_errors=True)
    os.makedirs(OUTPUT)
    jobs = make_jobs(asked, binary)
    with tempfile.TemporaryDirectory(dir=ROOT + "/.build", prefix="tests-", ignore_cleanup_errors=True) as scratch:
        run = Run(len(jobs), not asked.shared and may_isolate(), scratch)
        queue = collections.deque(jobs)
        workers = [threading.Thread(target=work, args=(run, queue, binary)) for _ in range(asked.processes)]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: run.kill())
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return summarize(run)


if __name__ == "__main__":
    sys.exit(main())
