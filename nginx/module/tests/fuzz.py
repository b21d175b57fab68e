"""Fuzz nginx with random record streams and clients that read, stall or close early.

After each seed, the worker must be the same process, the error log must contain no problem, and nginx must serve a
static file. A client that reads a valid stream must receive all of its responses. A seed that fails is printed and
can be run alone. Every third seed tests the lane (fuzz_lane.py).
"""

import concurrent.futures
import contextlib
import multiprocessing
import os
import random
import select
import tempfile
import threading
import time
import traceback

import case
import fuzz_lane
import options
import server
from fuzz_streams import Stream
from lab.http1 import Closed
from responder import Disconnected, Responder

SERVER = """
    fastcgi_buffer_size 4k;
    fastcgi_read_timeout LIMITs;
    fastcgi_send_timeout LIMITs;
    send_timeout 8s;
    interim_responses 100 103 104;
    location /buffered { fastcgi_pass %%UPSTREAM%%; fastcgi_buffering on; }
    location /collected { fastcgi_pass %%UPSTREAM%%; fastcgi_request_buffering on; }
    location /kept { fastcgi_pass group; fastcgi_keep_conn on; }
    location /kept_off { fastcgi_pass group; fastcgi_keep_conn on; interim_responses off; }
    location /kept_buffered { fastcgi_pass group; fastcgi_keep_conn on; fastcgi_buffering on; }
    location /off { fastcgi_pass %%UPSTREAM%%; interim_responses off; }
    location /expected { fastcgi_pass %%UPSTREAM%%; interim_responses 104 100; }
    location /lane { fastcgi_pass %%UPSTREAM2%%; spool_receive on; }
    location /lane_worker { fastcgi_pass %%UPSTREAM2%%; spool_receive worker; }
"""
HTTP = "upstream group { server %%UPSTREAM%%; keepalive 4; }"
PATHS = ["/", "/", "/", "/buffered", "/collected", "/kept", "/kept_off", "/kept_buffered", "/off", "/expected"]


