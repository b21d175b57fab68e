"""Content that a thread of nginx writes: events during a slow write."""

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import subprocess
import threading
import time

import case
import options
import test_http3
import test_lane
from lab import http1
from responder import Disconnected
from server import PLAIN
from test_lane import CONTENT

# Their sum fits HTTP/2's window, so a client can send both before nginx writes either.
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

    def hold(self, one):
        """Makes writes to the file, and its close, wait for release()."""
        open(one.path + ".held", "w").close()
        self.addCleanup(self.release, one)

    def release(self, one):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(one.path + ".held")

    def is_stuck(self, one):
        return os.path.exists(one.path + ".stuck")

    def until_stuck(self, one):
        self.until(lambda: self.is_stuck(one), why="no write has begun")

    def stuck(self, protocol=PLAIN, more=MORE, start=b""):
        """Returns a request and its lane. The write of its second part waits for release()."""
        message, one = self.begin(FIRST, protocol, start)
        self.hold(one)
        message.write(CONTENT[FIRST:FIRST + more])
        self.until_stuck(one)
        return message, one

    def until_replaced(self, worker):
        """Waits until another worker process has replaced this one."""
        self.until(lambda: self.nginx.workers() and worker not in self.nginx.workers(), 30)

    def check_free(self, protocol=PLAIN):
        """The worker process serves other requests."""
        started = time.monotonic()
        self.assertStatuses(self.connect(protocol).start("GET", "/free"), [], 200)
        self.assertLess(time.monotonic() - started, options.patience(1))

    def check_closed(self, one, size=FIRST + MORE):
        """nginx closes the file, then the connection. The file has `size` bytes of content; None accepts any prefix."""
        self.assertTrue(one.is_locked())
        self.assertTrue(one.is_silent(0.1), "nginx sent a message or closed the connection")
        self.check_free()
        self.release(one)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())
        if size is None:
            self.assertTrue(CONTENT.startswith(one.content()))
        else:
            self.assertTrue(one.content() == CONTENT[:size], len(one.content()))

    def until_request_ends(self, one):
        """Waits for the end of the request: nginx detects that the client has closed, or receives a response."""
        with contextlib.suppress(Disconnected):
            one.until_end()
            one.exchange.final(400)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())

    def check_continues(self, message, one):
        """The held write returns, and nginx writes the rest of the content."""
        self.assertEqual(len(one.content()), FIRST)
        self.release(one)
        self.finish(message, one, FIRST + MORE)


class Held(Threads):
    @case.over(*case.PROTOCOLS)
    def test_continues(self, protocol):
        message, one = self.stuck(protocol)
        self.check_free(protocol)
        self.check_continues(message, one)

    @case.over(*case.PROTOCOLS)
    def test_client_closes(self, protocol):
        message, one = self.stuck(protocol)
        message.client.close()
        self.check_closed(one)

    @case.over(*case.HTTP1)
    def test_client_sends_more_and_closes(self, protocol):
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
    def test_client_cancels_and_resets(self, protocol):
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
    def test_responder_closes(self, protocol):
        message, one = self.stuck(protocol)
        one.exchange.close()
        self.assertEqual(message.finish()[1].status, 502)
        self.assertTrue(one.is_locked())
        self.check_free()
        self.release(one)

    @case.over(*case.PROTOCOLS)
    def test_responder_closes_and_client_resets(self, protocol):
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

    def test_stop_and_client_resets(self):
        message, one = self.stuck()
        one.stop()
        message.client.reset()
        self.check_free()
        self.assertTrue(one.is_locked())
        self.release(one)
        self.until_request_ends(one)
        self.assertTrue(CONTENT.startswith(one.content()))

    def test_stop_and_responder_closes(self):
        message, one = self.stuck()
        one.stop()
        one.exchange.close()
        self.assertEqual(message.finish()[1].status, 502)
        self.assertTrue(one.is_locked())
        self.release(one)

    @case.over(*case.PROTOCOLS)
    def test_early_response(self, protocol):
        """The client receives the response at once."""
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
        self.finish(message, one, FIRST + MORE)

    def test_responder_closes_after_grant(self):
        """The responder closes immediately after its grant. The file is held from the beginning."""
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

    def test_descriptor_without_grant(self):
        """A thread also closes a descriptor that nginx received without a complete grant."""
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

    @case.over(*case.PROTOCOLS)
    def test_internal_redirect(self, protocol):
        """The client receives the static file at once. The lane ends later, independently of the request."""
        message, one = self.stuck(protocol)
        one.exchange.final(200, "X-Accel-Redirect: /static")
        self.assertEqual(message.finish()[1].content, b"a static file\n")
        self.assertTrue(one.is_locked())
        self.check_free()
        self.release(one)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())

    @case.over(*case.PROTOCOLS)
    def test_file_size_limit_lowered(self, protocol):
        """RLIMIT_FSIZE prevents a write that has already begun: nginx sends the content to the responder."""
        size = 1 << 20      # larger than nginx's log files
        message, one = self.stuck(protocol, start=bytes(size))
        worker, = self.nginx.workers()
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (size + FIRST, resource.RLIM_INFINITY))
        self.addCleanup(resource.prlimit, worker, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        self.release(one)
        self.assertEqual(one.until_end(), 0)
        self.assertEqual((one.count, one.is_locked()), (FIRST, False))
        rest = threading.Thread(target=message.write, args=(CONTENT[FIRST + MORE:], True))
        rest.start()
        self.assertTrue(one.content() + one.exchange.content() == CONTENT)
        rest.join()
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)
        self.assertEqual(self.nginx.workers(), [worker])


