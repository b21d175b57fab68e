"""One series: a pair of disks, and rounds of boot, check, uploads and power failure."""

import collections
import dataclasses
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from application import Application
from client import Client
from lab.http1 import Closed
from ledger import MOMENTS, NGINX_WRITES, Ledger
from machine import Conduct, Lane, Machine, make_disks
from operating import Operator
from oracle import Oracle

# The longest time in one round that clients run, in seconds.
WORK = 8


@dataclasses.dataclass
class Plan:
    """The parameters of a series."""

    name: str
    file_system: str
    seed: str
    # The moment of each power failure; None: any.
    moment: str = None
    # Syncs that do nothing (guest/liar.c); whether the disks ignore flushes; the setting `promise`.
    lie: str = "none"
    lies: bool = False
    promise: str = "power-cut"
    # Whether a broken promise is expected; it ends the series.
    is_control: bool = False
    # The boots in which nginx writes content into the spool itself: always, never, alternate.
    lane: str = "alternate"


class Series:
    """A context manager; `play` returns after the last round, or as soon as a file system is damaged."""

    def __init__(self, host, plan, results, first=0):
        self.plan = plan
        self._host, self._results = host, results
        self._chance = random.Random(f"{plan.seed} {plan.name} {first}")
        self._number = first
        name = plan.name if not first else f"{plan.name}-{first}"
        self.ledger = Ledger(name, host.work, self._chance, plan.moment, plan.promise == "power-cut")
        self.ledger.application = Application(self.ledger.event, plan.seed)
        self._oracle = Oracle(self.ledger)
        self._is_ruined = False
        # Power failures that were not yet checked after a boot.
        self._cuts = []
        self._noted = collections.Counter()
        self._faults_noted = 0
        self._began = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.ledger.machine:
            self.ledger.machine.discard()
        self.ledger.application.stop()

    def play(self, rounds, is_over=lambda: False):
        """Plays rounds, and then finishes every upload without power failures."""
        make_disks(self._host.work, self.plan.file_system)
        for _ in range(rounds):
            if self._is_ruined or is_over() or self._has_shown():
                break
            self._round()
            self._number += 1
        if not self._is_ruined and not self._has_shown():
            self._finish()
        self._note()

    def _has_shown(self):
        return self.plan.is_control and bool(self.ledger.faults)

    def _boot(self, conduct, checks_disks=False, writes_eagerly=False, is_last=False):
        ledger, plan = self.ledger, self.plan
        ledger.boot += 1
        is_plain = plan.is_control or is_last
        # The first boot has the previous build; the current one continues with its spool.
        has_previous = self._host.has_previous and ledger.boot == 1 and not is_plain
        self._program = "previous" if has_previous else "current"
        self._daemons = 2 if not is_plain and self._chance.random() < 0.3 else 1
        self._has_lane = plan.lane == "always" or plan.lane == "alternate" and ledger.boot % 2 == 0
        ledger.has_large = self._has_lane and plan.lane == "always"
        words = {
            "fs": plan.file_system,
            "lane": "on" if self._has_lane else "off",
            "promise": plan.promise,
            "port": ledger.application.port,
            "lie": plan.lie,
            "fsck": int(checks_disks),
            "eager": int(writes_eagerly),
            "daemons": self._daemons,
            "program": self._program,
        }
        conduct.lies = plan.lies
        self._how = (words, conduct)
        ledger.machine = Machine(self._host, words, conduct, ledger.boot)

    def _settle(self):
        """Checks every promise after a boot; returns False if the gateway does not serve."""
        ledger, oracle = self.ledger, self._oracle
        took = ledger.machine.wait()
        for _ in range(2):
            if took is not None or ledger.machine.has_booted:
                break
            # The emulator or the kernel failed before a file system was mounted: the disks are unchanged.
            ledger.machine.cut()
            self._bury()
            ledger.count("boots that failed")
            ledger.machine = Machine(self._host, *self._how, ledger.boot)
            took = ledger.machine.wait()
        self._is_ruined = oracle.check_console() or self._is_ruined
        if took is None:
            ledger.fail(None, "no gateway", f"{ledger.machine.words()} {ledger.machine.last_words()}")
            self._is_ruined = True
        if self._is_ruined:
            return False
        ledger.count("seconds to serve", took)
        ledger.count("boots that served")
        queue = [upload for upload in ledger.live if not upload.is_retired]
        ledger.count("uploads that met a cut", sum(upload.cuts == 0 for upload in queue))
        parallel(lambda: self._verify(queue), 6)
        oracle.check_directories()
        oracle.check_application()
        oracle.check_holds()
        oracle.check_corrupt()
        ledger.forget_finished()
        self._note()
        return True

    def _verify(self, queue):
        while True:
            with self.ledger.lock:
                if not queue:
                    return
                upload = queue.pop()
            try:
                self._oracle.verify(upload)
            except Exception as error:  # noqa: BLE001: the others are checked anyway
                self.ledger.fail(upload, "not checked", repr(error))

    def _bury(self):
        machine = self.ledger.machine
        machine.bury()
        for figures in machine.figures.values():
            for what, number in figures.items():
                self.ledger.count(f"disk: {what}", number)

    def _note(self):
        """Writes a line of results for each checked power failure, with all events since the previous one."""
        ledger = self.ledger
        with ledger.lock:
            figures = collections.Counter(ledger.figures)
            change = figures - self._noted
            faults = [kind for kind, _, _ in ledger.faults[self._faults_noted :]]
            self._noted, self._faults_noted = figures, len(ledger.faults)
        now = time.monotonic()
        lines = [{"cut": cut} for cut in self._cuts] or [{}]
        lines[-1] |= {
            "figures": {name: round(value, 1) for name, value in change.items()},
            "broken": faults,
            "seconds": round(now - self._began, 1),
        }
        self._cuts, self._began = [], now
        for line in lines:
            self._results.write({"series": self.plan.name, "fs": self.plan.file_system, **line})

    def _conduct(self):
        chance = self._chance
        keeps = chance.choice(["some", "some", "some", "none", "all"])
        # XFS and btrfs do not survive torn blocks of 4096 bytes, nor ext4 torn halves of its superblock.
        is_small = self.plan.file_system == "ext4" and chance.random() < 0.15
        conduct = Conduct(
            keeps="none" if self.plan.is_control else keeps,
            seed=f"{self.plan.seed}-{self._number}",
            slowest=chance.choice([0, 0.01, 0.05, 0.2]),
            block=1024 if is_small else 4096,
            is_plain=chance.random() < 0.15,
        )
        if self.plan.is_control:
            # All unflushed data is lost, so that one power failure is enough.
            conduct.is_plain, conduct.block = False, 4096
        return conduct

    def _round(self):
        chance, ledger = self._chance, self.ledger
        conduct = self._conduct()
        is_first = ledger.boot == 0
        began = time.monotonic()
        self._boot(
            conduct,
            checks_disks=not is_first and not self.plan.is_control and chance.random() < 0.25,
            writes_eagerly=not self.plan.is_control and chance.random() < 0.5,
        )
        if not is_first and not self.plan.is_control and chance.random() < 0.12:
            # During the recovery of the file system and of the spool.
            time.sleep(chance.uniform(2, 9))
            ledger.machine.cut()
            ledger.last_cut = "its start"
        elif self._settle() and not self._has_shown():
            self._work()
        else:
            ledger.machine.cut()
            self._bury()
            return
        self._bury()
        self._cuts.append(
            {
                "at": ledger.last_cut,
                "lane": self._has_lane and dataclasses.asdict(self._lane()),
                "disks": str(conduct),
                "daemons": self._daemons,
                "program": self._program,
            }
        )
        print(
            f"  {self.plan.name} cut {self._number + 1}, at {ledger.last_cut}{self._described()}: "
            f"{time.monotonic() - began:.1f} s, {ledger.figures['uploads']} uploads, {ledger.figures['told']} offsets "
            f"acknowledged, {len(ledger.faults)} broken; {conduct}",
            flush=True,
        )

    def _lane(self):
        return self.ledger.machine.lane() or Lane()

    def _described(self):
        words = [
            f", spool_receive ({self._lane()})" if self._has_lane else "",
            ", two daemons" if self._daemons == 2 else "",
            ", previous build" if self._program == "previous" else "",
        ]
        return "".join(words)

    def _work(self):
        """Runs clients and an operator until the power fails."""
        chance, ledger, moment = self._chance, self.ledger, self.plan.moment
        # Workers continue for as long as a power failure may wait for nginx.
        until = time.monotonic() + WORK + (3 if self._has_lane else 0)
        lasts = WORK
        workers = chance.choice([1, 2] if moment else [1, 2, 6, 10])
        if self._has_lane:
            # So that several of its threads write.
            workers = max(workers, chance.choice([2, 4]))
        if self.plan.is_control and not moment:
            workers, lasts = 6, 5
        elif moment == NGINX_WRITES:
            lasts = chance.uniform(0.2, 2)
        elif moment or chance.random() < 0.5:
            ledger.look_out(moment or chance.choice(MOMENTS), chance.choice([1, 1, 2, 5]))
        else:
            lasts = chance.uniform(0.2, 5)
        seed = f"{self.plan.seed}-{self._number}"
        threads = [
            threading.Thread(target=self._client, args=(f"{seed}-{worker}", True, until)) for worker in range(workers)
        ]
        threads.append(threading.Thread(target=Operator(ledger, seed).work, args=(until,)))
        for thread in threads:
            thread.start()
        end = time.monotonic() + lasts
        while time.monotonic() < end and not ledger.is_dead:
            time.sleep(0.01)
        self._await_lane()
        ledger.cut_now()
        for thread in threads:
            thread.join()

    def _await_lane(self):
        """In boots with spool_receive, waits briefly until nginx has an upload's file open, or one of its threads
        writes.

        It does so in half of the boots; in the others the power fails at any time. If every power failure must come
        during a write, it does so in all of them.
        """
        wanted = self._chance.choice(["files", "writes", None, None])
        if self.plan.moment == NGINX_WRITES:
            wanted = "writes"
        end = time.monotonic() + 3
        while self._has_lane and wanted and time.monotonic() < end and not self.ledger.is_dead:
            if getattr(self._lane(), wanted):
                break
            time.sleep(0.02)

    def _client(self, seed, is_fresh, until):
        ledger, chance = self.ledger, random.Random(seed)
        client = Client(ledger, chance)
        while not ledger.is_dead and time.monotonic() < until:
            upload = ledger.take(chance, is_fresh)
            if upload is None:
                return
            try:
                for _ in range(chance.randint(1, 5) if is_fresh else 20):
                    if ledger.is_dead or upload.is_over:
                        break
                    client.step(upload)
            except Closed:
                # An upload without a URL cannot be resumed. Parts and concatenations are simply sent again.
                if upload.url is None and upload.family != "join":
                    upload.is_retired = True
                if not is_fresh:
                    time.sleep(0.3)
            except Exception as error:  # noqa: BLE001: a fault of the test itself must not end the round
                ledger.wonder(upload, f"worker: {error!r}")
                upload.is_retired = True
            finally:
                upload.is_busy = False

    def _finish(self):
        """Without further power failures, finishes every upload, waits for the deliveries of accepted ones, and
        checks everything.
        """
        ledger = self.ledger
        self._boot(Conduct(), is_last=True)
        ledger.application.open()
        if self._settle():
            Operator(ledger, self.plan.seed).release_all()
            end = time.monotonic() + 40
            parallel(lambda: self._client(f"{self.plan.seed}-{threading.get_ident()}", False, end), 6)
            self._wait_for_deliveries()
            self._check_end()
        ledger.machine.cut()
        self._bury()
        if self._is_ruined:
            return
        self._boot(Conduct(), checks_disks=True, is_last=True)
        self._settle()
        ledger.machine.cut()
        self._bury()

    def _wait_for_deliveries(self):
        ledger, oracle = self.ledger, self._oracle
        end = time.monotonic() + 40
        while True:
            oracle.check_directories()
            accepted = [one for one in ledger.live if one.is_accepted and not one.cancelled]
            waiting = [one for one in accepted if not oracle.is_settled(one)]
            if not waiting or time.monotonic() > end:
                break
            time.sleep(0.5)
        for upload in waiting:
            ledger.fail(upload, "accepted, not delivered", f"{ledger.application.requests_for(upload.path)}")
        arrived = sum(one.is_accepted and ledger.has_arrived(one) for one in ledger.by_path.values())
        ledger.count("accepted and delivered", arrived)

    def _check_end(self):
        ledger, oracle = self.ledger, self._oracle
        left = [one for one in ledger.live if not one.is_over and one.url and not one.is_part]
        ledger.count("unfinished at the end", len(left))
        for upload in left:
            ledger.wonder(upload, "unfinished")
        oracle.check_directories()
        oracle.check_application()
        metrics = (oracle.get("/-/spoolgate/metrics") or b"").decode()
        for line in metrics.split("\n"):
            if line.startswith("spoolgate_spool_receive_bytes_total"):
                ledger.count("bytes by the lane (last boot)", float(line.split()[-1]))
        listing = ledger.machine.ask("list")
        if not listing.rstrip().endswith("status 0") or " corrupt " in listing:
            ledger.fail(None, "list", listing[-300:])


def parallel(body, count):
    """Runs `body` in `count` threads; the first error is raised at the end."""
    with ThreadPoolExecutor(count) as pool:
        runs = [pool.submit(body) for _ in range(count)]
    for run in runs:
        run.result()
