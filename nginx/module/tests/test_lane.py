"""Content that nginx writes directly into the responder's file."""

import contextlib
import errno
import os
import random
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import case
import lane
import options
from lab import fastcgi, http1
from lane import Lane
from responder import Disconnected
from server import H2, PLAIN

CONTENT = random.Random(7).randbytes(3_000_001)
LARGE = 256 * 1024


class LaneTestCase(case.NginxTestCase):
    unix = True
    receive = "on"      # the value of spool_receive
    server = "location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104 100; spool_receive %%RECEIVE%%; }"

    @classmethod
    def configuration(cls):
        return cls.server.replace("%%RECEIVE%%", cls.receive)

    @classmethod
    def setUpClass(cls):
        if cls.receive != "worker" and not options.has("--with-threads"):
            raise unittest.SkipTest("this nginx was built without threads")
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(dir=options.scratch)
        self.lanes = []

    def lane(self, exchange, start=b""):
        file, path = tempfile.mkstemp(dir=self.folder)
        os.close(file)
        one = Lane(exchange, path, start)
        self.lanes.append(one)
        return one

    def tearDown(self):
        super().tearDown()
        # nginx closes every file, however the request ended.
        self.until(lambda: not any(one.is_locked() for one in self.lanes) and not self.open_files(), 5,
                   "a file is still open")

    def open_files(self):
        """The paths of this test's files that nginx's workers have open."""
        found = []
        for pid in self.nginx.workers():
            for fd in os.listdir("/proc/%d/fd" % pid):
                with contextlib.suppress(OSError):
                    path = os.readlink("/proc/%d/fd/%s" % (pid, fd))
                    if path.startswith(self.folder) and not path.endswith(".stuck"):
                        found.append(path)
        return found

    def serve(self, script, start=b""):
        """Receive the offer of each request, then call `script(lane, exchange)`."""
        def run(exchange):
            one = self.lane(exchange, start)
            one.expect_offer()
            script(one, exchange)
        self.upstream.serve(run)

    def put(self, protocol=PLAIN, content=CONTENT, **options):
        return self.connect(protocol).start("PUT", "/a", content=content, **options)


def take_all(one, exchange):
    one.grant(1 << 40)
    if one.until_end() or exchange.content():
        raise AssertionError("nginx did not write all content")
    exchange.final(201)


