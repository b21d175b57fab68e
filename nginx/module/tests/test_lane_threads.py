"""Content that a thread of nginx writes, while the write takes long and everything else goes on."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import unittest

import case
import http1
import options
import test_http3
import test_lane
from responder import Disconnected
from server import PLAIN
from test_lane import CONTENT

# Together they fit HTTP/2's window, so a client can send both before anything is written.
FIRST, MORE = 10_000, 50_000


class Threads(test_lane.Begun):
    server = """
        location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104 100; spool_receive %%RECEIVE%%; }
        location /free { return 200; }
    """

    @classmethod
    def setUpClass(cls):
        library = os.path.join(options.scratch, cls.__name__ + ".so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, os.path.join(options.HERE, "held_writes.c")],
                       check=True)
        if options.sanitized():
            asan = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True)
            library = asan.stdout.strip() + ":" + library
        cls.environment = {"LD_PRELOAD": library}
        super().setUpClass()

    def until(self, is_true, seconds=20, why=None):
        deadline = time.monotonic() + options.patience(seconds)
        while not is_true():
            self.assertLess(time.monotonic(), deadline, why)
            time.sleep(0.002)

    def hold(self, one):
        """From now on a write to its file, and closing it, takes until release()."""
        open(one.path + ".held", "w").close()
        self.addCleanup(self.release, one)

    def release(self, one):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(one.path + ".held")

    def is_stuck(self, one):
        return os.path.exists(one.path + ".stuck")

    def until_stuck(self, one):
        self.until(lambda: self.is_stuck(one), why="no write has begun")

    def stuck(self, protocol=PLAIN, more=MORE, **options):
        """A message whose second part is being written, which takes until release()."""
        message, one = self.begin(FIRST, protocol, **options)
        self.hold(one)
        message.write(CONTENT[FIRST:FIRST + more])
        self.until_stuck(one)
        return message, one

    def check_free(self, protocol=PLAIN):
        """The worker process serves others meanwhile."""
        started = time.monotonic()
        self.assertStatuses(self.connect(protocol).start("GET", "/free"), [], 200)
        self.assertLess(time.monotonic() - started, options.patience(1))

    def check_closed(self, one, size=FIRST + MORE):
        """The connection is closed after the file, which has that much content or, with None, any first part."""
        self.assertTrue(one.is_locked())
        self.assertTrue(one.is_silent(0.1), "the connection is closed, or something was said")
        self.check_free()
        self.release(one)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())
        if size is None:
            self.assertTrue(CONTENT.startswith(one.content()))
        else:
            self.assertTrue(one.content() == CONTENT[:size], len(one.content()))

    def until_over(self, one):
        """The request ends, whether nginx has noticed that the client is gone or is told so by the response."""
        with contextlib.suppress(Disconnected):
            one.until_end()
            one.exchange.final(400)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())


class Held(Threads):
    @case.over(*case.PROTOCOLS)
    def test_goes_on(self, protocol):
        message, one = self.stuck(protocol)
        self.check_free(protocol)
        self.assertEqual(len(one.content()), FIRST)
        self.release(one)
        message.write(CONTENT[FIRST + MORE:], end=True)
        self.assertEqual(one.until_end(), 0)
        one.exchange.content()
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)
        self.assertTrue(one.content() == CONTENT)

    @case.over(*case.PROTOCOLS)
    def test_client_goes(self, protocol):
        message, one = self.stuck(protocol)
        message.client.close()
        self.check_closed(one)

    @case.over(*case.HTTP1)
    def test_client_goes_with_more_behind(self, protocol):
        message, one = self.stuck(protocol)
        message.write(CONTENT[FIRST + MORE:FIRST + 2 * MORE])
        message.client.sock.shutdown(socket.SHUT_WR)
        self.check_closed(one, FIRST + 2 * MORE)

    @case.over(*case.HTTP2)
    def test_client_cancels(self, protocol):
        message, one = self.stuck(protocol)
        message.cancel()
        self.assertStatuses(message.client.start("GET", "/free"), [], 200)
        self.check_closed(one)

    @case.over(*case.HTTP2)
    def test_client_cancels_and_goes(self, protocol):
        message, one = self.stuck(protocol)
        message.cancel()
        self.assertStatuses(message.client.start("GET", "/free"), [], 200)
        message.client.reset()
        self.check_closed(one)

    @case.over(*case.PROTOCOLS)
    def test_client_resets(self, protocol):
        message, one = self.stuck(protocol)
        message.client.reset()
        self.check_closed(one, None)

    @case.over(*case.PROTOCOLS)
    def test_responder_goes(self, protocol):
        message, one = self.stuck(protocol)
        one.exchange.close()
        self.assertEqual(message.finish()[1].status, 502)
        self.assertTrue(one.is_locked())
        self.check_free()
        self.release(one)

    @case.over(*case.PROTOCOLS)
    def test_responder_and_client_go(self, protocol):
        message, one = self.stuck(protocol)
        one.exchange.close()
        self.assertEqual(message.finish()[1].status, 502)
        message.client.reset()
        self.check_free()
        self.assertTrue(one.is_locked())
        self.release(one)

    @case.over(*case.PROTOCOLS)
    def test_stop(self, protocol):
        message, one = self.stuck(protocol)
        one.stop()
        self.assertTrue(one.is_silent(0.2))
        self.assertTrue(one.is_locked())
        self.release(one)
        self.assertEqual(one.until_end(), 0)
        self.assertFalse(one.is_locked())
        self.assertEqual(len(one.content()), one.count)
        one.exchange.final(409)
        self.assertEqual(message.finish()[1].status, 409)

    def test_stop_and_client_goes(self):
        message, one = self.stuck()
        one.stop()
        message.client.reset()
        self.check_free()
        self.assertTrue(one.is_locked())
        self.release(one)
        self.until_over(one)
        self.assertTrue(CONTENT.startswith(one.content()))

    def test_stop_and_responder_goes(self):
        message, one = self.stuck()
        one.stop()
        one.exchange.close()
        self.assertEqual(message.finish()[1].status, 502)
        self.assertTrue(one.is_locked())
        self.release(one)

    @case.over(*case.PROTOCOLS)
    def test_early_response(self, protocol):
        """The client receives it at once."""
        message, one = self.stuck(protocol)
        one.exchange.final(413)
        self.assertEqual(message.finish()[1].status, 413)
        self.assertTrue(one.is_locked())
        self.check_free()
        self.release(one)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())

    @case.over("1", "50000", str(1 << 40))
    def test_window(self, limit):
        """The limit is raised during a write."""
        message = self.connect().start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        self.hold(one)
        one.grant(1)
        message.write(CONTENT[:FIRST + MORE])
        self.until_stuck(one)
        one.widen(int(limit))
        self.assertTrue(one.is_silent(0.1))
        self.release(one)
        if limit != str(1 << 40):
            one.until_count(int(limit))
        one.widen(1 << 40)
        message.write(CONTENT[FIRST + MORE:], end=True)
        self.assertEqual(one.until_end(), 0)
        one.exchange.content()
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)
        self.assertTrue(one.content() == CONTENT)

    def test_granted_and_gone(self):
        """The responder goes as soon as it has granted; the file is held from the beginning."""
        for _ in range(10):
            message = self.connect().start("PUT", "/a", length=len(CONTENT))
            one = self.lane(self.upstream.accept())
            one.expect_offer()
            self.hold(one)
            one.grant(1 << 40)
            message.write(CONTENT[:FIRST])
            one.exchange.close()
            self.assertEqual(message.finish()[1].status, 502)
            self.release(one)

    def test_passed_and_not_granted(self):
        """A descriptor that came without a whole grant is closed by a thread as well."""
        message = self.connect().start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        self.hold(one)
        fd = one.open()
        one.pass_fds(b"\x01", [fd])
        os.close(fd)
        self.until(self.open_files)
        one.exchange.close()
        self.assertEqual(message.finish()[1].status, 502)
        self.until_stuck(one)
        self.check_free()
        self.release(one)


class HeldWhole(Threads):
    """A buffer for all content: the request is read to its end while its first part is written."""

    server = """
        client_body_buffer_size 4m;
        location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104 100; spool_receive %%RECEIVE%%; }
        location /free { return 200; }
    """

    def whole(self, protocol):
        message, one = self.stuck(protocol, more=len(CONTENT) - FIRST - 1)
        message.write(CONTENT[-1:], end=True)
        return message, one

    @case.over(*case.PROTOCOLS)
    def test_response_and_next_request(self, protocol):
        for number in range(3):
            message, one = self.whole(protocol)
            one.exchange.final(200, content=b"early")
            early = message.finish()[1]
            self.assertEqual((early.status, early.content), (200, b"early"))
            following = message.client.start("GET", "/free")
            self.assertTrue(one.is_locked())
            if number == 1:
                message.client.close()
            self.check_free()
            self.release(one)
            one.exchange.until_closed()
            self.assertFalse(one.is_locked())
            self.assertTrue(CONTENT.startswith(one.content()))
            if number != 1:
                # The connection is closed instead if content was left unread.
                with contextlib.suppress(http1.Closed):
                    self.assertEqual(following.finish()[1].status, 200)

    @case.over(*case.PROTOCOLS)
    def test_client_goes(self, protocol):
        message, one = self.whole(protocol)
        message.client.sock.shutdown(socket.SHUT_WR)
        self.assertTrue(one.is_silent(0.1))
        self.release(one)
        self.until_over(one)
        self.assertTrue(one.content() == CONTENT, len(one.content()))


class Elsewhere(Threads):
    """The request goes on in another location while its file is still being written."""

    server = """
        fastcgi_send_timeout 1s;
        location / { fastcgi_pass %%UPSTREAM%%; spool_receive %%RECEIVE%%; error_page 502 504 = @gone; }
        location @gone { fastcgi_pass %%UPSTREAM2%%; spool_receive %%RECEIVE%%; }
        location /free { return 200; }
    """
    receive = "threads"
    upstreams = 2

    @case.over(*case.PROTOCOLS)
    def test_responder_goes(self, protocol):
        message, one = self.stuck(protocol)
        one.exchange.close()
        other = self.responders[1].accept()
        self.assertTrue(one.is_locked())
        other.final(503, content=b"gone")
        self.assertEqual(message.finish()[1].status, 503)
        self.release(one)

    @case.over(*case.PROTOCOLS)
    def test_released_amid_the_other(self, protocol):
        message, one = self.stuck(protocol)
        one.exchange.close()
        other = self.responders[1].accept()
        self.release(one)
        self.until(lambda: not one.is_locked())
        other.final(503, content=b"gone")
        self.assertEqual(message.finish()[1].status, 503)

    @case.over(*case.PROTOCOLS)
    def test_client_goes_amid_the_other(self, protocol):
        message, one = self.stuck(protocol)
        one.exchange.close()
        other = self.responders[1].accept()
        message.client.reset()
        self.assertTrue(one.is_locked())
        other.until_closed()
        self.check_free()
        self.release(one)

    @case.over(*case.PROTOCOLS)
    def test_send_timeout(self, protocol):
        message, one = self.stuck(protocol)
        other = self.responders[1].accept()
        other.final(503)
        self.assertEqual(message.finish()[1].status, 503)
        self.check_closed(one, None)


class BodyTimeout(Threads):
    server = """
        client_body_timeout 1s;
        location / { fastcgi_pass %%UPSTREAM%%; spool_receive %%RECEIVE%%; }
        location /free { return 200; }
    """
    receive = "threads=named"
    main = "thread_pool named threads=1;"

    @case.over(*case.PROTOCOLS)
    def test_client_is_silent(self, protocol):
        _, one = self.stuck(protocol)
        self.assertTrue(one.is_silent(1.5), "something was said before the file was closed")
        self.check_closed(one)


del Threads
