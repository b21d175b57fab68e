"""Content that a thread of nginx writes, while the write takes long and everything else goes on."""

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

    def stuck(self, protocol=PLAIN, more=MORE, start=b""):
        """A message whose second part is being written, which takes until release()."""
        message, one = self.begin(FIRST, protocol, start)
        self.hold(one)
        message.write(CONTENT[FIRST:FIRST + more])
        self.until_stuck(one)
        return message, one

    def until_replaced(self, worker):
        """Until another worker process has taken the place of this one."""
        self.until(lambda: self.nginx.workers() and worker not in self.nginx.workers(), 30)

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

    def check_goes_on(self, message, one):
        """The held write returns, and the rest of the content follows it."""
        self.assertEqual(len(one.content()), FIRST)
        self.release(one)
        self.finish(message, one, FIRST + MORE)


class Held(Threads):
    @case.over(*case.PROTOCOLS)
    def test_goes_on(self, protocol):
        message, one = self.stuck(protocol)
        self.check_free(protocol)
        self.check_goes_on(message, one)

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
        self.finish(message, one, FIRST + MORE)

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

    @case.over(*case.PROTOCOLS)
    def test_internal_redirect(self, protocol):
        """The client gets a file at once, and the lane ends behind the request's back."""
        message, one = self.stuck(protocol)
        one.exchange.final(200, "X-Accel-Redirect: /static")
        self.assertEqual(message.finish()[1].content, b"a static file\n")
        self.assertTrue(one.is_locked())
        self.check_free()
        self.release(one)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())

    @case.over(*case.PROTOCOLS)
    def test_limit_of_files_lowered(self, protocol):
        """RLIMIT_FSIZE forbids a write that a thread has begun already: the content comes to the responder."""
        size = 1 << 20      # more than nginx's log files have
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
    """nginx's processes end while a write is under way."""

    def check_worker_waits(self, worker, one, message):
        """A worker process that shuts down serves its request to the end."""
        self.assertTrue(one.is_silent(0.3))
        self.assertTrue(self.is_alive(worker), "it has ended before its file was closed")
        self.check_goes_on(message, one)
        self.until_replaced(worker)

    def check_worker_waits_for_file(self, worker, one, message):
        """It ends after the file is closed, if nothing else of the request is left."""
        message.client.close()
        self.assertTrue(one.is_silent(0.3))
        self.assertTrue(self.is_alive(worker), "it has ended before its file was closed")
        self.assertTrue(one.is_locked())
        self.release(one)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())
        self.assertTrue(one.content() == CONTENT[:FIRST + MORE])
        self.until_replaced(worker)

    def is_alive(self, worker):
        return worker in self.nginx.workers()

    @case.over("goes_on", "client_goes")
    def test_reload(self, how):
        message, one = self.stuck()
        worker, = self.nginx.workers()
        self.nginx.process.send_signal(signal.SIGHUP)
        self.until(lambda: len(self.nginx.workers()) == 2)
        self.check_free()
        check = self.check_worker_waits if how == "goes_on" else self.check_worker_waits_for_file
        check(worker, one, message)

    @case.over("goes_on", "client_goes")
    def test_quit(self, how):
        message, one = self.stuck()
        worker, = self.nginx.workers()
        os.kill(worker, signal.SIGQUIT)
        check = self.check_worker_waits if how == "goes_on" else self.check_worker_waits_for_file
        check(worker, one, message)

    @case.over("goes_on", "client_goes")
    def test_terminate(self, how):
        """After TERM a worker process ends as soon as the write returns, and writes no more."""
        message, one = self.stuck()
        worker, = self.nginx.workers()
        if how == "client_goes":
            message.client.close()
            self.check_free()
        os.kill(worker, signal.SIGTERM)
        self.assertTrue(one.is_silent(0.3), "the connection is closed before the file")
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
            self.skipTest("memcheck does not see the end of a process that is killed")
        _, one = self.stuck()
        worker, = self.nginx.workers()
        os.kill(worker, signal.SIGKILL)
        one.exchange.until_closed()
        self.assertFalse(one.is_locked())
        self.release(one)
        self.until(lambda: "on signal 9" in self.logged() and self.nginx.workers())
        self.check_free()
        self.assertTrue(one.content() == CONTENT[:FIRST])
        # It was asked for.
        self.nginx._checked = len(self.nginx.read("error.log"))


class OneThread(Threads):
    """A pool whose only thread is stalled."""

    receive = "threads=one"
    main = "thread_pool one threads=1;"

    def stuck_and_queued(self, protocol):
        """A message whose write has begun, and another whose write waits for the thread."""
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

    def test_queued_and_reset(self):
        """A request whose write has not begun goes away in the meantime."""
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
    """The pool's queue takes one write."""

    main = "thread_pool one threads=1 max_queue=1;"
    test_queued_h1 = test_queued_h1s = test_queued_h2 = test_queued_h2c = test_queued_and_reset = None

    def test_queue_is_full(self):
        """A write that cannot be queued ends the lane with an error."""
        third, last = self.begin(FIRST)
        message, one, other, waiting = self.stuck_and_queued(PLAIN)
        # The second has been queued when a later request is served.
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
    """Which of the directives is used, told by whether a stalled write stalls the worker process."""

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
            self.assertFalse(select.select([other.client.sock], [], [], 0.3)[0], "a thread writes")
        else:
            self.assertStatuses(other, [], 200)
        self.release(one)
        message.client.close()
        one.exchange.until_closed()


class Filtered(Threads):
    """A header filter replaces the final response by an error page, so nginx clears the context of the request."""

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

    def test_elsewhere(self):
        message, one = self.begin_held("/elsewhere")
        other = self.responders[1].accept()
        self.check_free()
        self.assertTrue(one.is_locked())
        self.release(one)
        self.until(lambda: not one.is_locked())
        other.final(201)
        message.client.close()


class Subrequest(Threads):
    """The client goes while a part of the error page is being fetched."""

    server = """
        location / { fastcgi_pass %%UPSTREAM%%; spool_receive %%RECEIVE%%; error_page 502 = @gone; }
        location @gone { ssi on; fastcgi_pass %%UPSTREAM2%%; }
        location /part { fastcgi_pass %%UPSTREAM2%%; }
        location /free { return 200; }
    """
    upstreams = 2

    @case.over(*case.PROTOCOLS)
    def test_client_goes(self, protocol):
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

    def test_goes_on(self):
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

    def test_client_goes(self):
        message, one = self.stuck()
        message.client.close()
        self.check_closed(one, None)

    def test_client_cancels_and_goes(self):
        message, one = self.stuck()
        message.cancel()
        self.assertStatuses(message.client.start("GET", "/free"), [], 200)
        message.client.close()
        self.check_closed(one, None)

    def check_status(self, message, status):
        """The response arrives at once, but nginx ends the stream when it frees the request."""
        self.until(lambda: message.responses)
        self.assertEqual(message.responses[0].status, status)
        self.assertFalse(message.responses[0].complete)

    def test_responder_goes(self):
        message, one = self.stuck()
        one.exchange.close()
        self.check_status(message, 502)
        self.assertTrue(one.is_locked())
        self.check_free()
        self.release(one)
        self.assertEqual(message.finish()[1].status, 502)

    def test_responder_goes_and_client_after_it(self):
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


class SendTimeout(Threads):
    """The write takes longer than nginx waits for a responder, so the request goes on in another location."""

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
    def test_client_is_silent(self, protocol):
        _, one = self.stuck(protocol)
        self.assertTrue(one.is_silent(1.5), "something was said before the file was closed")
        self.check_closed(one)


del Threads
