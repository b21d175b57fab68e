"""Random requests whose content nginx writes into the responder's file; the seed chooses the actions of both sides.

The file must contain a prefix of the content that is at least as long as the last count. nginx must close the file
before it sends the end, and when the request ends. If neither side ends early or misbehaves, all content must arrive.
"""

import contextlib
import os
import random
import threading
import time

import case
import lane
import options
from lab import fastcgi
from lab.http1 import Closed
from responder import Disconnected

BAD = [lane.message(9), lane.message(lane.GRANT, limit=5), lane.message(lane.DECLINE), lane.message(lane.WINDOW),
       lane.message(lane.STOP, version=3), lane.message(lane.WINDOW, flags=4, limit=1 << 40), b"", b"x" * 23, b"x" * 24,
       lane.message(lane.WINDOW, limit=1 << 63), b"x" * 25]


class Seed:
    def __init__(self, seed, folder):
        self.random = random.Random(-seed)
        self.content = self.random.randbytes(self.random.choice([262_145, 300_000, 1_000_000, 2_500_000]))
        self.folder = folder
        self.uri = "%s?%d" % ("/lane_worker" if seed // 3 % 2 else "/lane", seed)
        self.protocol = self.random.choice(case.PROTOCOLS)
        self.is_chunked = self.protocol in case.HTTP1 and self.random.random() < 0.3
        self.sends_all = self.random.random() < 0.6
        self.responder_closes = self.random.random() < 0.2
        self.is_bad = not self.responder_closes and self.random.random() < 0.2
        self.stops = self.random.random() < 0.15
        self.is_early = self.random.random() < 0.1
        self.one = None
        self.rest = None
        self.problem = None

    # The responder.

    def respond(self, bench, over):
        try:
            exchange = None
            while exchange is None and not (over.is_set() and bench.local.idle()):
                if bench.local.idle():
                    over.wait(0.001)
                    continue
                with contextlib.suppress(Disconnected):
                    exchange = bench.local.accept()
                    if exchange.params["REQUEST_URI"] != self.uri:
                        exchange.close()
                        exchange = None
            if exchange is None:
                return
            try:
                self.play(exchange)
            except (Disconnected, TimeoutError):
                pass
            finally:
                exchange.close(reset=self.random.random() < 0.3)
        except Exception as error:
            self.problem = error

    def play(self, exchange):
        r = self.random
        one = lane.Lane(exchange, os.path.join(self.folder, "file"), b"s" * r.choice([0, 0, 5]))
        self.one = one
        one.expect_offer()
        if r.random() < 0.3:
            exchange.interim(104, "Location: /x")
        how = r.choice(["grant", "grant", "grant", "decline"])
        if how == "decline":
            one.decline()
            self.rest = exchange.content()
            return exchange.final(201)
        limit = r.choice([0, 1, 1000, 100_000, len(self.content) - 1, len(self.content), 1 << 40])
        one.grant(limit, rest=r.random() < 0.5,
                  before=fastcgi.records(fastcgi.STDOUT, fastcgi.block(104)) if r.random() < 0.2 else b"")
        if self.responder_closes:
            time.sleep(r.choice([0, 0.001, 0.01]))
            return None
        if self.is_bad:
            exchange.write(fastcgi.record(lane.DATA, r.choice(BAD)))
        elif self.is_early:
            return exchange.final(413)

        def widen(count):
            if self.stops and r.random() < 0.5:
                return one.stop()
            if r.random() < 0.3:
                exchange.interim(104, "Upload-Offset: %d" % count)
            nonlocal limit
            limit = max(limit, count + r.choice([1, 5000, 1 << 20]))
            return one.widen(limit, rest=r.random() < 0.1)
        if limit == 0:
            widen(0)
        errno = one.until_end(widen)
        if one.is_locked():
            raise AssertionError("the file is still open after the end")
        if errno:
            raise AssertionError("errno %d" % errno)
        if self.stops:
            return exchange.final(409)
        self.rest = exchange.content()
        return exchange.final(201)

    # The client.

    def request(self, bench):
        r = self.random
        client = bench.nginx.connect(self.protocol)
        client.sock.settimeout(options.patience(5))
        sent = len(self.content) if self.sends_all else r.randrange(len(self.content))
        status = None
        try:
            if self.is_chunked:
                message = client.start("PUT", self.uri, chunked=True)
            else:
                message = client.start("PUT", self.uri, length=len(self.content))
            at = 0
            while at < sent:
                size = min(sent - at, r.choice([1, 1000, 70_000, 1 << 20]))
                at += size
                message.write(self.content[at - size:at], end=self.sends_all and at == sent)
            if self.sends_all:
                status = message.finish()[1].status
        except (Closed, TimeoutError, AssertionError, ValueError, IndexError):
            pass        # judge() checks the result
        finally:
            client.reset() if r.random() < 0.5 else client.close()
        return status

    def judge(self, status):
        if self.problem:
            raise self.problem
        deadline = time.monotonic() + options.patience(5)
        while self.one and self.one.is_locked():
            if time.monotonic() > deadline:
                raise AssertionError("the file is still open after the request")
            time.sleep(0.002)
        if self.one:
            got = self.one.content()
            if not self.content.startswith(got) or len(got) < self.one.count:
                raise AssertionError("the file has %d bytes, the last count is %d" % (len(got), self.one.count))
        if self.sends_all and not (self.responder_closes or self.is_bad or self.stops or self.is_early):
            whole = (self.one.content() if self.one else b"") + (self.rest or b"")
            if status != 201 or whole != self.content:
                raise AssertionError("status %s, %d of %d bytes" % (status, len(whole), len(self.content)))


def run(bench, seed, folder):
    """Run one seed; raises an error if it fails."""
    one = Seed(seed, folder)
    over = threading.Event()
    script = threading.Thread(target=one.respond, args=(bench, over), daemon=True)
    script.start()
    try:
        status = one.request(bench)
    finally:
        over.set()
        script.join()
    one.judge(status)
    bench.local.reset()