class Written(LaneTestCase):
    @case.over(*case.PROTOCOLS)
    def test_length(self, protocol):
        self.serve(take_all)
        self.assertStatuses(self.put(protocol), [], 201)
        self.assertTrue(self.lanes[0].content() == CONTENT)
        self.assertEqual(self.lanes[0].count, len(CONTENT))

    @case.over(*case.PROTOCOLS)
    def test_appended(self, protocol):
        self.serve(take_all, start=b"existing content")
        self.assertStatuses(self.put(protocol), [], 201)
        self.assertTrue(self.lanes[0].content() == CONTENT)

    @case.over(*case.HTTP1)
    def test_chunked(self, protocol):
        self.serve(take_all)
        self.assertStatuses(self.put(protocol, chunked=True), [], 201)
        self.assertTrue(self.lanes[0].content() == CONTENT)

    def test_many_chunks(self):
        self.serve(take_all)
        message = self.connect().start("PUT", "/a", chunked=True)
        for at in range(0, 300_000, 777):
            message.write(CONTENT[at:min(at + 777, 300_000)])
        message.write(b"", end=True)
        self.assertStatuses(message, [], 201)
        self.assertTrue(self.lanes[0].content() == CONTENT[:300_000])

    def test_empty_chunked(self):
        message = self.connect().start("PUT", "/a", chunked=True)
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        # Sent late, because nginx makes no offer for content that arrives complete with the header section.
        message.write(b"", end=True)
        take_all(one, one.exchange)
        self.assertStatuses(message, [], 201)
        self.assertEqual(one.content(), b"")

    @case.over(*case.PROTOCOLS)
    def test_piece_by_piece(self, protocol):
        """nginx writes content as soon as it arrives."""
        message = self.connect(protocol).start("PUT", "/a", length=LARGE + 1)
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        one.grant(1 << 40)
        at = 0
        for size in (1, 10, 100_000, 1, LARGE + 1 - 100_012):
            message.write(CONTENT[at:at + size], end=at + size == LARGE + 1)
            at += size
            self.until(lambda: len(one.content()) >= at, 10, "%d bytes were not written" % at)
        self.assertEqual(one.until_end(), 0)
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)

    def test_counts(self):
        """nginx sends a count after 4 MiB, or after 1 MiB if that took a second."""
        self.serve(take_all)
        started = int(time.time())
        self.assertStatuses(self.put(content=CONTENT * 5), [], 201)
        seconds = int(time.time()) - started
        self.assertGreaterEqual(len(self.lanes[0].counts), 1)
        self.assertLessEqual(len(self.lanes[0].counts), len(CONTENT) * 5 // (4 << 20) + seconds)

    def test_in_parallel(self):
        self.serve(take_all)
        clients = []
        for number in range(50):
            message = self.connect().start("PUT", "/%d" % number, length=len(CONTENT) // 4)
            clients.append(message)
        threads = [threading.Thread(target=message.write, args=(CONTENT[:len(CONTENT) // 4], True))
                   for message in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for message in clients:
            self.assertStatuses(message, [], 201)
        for one in self.lanes:
            self.assertTrue(one.content() == CONTENT[:len(CONTENT) // 4])

    def test_interim_responses(self):
        def script(one, exchange):
            exchange.interim(104, "Location: /1")
            one.grant(1 << 40, before=fastcgi.records(fastcgi.STDOUT, fastcgi.block(104, "Location: /2")))
            exchange.interim(104, "Upload-Offset: 5")
            one.until_end()
            exchange.interim(104, "Upload-Offset: 6")
            exchange.content()
            exchange.final(201)
        self.serve(script)
        self.assertStatuses(self.put(), [104] * 4, 201)
        self.assertTrue(self.lanes[0].content() == CONTENT)

    def test_message_in_pieces(self):
        def script(one, exchange):
            data = lane.record(lane.GRANT, limit=1 << 40)
            fd = one.open()
            one.pass_fds(data[:1], [fd])
            os.close(fd)
            for byte in data[1:]:
                exchange.write(bytes([byte]))
            one.until_end()
            exchange.content()
            exchange.final(201)
        self.serve(script)
        self.assertStatuses(self.put(), [], 201)
        self.assertTrue(self.lanes[0].content() == CONTENT)

    def test_expect(self):
        message = self.connect().start("PUT", "/a", "Expect: 100-continue", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        one.exchange.interim(100)
        self.assertEqual(message.next().status, 100)
        one.grant(1 << 40)
        message.write(CONTENT, end=True)
        one.until_end()
        one.exchange.content()
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)
        self.assertTrue(one.content() == CONTENT)


class SmallBuffer(Written):
    server = """client_body_buffer_size 16k;
        location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104 100; spool_receive %%RECEIVE%%; }"""


class LargeBuffer(Written):
    server = """client_body_buffer_size 1m;
        location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104 100; spool_receive %%RECEIVE%%; }"""


class ShortWrites(Written):
    """Each writev() to a file writes only a part, as it can on a file system that is almost full."""

    WRITEV = r"""
        #define _GNU_SOURCE
        #include <sys/stat.h>
        #include <sys/syscall.h>
        #include <sys/uio.h>
        #include <unistd.h>

        ssize_t writev(int fd, const struct iovec *parts, int count)
        {
            struct iovec  part;
            struct stat   status;

            if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
                return syscall(SYS_writev, fd, parts, count);
            }

            part = parts[0];

            if (part.iov_len > 1) {
                part.iov_len = part.iov_len / 2 < 9999 ? part.iov_len / 2 : 9999;
            }

            return syscall(SYS_writev, fd, &part, 1);
        }
    """

    @classmethod
    def setUpClass(cls):
        if options.valgrind or options.sanitized():
            raise unittest.SkipTest("nginx must call the preloaded writev() directly")
        library = os.path.join(options.scratch, "short_writes.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"],
                       input=cls.WRITEV.encode(), check=True)
        cls.environment = {"LD_PRELOAD": library}
        super().setUpClass()


class WithoutInterims(LaneTestCase):
    server = "location / { fastcgi_pass %%UPSTREAM%%; spool_receive %%RECEIVE%%; }"

    @case.over(*case.PROTOCOLS)
    def test_length(self, protocol):
        self.serve(take_all)
        self.assertStatuses(self.put(protocol), [], 201)
        self.assertTrue(self.lanes[0].content() == CONTENT)


class NotOffered(LaneTestCase):
    server = """
        spool_receive on;
        location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104; }
        location /off { fastcgi_pass %%UPSTREAM%%; interim_responses 104; spool_receive off; }
        location /on_off { fastcgi_pass %%UPSTREAM%%; spool_receive on; spool_receive off; }
        location /off_on { fastcgi_pass %%UPSTREAM%%; spool_receive off; spool_receive on; }
        location /buffered { fastcgi_pass %%UPSTREAM%%; fastcgi_request_buffering on; }
    """

    def check(self, path, content, **options):
        message = self.connect().start("PUT", path, content=content, **options)
        exchange = self.upstream.accept()
        self.assertEqual(exchange.content(), content)
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    def test_small_content(self):
        self.check("/", CONTENT[:1000])
        self.check("/", CONTENT[:100_000])

    def test_on_and_off(self):
        """An included file may contain the directive too; one "off" is enough."""
        self.check("/on_off", CONTENT[:1000], chunked=True)
        self.check("/off_on", CONTENT[:1000], chunked=True)

    def test_off(self):
        self.check("/off", CONTENT[:1000], chunked=True)

    def test_buffered(self):
        self.check("/buffered", CONTENT[:100_000], chunked=True)

    def test_no_content(self):
        message = self.connect().start("GET", "/")
        exchange = self.upstream.accept()
        self.assertEqual(exchange.content(), b"")
        exchange.final(200)
        self.assertStatuses(message, [], 200)


class OverTCP(case.NginxTestCase):
    server = "location / { fastcgi_pass %%UPSTREAM%%; spool_receive on; }"

    def test_not_offered(self):
        message = self.connect().start("PUT", "/a", content=b"abc", chunked=True)
        exchange = self.upstream.accept()
        self.assertEqual(exchange.content(), b"abc")
        exchange.final(201)
        self.assertStatuses(message, [], 201)


class Limits(LaneTestCase):
    @case.over(*case.PROTOCOLS)
    def test_declined(self, protocol):
        got = []

        def script(one, exchange):
            one.decline()
            got.append(exchange.content())
            exchange.final(201)
        self.serve(script)
        self.assertStatuses(self.put(protocol), [], 201)
        self.assertTrue(got == [CONTENT])

    @case.over("0", "1", "65536", "1000000", str(len(CONTENT) - 1), str(len(CONTENT)))
    def test_rest(self, limit):
        limit, got = int(limit), []

        def script(one, exchange):
            one.grant(limit, rest=True)
            one.until_end()
            got.append(exchange.content())
            exchange.final(201)
        for protocol in (PLAIN, H2):
            with self.subTest(protocol):
                self.upstream.reset()
                got.clear()
                self.serve(script)
                self.assertStatuses(self.put(protocol), [], 201)
                self.assertEqual(self.lanes[-1].count, limit)
                self.assertTrue(self.lanes[-1].content() + got[0] == CONTENT)

    def test_rest_of_chunked(self):
        got = []

        def script(one, exchange):
            one.grant(len(CONTENT) - 1, rest=True)
            one.until_end()
            got.append(exchange.content())
            exchange.final(201)
        self.serve(script)
        self.assertStatuses(self.put(chunked=True), [], 201)
        self.assertTrue(self.lanes[0].content() + got[0] == CONTENT)

    @case.over(*case.PROTOCOLS)
    def test_windows(self, protocol):
        def script(one, exchange):
            one.grant(100_000)
            one.until_end(lambda count: one.widen(min(count + 100_000, 1 << 40)))
            exchange.content()
            exchange.final(201)
        self.serve(script)
        self.assertStatuses(self.put(protocol), [], 201)
        self.assertTrue(self.lanes[0].content() == CONTENT)
        self.assertGreaterEqual(len(self.lanes[0].counts), len(CONTENT) // 100_000)

    def test_window_with_rest(self):
        got = []

        def script(one, exchange):
            one.grant(1000)
            one.until_end(lambda count: one.widen(2000, rest=True))
            got.append(exchange.content())
            exchange.final(201)
        self.serve(script)
        self.assertStatuses(self.put(), [], 201)
        self.assertTrue(self.lanes[0].content() == CONTENT[:2000] and got[0] == CONTENT[2000:])

    def test_responder_does_not_read(self):
        """If the responder does not read, counts are merged; it still receives the last one."""
        message = self.connect().start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        message.write(CONTENT[:100_000])
        one.grant(10)
        windows = 2000
        for limit in range(20, 10 * windows + 1, 10):
            one.widen(limit)
            deadline = time.monotonic() + options.patience(10)
            while len(one.content()) < limit:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.0002)
        counts = 0
        while one.told() != (lane.COUNT, 10 * windows, 0):
            counts += 1
        self.assertLess(counts, windows // 2)
        one.widen(1 << 40)
        message.write(CONTENT[100_000:], end=True)
        self.assertEqual(one.until_end(), 0)
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)
        self.assertTrue(one.content() == CONTENT)

    def test_waits_at_limit(self):
        message = self.connect().start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        one.grant(1000)
        message.write(CONTENT[:100_000])
        self.assertEqual(one.told(), (lane.COUNT, 1000, 0))
        self.assertTrue(one.is_silent(0.2))
        self.assertEqual(len(one.content()), 1000)
        one.stop()
        self.assertEqual(one.until_end(), 0)
        one.exchange.final(507)
        self.assertEqual(message.finish()[1].status, 507)


class SendTimeout(LaneTestCase):
    """fastcgi_send_timeout limits the wait for a response to the offer, and for a window."""

    server = "fastcgi_send_timeout 1s; location / { fastcgi_pass %%UPSTREAM%%; spool_receive %%RECEIVE%%; }"

    def at_limit(self):
        message = self.connect().start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        one.grant(1000)
        message.write(CONTENT[:100_000])
        self.assertEqual(one.told(), (lane.COUNT, 1000, 0))
        return message, one

    def test_no_response(self):
        message = self.connect().start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        message.write(CONTENT[:1000])
        self.assertEqual(message.finish()[1].status, 504)

    def test_no_window(self):
        message, _ = self.at_limit()
        self.assertEqual(message.finish()[1].status, 504)

    def test_same_window(self):
        message, one = self.at_limit()
        for _ in range(13):
            self.assertTrue(one.is_silent(0.2))
            one.widen(1000)
        one.stop()
        self.assertEqual(one.until_end(), 0)
        one.exchange.final(409)
        self.assertEqual(message.finish()[1].status, 409)


class Begun(LaneTestCase):
    def begin(self, sent, protocol=PLAIN, start=b""):
        """Start a request, send `sent` bytes, and wait until nginx has written them."""
        message = self.connect(protocol).start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept(), start)
        one.expect_offer()
        one.grant(1 << 40)
        message.write(CONTENT[:sent])
        self.until(lambda: len(one.content()) >= sent)
        return message, one

    def finish(self, message, one, sent):
        """Send the rest of the content; nginx must write all of it, and the request must succeed."""
        message.write(CONTENT[sent:], end=True)
        self.assertEqual(one.until_end(), 0)
        one.exchange.content()
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)
        self.assertTrue(one.content() == CONTENT)


class Slow(Begun):
    def test_count_after_seconds(self):
        """nginx sends a count after some seconds, however little it has written."""
        message, one = self.begin(1)
        deadline, sent = time.monotonic() + options.patience(30), 1
        while one.is_silent(0.5):
            self.assertLess(time.monotonic(), deadline, "no count was sent")
            message.write(CONTENT[sent:sent + 1])
            sent += 1
        kind, count, why = one.told()
        self.assertEqual((kind, why), (lane.COUNT, 0))
        self.assertTrue(0 < count <= sent, (count, sent))


class Ends(Begun):
    @case.over(*case.PROTOCOLS)
    def test_stop(self, protocol):
        message, one = self.begin(200_000, protocol)
        self.assertTrue(one.is_locked())
        one.stop()
        self.assertEqual(one.until_end(), 0)
        self.assertFalse(one.is_locked())
        self.assertEqual(one.count, 200_000)
        if protocol in case.HTTP1:
            with contextlib.suppress(http1.Closed):
                message.write(CONTENT[200_000:250_000])
        self.assertTrue(one.is_silent(0.2), "the responder received a message or content after a stop")
        one.exchange.final(409)
        self.assertEqual(message.finish()[1].status, 409)
        self.assertEqual(len(one.content()), 200_000)

    @case.over(*case.PROTOCOLS)
    def test_client_closes(self, protocol):
        message, one = self.begin(150_000, protocol)
        message.client.close()
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())
        self.assertTrue(one.content() == CONTENT[:150_000])

    def test_client_resets(self):
        message, one = self.begin(150_000)
        message.client.reset()
        one.exchange.until_closed()
        self.assertTrue(one.content() == CONTENT[:150_000])

    @case.over(*case.PROTOCOLS)
    def test_client_closes_at_once(self, protocol):
        """nginx writes all content that it has read."""
        for _ in range(20):
            message, one = self.begin(1, protocol)
            message.write(CONTENT[1:60_000])
            message.client.sock.shutdown(socket.SHUT_WR)
            one.exchange.until_closed()
            self.assertFalse(one.is_locked())
            self.assertEqual(len(one.content()), 60_000)
            self.assertTrue(CONTENT.startswith(one.content()))

    @case.over(*case.HTTP2)
    def test_client_cancels(self, protocol):
        for _ in range(20):
            message, one = self.begin(1, protocol)
            message.write(CONTENT[1:60_000])
            message.cancel()
            one.exchange.until_closed()
            self.assertFalse(one.is_locked())
            self.assertEqual(len(one.content()), 60_000)
            self.assertTrue(CONTENT.startswith(one.content()))

    @case.over(*case.PROTOCOLS)
    def test_responder_closes(self, protocol):
        message, one = self.begin(150_000, protocol)
        one.exchange.close()
        self.assertEqual(message.finish()[1].status, 502)
        self.assertTrue(one.content() == CONTENT[:150_000])

    def test_responder_closes_after_stop(self):
        """nginx cannot report the end, but the responder's message was valid."""
        message, one = self.begin(150_000)
        worker = self.stopped_worker()
        one.stop()
        one.exchange.close()
        os.kill(worker, signal.SIGCONT)
        self.assertEqual(message.finish()[1].status, 502)
        self.assertNotIn("invalid message", self.logged())

    def test_responder_closes_after_offer(self):
        message = self.connect().start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        one.exchange.close()
        self.assertEqual(message.finish()[1].status, 502)

    def test_responder_closes_after_grant(self):
        message = self.connect().start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        one.grant(1 << 40)
        one.exchange.close()
        self.assertEqual(message.finish()[1].status, 502)

    @case.over(*case.PROTOCOLS)
    def test_early_response(self, protocol):
        message, one = self.begin(150_000, protocol)
        one.exchange.final(413)
        self.assertEqual(message.finish()[1].status, 413)

    @case.over(*case.PROTOCOLS)
    def test_early_response_to_offer(self, protocol):
        message = self.connect(protocol).start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        one.exchange.final(413)
        self.assertEqual(message.finish()[1].status, 413)

    def test_late_messages(self):
        """A window or a stop may be on its way when nginx sends the end."""
        def script(one, exchange):
            one.grant(1 << 40)
            one.until_end()
            one.widen(1 << 41)
            one.stop()
            exchange.content()
            exchange.final(201)
        self.serve(script)
        self.assertStatuses(self.put(), [], 201)


class EndsOfLargeBuffer(Ends):
    server = """client_body_buffer_size 1m;
        location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104 100; spool_receive %%RECEIVE%%; }"""


class Reload(Begun):
    def test_reload(self):
        message, one = self.begin(150_000)
        before = self.nginx.workers()
        self.nginx.process.send_signal(1)
        self.until(lambda: set(self.nginx.workers()) != set(before))
        self.finish(message, one, 150_000)


class WorkerKilled(Begun):
    def test_worker_killed(self):
        if options.valgrind:
            self.skipTest("memcheck does not report the end of a killed process")
        _, one = self.begin(150_000)
        os.kill(self.nginx.workers()[0], 9)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())
        self.assertTrue(one.content() == CONTENT[:150_000])
        self.until(lambda: self.nginx.workers() and "on signal 9" in self.logged())
        # The messages about the signal are expected.
        self.nginx._checked = len(self.nginx.read("error.log"))


class FileSizeLimit(LaneTestCase):
    """nginx never writes beyond RLIMIT_FSIZE (ulimit -f, LimitFSIZE=); the kernel would kill the worker."""

    LIMIT = 1 << 20
    MORE = {"below": -1, "at": 0, "above": 1}

    def setUp(self):
        super().setUp()
        self.limit(self.LIMIT)

    def tearDown(self):
        workers = self.nginx.workers()
        self.limit(resource.RLIM_INFINITY)
        super().tearDown()
        self.assertEqual(self.nginx.workers(), workers)
        self.assertNotIn("exited on signal", self.logged())

    def limit(self, size):
        for worker in self.nginx.workers():
            resource.prlimit(worker, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def begin(self, content, protocol=PLAIN, start=b"", limit=1 << 40):
        """Start a request and grant `limit` bytes; sends no content."""
        message = self.connect(protocol).start("PUT", "/a", length=content)
        one = self.lane(self.upstream.accept(), start)
        one.expect_offer()
        one.grant(limit)
        return message, one

    @case.over(*case.PROTOCOLS)
    def test_rest(self, protocol):
        """nginx writes up to the limit, sends the rest to the responder, and reports no error."""
        rest = []

        def script(one, exchange):
            one.grant(1 << 40)
            self.assertEqual(one.until_end(), 0)
            rest.append(exchange.content())
            exchange.final(201)
        self.serve(script)
        self.assertStatuses(self.put(protocol), [], 201)
        self.assertEqual(self.lanes[0].count, self.LIMIT)
        self.assertTrue(self.lanes[0].content() == CONTENT[:self.LIMIT])
        self.assertTrue(rest == [CONTENT[self.LIMIT:]])

    def test_rest_of_chunked(self):
        rest = []

        def script(one, exchange):
            one.grant(1 << 40)
            self.assertEqual(one.until_end(), 0)
            rest.append(exchange.content())
            exchange.final(201)
        self.serve(script)
        self.assertStatuses(self.put(chunked=True), [], 201)
        self.assertTrue(self.lanes[0].content() + rest[0] == CONTENT)

    @case.over(*MORE)
    def test_existing_content_counts(self, more):
        """The file's size is the limit, or a byte less or more."""
        more = self.MORE[more]
        start = bytes(self.LIMIT + more)
        rest = []

        def script(one, exchange):
            one.grant(1 << 40)
            self.assertEqual(one.until_end(), 0)
            rest.append(exchange.content())
            exchange.final(201)
        self.serve(script, start=start)
        self.assertStatuses(self.put(), [], 201)
        self.assertEqual(self.lanes[0].count, max(0, -more))
        self.assertTrue(self.lanes[0].content() + rest[0] == CONTENT)

    def test_file_at_limit(self):
        """nginx sends the end at once, before it receives content."""
        message, one = self.begin(len(CONTENT), start=bytes(self.LIMIT))
        self.assertEqual(one.until_end(), 0)
        self.assertEqual(one.count, 0)
        self.assertFalse(one.is_locked())
        message.write(CONTENT, end=True)
        self.assertTrue(one.exchange.content() == CONTENT)
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*MORE)
    def test_content_around_limit(self, more):
        """The content ends at the limit, or a byte before or after it."""
        more = self.MORE[more]
        size = self.LIMIT + more
        rest = []

        def script(one, exchange):
            one.grant(1 << 40)
            self.assertEqual(one.until_end(), 0)
            rest.append(exchange.content())
            exchange.final(201)
        self.serve(script)
        self.assertStatuses(self.put(content=CONTENT[:size]), [], 201)
        self.assertEqual((self.lanes[0].count, len(rest[0])), (min(size, self.LIMIT), max(0, more)))
        self.assertTrue(self.lanes[0].content() + rest[0] == CONTENT[:size])

    def test_windows(self):
        """The limit lies within a window without the rest flag."""
        message, one = self.begin(len(CONTENT), limit=600_000)
        threading.Thread(target=message.write, args=(CONTENT, True)).start()
        self.assertEqual(one.until_end(widen=lambda count: one.widen(count + 600_000)), 0)
        self.assertEqual(one.count, self.LIMIT)
        self.assertTrue(one.content() + one.exchange.content() == CONTENT)
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)

    def test_limit_lowered(self):
        """prlimit sets the limit below the file's size during the upload."""
        message, one = self.begin(len(CONTENT))
        message.write(CONTENT[:500_000])
        self.until(lambda: len(one.content()) >= 500_000)
        self.limit(400_000)
        message.write(CONTENT[500_000:], end=True)
        self.assertEqual(one.until_end(), 0)
        self.assertTrue(one.content() == CONTENT[:500_000])
        self.assertTrue(one.content() + one.exchange.content() == CONTENT)
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*case.PROTOCOLS)
    def test_client_closes(self, protocol):
        """After the client closes, nginx writes the content that it has read, up to the limit."""
        self.limit(100_000)
        message, one = self.begin(len(CONTENT), protocol)
        message.write(CONTENT[:90_000])
        self.until(lambda: len(one.content()) >= 90_000)
        message.write(CONTENT[90_000:200_000])
        message.client.close()
        one.exchange.until_closed()
        self.assertTrue(one.content() == CONTENT[:100_000])


class Failures(LaneTestCase):
    def put_to(self, script):
        self.serve(script)
        return self.put()

    def test_no_room(self):
        place = os.path.join(self.folder, "full")
        os.mkdir(place)
        if os.geteuid() != 0 or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True).returncode:
            self.skipTest("cannot mount a file system")
        self.addCleanup(subprocess.run, ["umount", "-l", place])
        results = []

        def run(exchange):
            one = Lane(exchange, os.path.join(place, "file"))
            one.expect_offer()
            one.grant(1 << 40)
            results.append((one.until_end(), one.count, one.is_locked(), one.is_silent(0.2)))
            exchange.final(507)
        self.upstream.serve(run)
        self.assertStatuses(self.put(), [], 507)
        (why, count, is_locked, is_silent), = results
        self.assertEqual((why, is_locked, is_silent), (errno.ENOSPC, False, True))
        self.assertTrue(0 < count <= 1 << 20, count)

    @case.over("no_file", "wrong_size", "not_regular_file", "read_only")
    def test_unusable_grant(self, how):
        results = []

        def script(one, exchange):
            data = lane.record(lane.GRANT, offset=1 if how == "wrong_size" else 0, limit=1000)
            if how == "no_file":
                exchange.write(data)
            elif how == "not_regular_file":
                ends = os.pipe()
                one.pass_fds(data, [ends[1]])
                for end in ends:
                    os.close(end)
            else:
                fd = os.open(one.path, os.O_RDONLY if how == "read_only" else os.O_WRONLY | os.O_APPEND)
                one.pass_fds(data, [fd])
                os.close(fd)
            results.append(one.until_end())
            exchange.final(500)
        self.assertStatuses(self.put_to(script), [], 500)
        self.assertEqual(results, [errno.EBADF if how == "read_only" else errno.EINVAL])
        self.assertEqual(self.lanes[0].content(), b"")

    BAD = {
        "kind": lane.message(9),
        "version": lane.message(lane.DECLINE, version=2),
        "flags": lane.message(lane.DECLINE, flags=2),
        "short": lane.message(lane.DECLINE)[:-1],
        "long": lane.message(lane.DECLINE) + b"x",
        "empty": b"",
        "negative": lane.message(lane.DECLINE, limit=1 << 63),
        "window_before_grant": lane.message(lane.WINDOW, limit=5),
        "stop_before_grant": lane.message(lane.STOP),
    }

    @case.over(*BAD)
    def test_malformed(self, name):
        def script(one, exchange):
            exchange.write(fastcgi.record(lane.DATA, self.BAD[name]))
            exchange.until_closed()
            raise Disconnected
        self.assertStatuses(self.put_to(script), [], 502)

    @case.over("grant", "decline", "lower")
    def test_malformed_later(self, name):
        def script(one, exchange):
            one.grant(1000)
            if name == "grant":
                with open(one.path, "ab") as file:
                    one.pass_fds(lane.record(lane.GRANT, limit=2000), [file.fileno()])
            else:
                exchange.write(lane.record(lane.DECLINE) if name == "decline" else
                               lane.record(lane.WINDOW, limit=999))
            exchange.until_closed()
            raise Disconnected
        self.assertStatuses(self.put_to(script), [], 502)

    @case.over("two", "with_decline", "later")
    def test_unexpected_descriptors(self, how):
        def script(one, exchange):
            fds = [one.open(), os.open(one.path, os.O_RDONLY)]
            try:
                if how == "two":
                    one.pass_fds(lane.record(lane.GRANT, limit=5), fds)
                elif how == "with_decline":
                    one.pass_fds(lane.record(lane.DECLINE), fds[:1])
                else:
                    one.pass_fds(lane.record(lane.GRANT, limit=5), fds[:1])
                    one.pass_fds(lane.record(lane.WINDOW, limit=9), fds[1:])
            finally:
                for fd in fds:
                    os.close(fd)
            exchange.until_closed()
            raise Disconnected
        self.assertStatuses(self.put_to(script), [], 502)

    def test_message_without_offer(self):
        """A message without an offer is a 502."""
        message = self.connect().start("PUT", "/a", content=b"abc")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.write(lane.record(lane.DECLINE))
        self.assertStatuses(message, [], 502)