class Bench:
    """One nginx, with a TCP responder and a Unix socket responder, for many seeds."""

    def __init__(self):
        self.responder = Responder()
        self.folder = tempfile.mkdtemp(dir=options.scratch)
        self.local = Responder(os.path.join(self.folder, "responder"))
        limit = str(int(options.patience(1)))
        self.nginx = server.Nginx(SERVER.replace("LIMIT", limit), HTTP,
                                  upstreams=[self.responder.address, self.local.address]).start()
        self.workers = self.nginx.workers()

    def close(self):
        wrong = self.nginx.quit()
        self.nginx.remove()
        self.responder.close()
        self.local.close()
        return wrong

    def run(self, seed):
        """Run one seed; raises an exception if it fails."""
        if seed % 3 == 0:
            fuzz_lane.run(self, seed, self.folder)
            return self.inspect(case.PLAIN)
        stream = Stream(seed)
        choose = random.Random(-seed - 1)
        protocol = choose.choice(case.PROTOCOLS)
        path = choose.choice(PATHS)
        manner = choose.choice(["reads", "reads", "reads", "stalls", "aborts", "leaves"])
        path = "%s?%d" % (path, seed)
        over = threading.Event()
        script = threading.Thread(target=self.respond, args=(stream, path, over), daemon=True)
        script.start()
        try:
            self.request(choose, protocol, path, manner, stream)
        finally:
            over.set()
            script.join()
        if self.problem:
            raise self.problem
        self.inspect(protocol)

    def take(self, path, over):
        """Accept the seed's request; returns None if the client closed before nginx sent it."""
        while not over.is_set() or not self.responder.idle():
            if self.responder.idle():
                over.wait(0.001)
                continue
            # The request of an earlier seed arrives late if its client did not wait for the response.
            with contextlib.suppress(Disconnected):
                exchange = self.responder.accept()
                if exchange.params["REQUEST_URI"] == path:
                    return exchange
                exchange.close()
        return None

    def respond(self, stream, path, over):
        self.problem = None
        try:
            exchange = self.take(path, over)
            if exchange is None:
                return
            try:
                if stream.reads_first:
                    exchange.content()
                # nginx may close before it has read the whole stream; the client still sends its next request.
                with contextlib.suppress(Disconnected):
                    for data, pause in stream.writes:
                        exchange.write(data)
                        if pause:
                            time.sleep(pause)
                if exchange.keep and stream.valid:
                    self.respond_next(exchange, path + "-next", over)
                elif exchange.keep and stream.how == "end":
                    over.wait(options.patience(5))
                elif stream.valid or stream.how == "end":
                    exchange.shutdown()
                    exchange.until_closed(5)
                elif stream.how == "reset":
                    exchange.close(reset=True)
            finally:
                exchange.close()
        except (Disconnected, TimeoutError):
            pass
        except Exception as error:
            self.problem = error

    def respond_next(self, exchange, path, over):
        """Respond to the client's next request, on the kept connection or on a new one."""
        while not over.is_set():
            with contextlib.suppress(Disconnected):
                if not self.responder.idle():
                    exchange = self.responder.accept()
                elif exchange and select.select([exchange.sock], [], [], 0.001)[0]:
                    kept, exchange = exchange, None
                    exchange = kept.following()
                else:
                    continue
                exchange.content()
                if exchange.params["REQUEST_URI"] == path:
                    exchange.whole(200, content=b"second")

    def request(self, choose, protocol, path, manner, stream):
        client = self.nginx.connect(protocol, receive_buffer=4096 if manner == "stalls" else None)
        if not stream.valid:
            client.sock.settimeout(options.patience(1.5))
        content = b"x" * choose.choice([0, 1, 100, 20000])
        fields = ["Expect: 100-continue"] if path.startswith("/expected") else []
        defined = stream.valid and not path.startswith(("/off", "/kept_off"))
        try:
            message = client.start("POST", path, *fields, length=len(content))
            if manner == "leaves":
                pass
            elif content:
                message.write(content, end=True)
            if manner == "reads":
                interims, final = message.finish()
                if defined:
                    self.compare(stream, path, interims, final)
                    if path.startswith("/kept"):
                        self.request_next(protocol, path + "-next")
            elif manner == "stalls":
                time.sleep(choose.choice([0.002, 0.02]))
                message.finish()
            elif manner == "aborts" and choose.random() < 0.5:
                message.next()
        except (Closed, TimeoutError, AssertionError, ValueError, IndexError):
            # The response to a malformed stream may be invalid HTTP or incomplete.
            if defined:
                raise
        finally:
            client.reset() if choose.random() < 0.5 else client.close()

    def request_next(self, protocol, path):
        """Send the next request; its response must contain no part of the previous one."""
        client = self.nginx.connect(protocol)
        try:
            interims, final = client.start("GET", path).finish()
        finally:
            client.close()
        if (interims, final.status, final.content) != ([], 200, b"second"):
            raise AssertionError("the next request received %r %r" % (interims, final))

    def compare(self, stream, path, interims, final):
        got = [(one.status, [(name.lower(), value) for name, value in one.fields]) for one in interims
               if one.status != 100]
        if (final.status, final.content) != (stream.status, stream.content):
            raise AssertionError("final %r, not %d with %d bytes"
                                 % (final, stream.status, len(stream.content)))
        expected = [one for one in stream.interims if not path.startswith("/expected") or one[0] == 104]
        if got != expected:
            raise AssertionError("interims %r, not %r" % (got, expected))

    def inspect(self, protocol):
        for exchange in self.responder.reset():
            raise exchange
        client = self.nginx.connect(protocol)
        try:
            final = client.start("GET", "/static").finish()[1]
        finally:
            client.close()
        if (final.status, final.content) != (200, b"a static file\n"):
            raise AssertionError("GET /static after the seed received %r" % final)
        trouble = self.nginx.trouble()
        if trouble:
            raise AssertionError("problems in error.log:\n" + "\n".join(trouble))
        if self.nginx.workers() != self.workers:
            raise AssertionError("the worker process has changed")


def run_seeds(seeds):
    """Run seeds on one nginx; returns [(seed or None, error text)]."""
    failed, bench = [], Bench()
    try:
        for seed in seeds:
            try:
                bench.run(seed)
            except Exception:
                failed.append((seed, traceback.format_exc()))
                if bench.nginx.process.poll() is not None or len(failed) > 20:
                    break
    finally:
        wrong = bench.close()
    return failed + ([(None, "after nginx quit, seeds %r:\n%s" % (seeds, "\n".join(wrong)))] if wrong else [])


def main(first, count, jobs, verbose):
    started = time.monotonic()
    ranges = [range(first + at, min(first + at + 250, first + count)) for at in range(0, count, 250)]
    if count < 250 * jobs:
        ranges = [range(first + job, first + count, jobs) for job in range(min(jobs, count))]
    failed = []
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(jobs, context, server.die_with_parent) as pool:
        for seeds, done in zip(ranges, pool.map(run_seeds, ranges)):
            failed += done
            if verbose:
                print("%d seeds from %d: %d failed" % (len(seeds), seeds[0], len(done)), flush=True)
    for seed, text in failed:
        print("=" * 70 + "\nFAIL: seed %s (reproduce with --seed %s)\n%s" % (seed, seed, text))
    print("-" * 70 + "\nRan %d seeds in %.3fs\n" % (count, time.monotonic() - started))
    print("FAILED (failures=%d)" % len(failed) if failed else "OK")
    return 1 if failed else 0