class Processes(Threads):
    """nginx's processes end during a write."""

    def check_worker_waits(self, worker, one, message):
        """A worker process that shuts down completes its request first."""
        self.assertTrue(one.is_silent(0.3))
        self.assertTrue(self.is_alive(worker), "the worker process ended before it closed the file")
        self.check_continues(message, one)
        self.until_replaced(worker)

    def check_worker_waits_for_file(self, worker, one, message):
        """A worker process whose client has closed ends after it has closed the file."""
        message.client.close()
        self.assertTrue(one.is_silent(0.3))
        self.assertTrue(self.is_alive(worker), "the worker process ended before it closed the file")
        self.assertTrue(one.is_locked())
        self.release(one)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())
        self.assertTrue(one.content() == CONTENT[:FIRST + MORE])
        self.until_replaced(worker)

    def is_alive(self, worker):
        return worker in self.nginx.workers()

    @case.over("continues", "client_closes")
    def test_reload(self, how):
        message, one = self.stuck()
        worker, = self.nginx.workers()
        self.nginx.process.send_signal(signal.SIGHUP)
        self.until(lambda: len(self.nginx.workers()) == 2)
        self.check_free()
        check = self.check_worker_waits if how == "continues" else self.check_worker_waits_for_file
        check(worker, one, message)

    @case.over("continues", "client_closes")
    def test_quit(self, how):
        message, one = self.stuck()
        worker, = self.nginx.workers()
        os.kill(worker, signal.SIGQUIT)
        check = self.check_worker_waits if how == "continues" else self.check_worker_waits_for_file
        check(worker, one, message)

    @case.over("continues", "client_closes")
    def test_terminate(self, how):
        """After SIGTERM a worker process ends as soon as the write returns, and does not write again."""
        message, one = self.stuck()
        worker, = self.nginx.workers()
        if how == "client_closes":
            message.client.close()
            self.check_free()
        os.kill(worker, signal.SIGTERM)
        self.assertTrue(one.is_silent(0.3), "nginx sent a message or closed the connection before the file")
        self.assertTrue(one.is_locked())
        self.assertTrue(self.is_alive(worker))
        self.release(one)
        started = time.monotonic()
        self.until_replaced(worker)
        self.assertLess(time.monotonic() - started, options.patience(1))
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())
        self.assertGreaterEqual(len(one.content()), FIRST)
        self.assertTrue(CONTENT[:FIRST + MORE].startswith(one.content()))

    def test_kill(self):
        if options.valgrind:
            self.skipTest("memcheck cannot detect the end of a killed process")
        _, one = self.stuck()
        worker, = self.nginx.workers()
        os.kill(worker, signal.SIGKILL)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())
        self.release(one)
        self.until(lambda: "on signal 9" in self.logged() and self.nginx.workers())
        self.check_free()
        self.assertTrue(one.content() == CONTENT[:FIRST])
        # The alert about the signal is expected.
        self.nginx._checked = len(self.nginx.read("error.log"))