class Kept(LaneTestCase):
    http = "upstream kept { server %%UPSTREAM%%; keepalive 8; }"
    server = """fastcgi_keep_conn on;
        location / { fastcgi_pass kept; interim_responses 104; spool_receive %%RECEIVE%%; }"""

    @case.over(*case.PROTOCOLS)
    def test_kept(self, protocol):
        """After a lane, the connection serves ordinary requests and further lanes."""
        client = self.connect(protocol)
        message = client.start("PUT", "/a", length=len(CONTENT))
        exchange = self.upstream.accept()
        for number in range(3):
            one = self.lane(exchange)
            one.expect_offer()
            one.grant(1 << 40)
            message.write(CONTENT, end=True)
            one.until_end()
            exchange.content()
            exchange.whole(204)
            self.assertStatuses(message, [], 204)
            self.assertTrue(one.content() == CONTENT)
            message = client.start("PUT", "/b", content=b"little")
            exchange.following()
            self.assertEqual(exchange.content(), b"little")
            exchange.whole(204)
            self.assertStatuses(message, [], 204)
            message = client.start("PUT", "/a", length=len(CONTENT))
            exchange.following()
        exchange.close()
        self.assertEqual(message.finish()[1].status, 502)

    @case.over(*case.HTTP1)
    def test_rest_kept(self, protocol):
        """The end of content is sent once, even if part of the last buffer was written to the file."""
        content, client = CONTENT[:LARGE + 1000], self.connect(protocol)
        message = client.start("PUT", "/a", content=content)
        exchange = self.upstream.accept()
        for limit in (LARGE, 1, LARGE + 999):
            one = self.lane(exchange)
            one.expect_offer()
            one.grant(limit, rest=True)
            one.until_end()
            self.assertTrue(exchange.content() == content[limit:])
            exchange.whole(204)
            self.assertStatuses(message, [], 204)
            message = client.start("PUT", "/a", content=content)
            exchange.following()
        exchange.close()
        self.assertEqual(message.finish()[1].status, 502)


class NextUpstream(LaneTestCase):
    http = """upstream two { server unix:/nowhere/at/all; server %%UPSTREAM%%; }"""
    server = """location / { fastcgi_pass two; fastcgi_next_upstream error; spool_receive %%RECEIVE%%; }"""

    @case.over(*case.PROTOCOLS)
    def test_first_unreachable(self, protocol):
        for _ in range(2):
            self.upstream.reset()
            self.serve(take_all)
            self.assertStatuses(self.put(protocol), [], 201)
            self.assertTrue(self.lanes[-1].content() == CONTENT)
        # The messages about the unreachable server are expected.
        self.nginx._checked = len(self.nginx.read("error.log"))


def in_worker(*classes):
    """Add a copy of each class in which nginx's worker process writes instead of a thread."""
    for one in classes:
        name = one.__name__ + "InWorker"
        globals()[name] = type(name, (one,), {"receive": "worker", "__module__": __name__})


in_worker(Written, SmallBuffer, LargeBuffer, ShortWrites, WithoutInterims, Limits, SendTimeout, Slow, Ends,
          EndsOfLargeBuffer, Reload, WorkerKilled, FileSizeLimit, Failures, Kept, NextUpstream)