class OneThread(Threads):
    """A pool whose only thread waits in a held write."""

    receive = "threads=one"
    main = "thread_pool one threads=1;"

    def stuck_and_queued(self, protocol):
        """Returns a request whose write has begun, and another whose write is queued, each with its lane."""
        other, waiting = self.begin(FIRST, protocol)
        message, one = self.stuck(protocol)
        self.hold(waiting)
        other.write(CONTENT[FIRST:FIRST + MORE])
        return message, one, other, waiting

    @case.over(*case.PROTOCOLS)
    def test_queued(self, protocol):
        message, one, other, waiting = self.stuck_and_queued(protocol)
        self.check_free(protocol)
        other.client.close()
        self.assertTrue(waiting.is_silent(0.1))
        self.assertTrue(waiting.is_locked())
        self.release(one)
        self.until_stuck(waiting)
        self.check_free(protocol)
        message.write(CONTENT[FIRST + MORE:FIRST + MORE + 1])
        self.check_closed(waiting)
        self.until(lambda: one.content() == CONTENT[:FIRST + MORE + 1])
        message.client.close()
        one.exchange.until_closed()

    def test_reset_while_queued(self):
        """Both clients reset before the queued write begins."""
        message, one, other, waiting = self.stuck_and_queued(PLAIN)
        other.client.reset()
        message.client.reset()
        self.check_free()
        self.assertTrue(one.is_locked() and waiting.is_locked())
        self.release(one)
        self.release(waiting)
        one.exchange.until_closed()
        waiting.exchange.until_closed()


class ShortQueue(OneThread):
    """The pool's queue has room for one write."""

    main = "thread_pool one threads=1 max_queue=1;"
    test_queued_h1 = test_queued_h1s = test_queued_h2 = test_queued_h2c = test_reset_while_queued = None

    def test_queue_full(self):
        """A write that cannot be queued ends the lane with an error."""
        third, last = self.begin(FIRST)
        message, one, other, waiting = self.stuck_and_queued(PLAIN)
        # When nginx has served a later request, the second write is in the queue.
        self.check_free()
        third.write(CONTENT[FIRST:FIRST + MORE])
        self.assertEqual(last.until_end(), errno.EAGAIN)
        self.assertFalse(last.is_locked())
        self.assertTrue(last.content() == CONTENT[:FIRST])
        last.exchange.final(503)
        self.assertEqual(third.finish()[1].status, 503)
        self.assertIn("queue overflow", self.logged())
        for held in one, waiting:
            held.exchange.close()
            self.release(held)


class Places(Threads):
    """Which directive applies. A held write blocks the worker process unless a thread writes."""

    server = """
        location /free { return 200; }
        location / { fastcgi_pass %%UPSTREAM%%; }
        location /worker { fastcgi_pass %%UPSTREAM%%; spool_receive worker;
            location /worker/inherited { fastcgi_pass %%UPSTREAM%%; }
            location /worker/on { fastcgi_pass %%UPSTREAM%%; spool_receive on; }
        }
        location /on_worker { fastcgi_pass %%UPSTREAM%%; spool_receive on; spool_receive worker; }
        location /worker_on { fastcgi_pass %%UPSTREAM%%; spool_receive worker; spool_receive On; }
        location /worker_threads { fastcgi_pass %%UPSTREAM%%; spool_receive worker; spool_receive threads; }
        location /named { fastcgi_pass %%UPSTREAM%%; spool_receive threads=named; }
    """
    http = "spool_receive on;"
    main = "thread_pool named threads=1; thread_pool spool_receive threads=1;"

    @case.over("/", "/worker/on", "/worker_on", "/worker_threads", "/named",
               "/worker", "/worker/inherited", "/on_worker")
    def test_place(self, path):
        message = self.connect().start("PUT", path, length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        self.hold(one)
        one.grant(1 << 40)
        message.write(CONTENT[:FIRST])
        self.until_stuck(one)
        other = self.connect().start("GET", "/free")
        if path in ("/worker", "/worker/inherited", "/on_worker"):
            self.assertFalse(select.select([other.client.sock], [], [], 0.3)[0], "the worker process was not blocked")
        else:
            self.assertStatuses(other, [], 200)
        self.release(one)
        message.client.close()
        one.exchange.until_closed()


class Filtered(Threads):
    """A header filter replaces the final response with an error page, so nginx clears the module's context."""

    http = """
        fastcgi_cache_path cache keys_zone=cache:1m;
        fastcgi_cache_key $request_uri$arg_n;
    """
    server = """
        fastcgi_buffering on;
        fastcgi_cache cache;
        fastcgi_cache_methods POST;
        fastcgi_cache_valid 200 1m;
        location / { fastcgi_pass %%UPSTREAM%%; spool_receive %%RECEIVE%%; }
        location /elsewhere { fastcgi_pass %%UPSTREAM%%; spool_receive %%RECEIVE%%; error_page 412 = @elsewhere; }
        location @elsewhere { fastcgi_cache off; fastcgi_pass %%UPSTREAM2%%; spool_receive %%RECEIVE%%; }
        location /free { return 200; }
    """
    upstreams = 2

    def begin_held(self, path):
        message = self.connect().start("POST", path, 'If-Match: "a"', length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        one.grant(1 << 40)
        self.hold(one)
        message.write(CONTENT[:FIRST])
        self.until_stuck(one)
        one.exchange.final(200, 'ETag: "b"')
        return message, one

    def test_error_page(self):
        message, one = self.begin_held("/page")
        self.assertEqual(message.finish()[1].status, 412)
        self.check_free()
        self.assertTrue(one.is_locked())
        self.release(one)

    def test_error_page_in_other_location(self):
        message, one = self.begin_held("/elsewhere")
        other = self.responders[1].accept()
        self.check_free()
        self.assertTrue(one.is_locked())
        self.release(one)
        self.until(lambda: not one.is_locked())
        other.final(201)
        message.client.close()


class Subrequest(Threads):
    """The client resets while nginx fetches a part of the error page."""

    server = """
        location / { fastcgi_pass %%UPSTREAM%%; spool_receive %%RECEIVE%%; error_page 502 = @gone; }
        location @gone { ssi on; fastcgi_pass %%UPSTREAM2%%; }
        location /part { fastcgi_pass %%UPSTREAM2%%; }
        location /free { return 200; }
    """
    upstreams = 2

    @case.over(*case.PROTOCOLS)
    def test_client_resets(self, protocol):
        message, one = self.stuck(protocol)
        one.exchange.close()
        page = self.responders[1].accept()
        page.final(503, "Content-Type: text/html", content=b'<!--# include virtual="/part" -->')
        part = self.responders[1].accept()
        message.client.reset()
        part.until_closed()
        self.check_free()
        self.assertTrue(one.is_locked())
        self.release(one)
        self.until(lambda: not one.is_locked())


class HTTP3(test_http3.QUICTestCase, Threads):
    def connect(self, protocol=None):
        self.client = test_http3.QUICTestCase.connect(self)
        return self.client

    def until(self, is_true, seconds=20, why=None):
        self.client.pump_until(is_true, seconds)

    def check_free(self, protocol=None):
        client = self.client
        super().check_free()
        self.client = client

    def begin(self, sent, protocol=None, start=b""):
        message = self.connect().start("PUT", "/a", length=len(CONTENT))
        one = self.lane(self.upstream.accept())
        one.expect_offer()
        one.grant(1 << 40)
        message.write(CONTENT[:sent])
        self.until(lambda: len(one.content()) == sent)
        return message, one

    def test_continues(self):
        message, one = self.stuck()
        self.check_free()
        self.release(one)
        message.write(CONTENT[FIRST + MORE:], end=True)
        self.until(lambda: len(one.content()) == len(CONTENT))
        self.assertEqual(one.until_end(), 0)
        one.exchange.content()
        one.exchange.final(201)
        self.assertStatuses(message, [], 201)
        self.assertTrue(one.content() == CONTENT)

    def test_client_cancels(self):
        message, one = self.stuck()
        message.cancel()
        self.assertStatuses(message.client.start("GET", "/free"), [], 200)
        self.check_closed(one, None)

    def test_client_closes(self):
        message, one = self.stuck()
        message.client.close()
        self.check_closed(one, None)

    def test_client_cancels_and_closes(self):
        message, one = self.stuck()
        message.cancel()
        self.assertStatuses(message.client.start("GET", "/free"), [], 200)
        message.client.close()
        self.check_closed(one, None)

    def check_status(self, message, status):
        """The client receives the response at once, but nginx ends the stream only when it frees the request."""
        self.until(lambda: message.responses)
        self.assertEqual(message.responses[0].status, status)
        self.assertFalse(message.responses[0].complete)

    def test_responder_closes(self):
        message, one = self.stuck()
        one.exchange.close()
        self.check_status(message, 502)
        self.assertTrue(one.is_locked())
        self.check_free()
        self.release(one)
        self.assertEqual(message.finish()[1].status, 502)

    def test_responder_closes_then_client(self):
        message, one = self.stuck()
        one.exchange.close()
        self.check_status(message, 502)
        message.client.close()
        self.check_free()
        self.assertTrue(one.is_locked())
        self.release(one)

    def test_early_response(self):
        message, one = self.stuck()
        one.exchange.final(413)
        self.check_status(message, 413)
        self.check_free()
        self.assertTrue(one.is_locked())
        self.release(one)
        one.exchange.until_closed()
        self.assertEqual(message.finish()[1].status, 413)

    def test_stop(self):
        message, one = self.stuck()
        one.stop()
        self.assertTrue(one.is_silent(0.2))
        self.release(one)
        self.assertEqual(one.until_end(), 0)
        self.assertFalse(one.is_locked())
        one.exchange.final(409)
        self.assertEqual(message.finish()[1].status, 409)


class WholeContent(Threads):
    """nginx's buffer holds all content, so it reads the complete request while it writes the first part."""

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
                # nginx closes the connection instead if it has not read all content.
                with contextlib.suppress(http1.Closed):
                    self.assertEqual(following.finish()[1].status, 200)

    @case.over(*case.PROTOCOLS)
    def test_client_closes(self, protocol):
        message, one = self.whole(protocol)
        message.client.sock.shutdown(socket.SHUT_WR)
        self.assertTrue(one.is_silent(0.1))
        self.release(one)
        self.until_request_ends(one)
        self.assertTrue(one.content() == CONTENT, len(one.content()))


class OtherLocation(Threads):
    """The request continues in another location during the write."""

    server = """
        location / { fastcgi_pass %%UPSTREAM%%; spool_receive %%RECEIVE%%; error_page 502 504 = @gone; }
        location @gone { fastcgi_pass %%UPSTREAM2%%; spool_receive %%RECEIVE%%; }
        location /free { return 200; }
    """
    receive = "threads"
    upstreams = 2

    @case.over(*case.PROTOCOLS)
    def test_responder_closes(self, protocol):
        message, one = self.stuck(protocol)
        one.exchange.close()
        other = self.responders[1].accept()
        self.assertTrue(one.is_locked())
        other.final(503, content=b"gone")
        self.assertEqual(message.finish()[1].status, 503)
        self.release(one)

    @case.over(*case.PROTOCOLS)
    def test_write_returns_before_response(self, protocol):
        message, one = self.stuck(protocol)
        one.exchange.close()
        other = self.responders[1].accept()
        self.release(one)
        self.until(lambda: not one.is_locked())
        other.final(503, content=b"gone")
        self.assertEqual(message.finish()[1].status, 503)

    @case.over(*case.PROTOCOLS)
    def test_client_resets(self, protocol):
        message, one = self.stuck(protocol)
        one.exchange.close()
        other = self.responders[1].accept()
        message.client.reset()
        self.assertTrue(one.is_locked())
        other.until_closed()
        self.check_free()
        self.release(one)


class SendTimeout(Threads):
    """The write takes longer than fastcgi_send_timeout, so the request continues in another location."""

    server = """
        fastcgi_send_timeout 2s;
        location / { fastcgi_pass %%UPSTREAM%%; spool_receive %%RECEIVE%%; error_page 504 = @gone; }
        location @gone { fastcgi_pass %%UPSTREAM2%%; spool_receive %%RECEIVE%%; }
        location /free { return 200; }
    """
    upstreams = 2

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
    def test_client_sends_nothing(self, protocol):
        _, one = self.stuck(protocol)
        self.assertTrue(one.is_silent(1.5), "nginx sent a message or closed the connection before the file")
        self.check_closed(one)


del Threads
