"""HTTP/3, if this nginx supports it and aioquic is installed: basics, progress, Expect, fields, aborts, slow
readers, kept connections to the responder, and the lane."""

import importlib.util
import os
import random
import socket
import tempfile
import unittest

import case
import lane
import options


def missing():
    """Return the reason why HTTP/3 cannot be tested here, or None."""
    if not options.has("--with-http_v3_module"):
        return "this nginx was built without HTTP/3"
    for module in "aioquic", "pylsqpack":
        if importlib.util.find_spec(module) is None:
            return "the Python module %s is missing" % module
    return None


class QUICTestCase(case.NginxTestCase):
    @classmethod
    def setUpClass(cls):
        reason = missing()
        if reason:
            raise unittest.SkipTest(reason)
        # nginx cannot inherit QUIC sockets, so choose a port that is free now.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as guess:
            guess.bind(("127.0.0.1", 0))
            cls.port = guess.getsockname()[1]
        cls.listen = "listen 127.0.0.1:%d quic;" % cls.port
        super().setUpClass()

    def connect(self):
        import http3
        client = http3.Client(self.port)
        self.addCleanup(client.close)
        return client


class HTTP3(QUICTestCase):
    http = "upstream kept { server %%UPSTREAM%%; keepalive 8; }"
    server = """
        interim_responses 104;
        location /decides { fastcgi_pass %%UPSTREAM%%; interim_responses 104 100; }
        location /buffered { fastcgi_pass %%UPSTREAM%%; fastcgi_buffering on; }
        location /kept { fastcgi_pass kept; fastcgi_keep_conn on; }
    """

    def test_before_content(self):
        client = self.connect()
        for number in range(3):
            message = client.start("POST", "/%d" % number, length=5)
            exchange = self.upstream.accept()
            exchange.interim(104, "Location: /resource/%d" % number, "X-CamelCase: YES")
            interim = message.next()
            self.assertEqual((interim.status, interim.fields),
                             (104, [("location", "/resource/%d" % number), ("x-camelcase", "YES")]))
            self.assertEqual(exchange.received, 0)
            message.write(b"hello", end=True)
            self.assertEqual(exchange.content(), b"hello")
            exchange.final(201, "X-Number: %d" % number, content=b"made")
            final = self.assertStatuses(message, [], 201)
            self.assertEqual((final["X-Number"], final.content), (str(number), b"made"))
        final = self.assertStatuses(client.start("GET", "/static"), [], 200)
        self.assertEqual(final.content, b"a static file\n")

    def test_kept_connection(self):
        client = self.connect()
        exchange = None
        for method, status in ("HEAD", 200), ("GET", 204), ("POST", 201), ("HEAD", 404):
            content = b"hello" if method == "POST" else None
            message = client.start(method, "/kept", content=content)
            exchange = exchange.following() if exchange else self.upstream.accept()
            self.assertEqual(exchange.content(), content or b"")
            exchange.interim(104)
            exchange.whole(status)
            self.assertStatuses(message, [104], status)
        self.assertEqual(self.upstream.connections(), 1)

    def test_progress(self):
        sent = []

        def script(exchange):
            while exchange.receive(1 << 16):
                sent.append(exchange.received)
                exchange.interim(104, "Upload-Offset: %d" % exchange.received)
            exchange.final(201)

        self.upstream.serve(script)
        interims, final = self.connect().start("POST", "/", content=b"x" * (2 << 20)).finish()
        self.assertEqual(final.status, 201)
        self.assertEqual([int(one["Upload-Offset"]) for one in interims], sent)
        self.assertGreater(len(sent), 5)

    def test_fields(self):
        message = self.connect().start("GET", "/")
        exchange = self.upstream.accept()
        exchange.content()
        sizes = [0, 1, 6, 7, 8, 126, 127, 128, 254, 255, 256, 2000]
        exchange.interim(104, "Connection: close", *("N%d: %s" % (n, "v" * n) for n in sizes))
        exchange.interim(104, *("%s: v" % ("n" * n) for n in (1, 6, 7, 8, 63, 64)))
        exchange.final(200)
        (values, names), final = message.finish()
        self.assertEqual(values.fields, [("n%d" % n, "v" * n) for n in sizes])
        self.assertEqual(names.fields, [("n" * n, "v") for n in (1, 6, 7, 8, 63, 64)])
        self.assertEqual(final.status, 200)

    def test_responder_sends_100(self):
        client = self.connect()
        message = client.start("POST", "/decides", "Expect: 100-continue", length=5)
        exchange = self.upstream.accept()
        for status in 104, 100, 100:
            exchange.interim(status)
        self.assertEqual([message.next().status, message.next().status], [104, 100])
        message.write(b"hello", end=True)
        self.assertEqual(exchange.content(), b"hello")
        exchange.final(201)
        self.assertStatuses(message, [], 201)
        message = client.start("POST", "/decides", content=b"hello")
        exchange = self.upstream.accept()
        exchange.interim(100)
        exchange.content()
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    def test_refused_during_content(self):
        message = self.connect().start("POST", "/", length=1000)
        exchange = self.upstream.accept()
        exchange.interim(104)
        message.write(b"x" * 400)
        received = 0
        while received < 400:
            received += len(exchange.receive(1))
        exchange.final(413, content=b"no")
        self.assertEqual(self.assertStatuses(message, [104], 413).content, b"no")
        exchange.until_closed()

    def test_20_in_parallel(self):
        client = self.connect()
        messages = [client.start("POST", "/%d" % n, content=b"x") for n in range(20)]
        exchanges = [self.upstream.accept() for _ in messages]
        for offset in range(5):
            for exchange in random.Random(offset).sample(exchanges, 20):
                exchange.interim(104, "X-Of: " + exchange.params["REQUEST_URI"],
                                 "Upload-Offset: %d" % offset)
        for exchange in exchanges:
            exchange.content()
            exchange.final(200, "X-Of: " + exchange.params["REQUEST_URI"])
        for number, message in enumerate(messages):
            interims, final = message.finish()
            self.assertEqual([one["Upload-Offset"] for one in interims], list("01234"))
            self.assertEqual({one["X-Of"] for one in [*interims, final]}, {"/%d" % number})

    def test_stream_reset(self):
        client = self.connect()
        for path in "/", "/buffered":
            cancelled = client.start("POST", path, length=10)
            exchange = self.upstream.accept()
            exchange.interim(104)
            self.assertEqual(cancelled.next().status, 104)
            cancelled.cancel()
            exchange.until_closed()
            self.assertStatuses(client.start("GET", "/static"), [], 200)

    def test_connection_closes(self):
        client = self.connect()
        client.start("POST", "/", length=10)
        exchange = self.upstream.accept()
        exchange.interim(104)
        client.close()
        exchange.until_closed()

    @case.over("resumes", "closes")
    def test_stuck_reader(self, how):
        client = self.connect()
        message = client.start("POST", "/", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        count = 20000
        for number in range(count):
            exchange.interim(104, "Upload-Offset: %d" % number, "X-Fill: " + "f" * 200)
        if how == "closes":
            client.close()
            return exchange.until_closed()
        exchange.final(200, content=b"0123456789" * 3000)
        interims, final = message.finish()
        offsets = [int(one["Upload-Offset"]) for one in interims]
        self.assertEqual(offsets, sorted(set(offsets)))
        self.assertEqual(offsets[0], 0)
        self.assertLess(len(offsets), count)
        self.assertEqual((final.status, final.content), (200, b"0123456789" * 3000))


class Lane(QUICTestCase):
    """Content that nginx writes into the responder's file."""

    unix = True
    receive = "on"
    server = "location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104; spool_receive %%RECEIVE%%; }"

    @classmethod
    def configuration(cls):
        return cls.server.replace("%%RECEIVE%%", cls.receive)

    @classmethod
    def setUpClass(cls):
        if cls.receive == "on" and not options.has("--with-threads"):
            raise unittest.SkipTest("this nginx was built without threads")
        super().setUpClass()

    def put(self, content, sent, script):
        """Send `sent` bytes of `content` while the responder reads the offer and runs `script`; return the status and
        the lane."""
        lanes = []

        def run(exchange):
            lanes.append(lane.Lane(exchange, os.path.join(tempfile.mkdtemp(dir=options.scratch), "file")))
            lanes[0].expect_offer()
            script(lanes[0], exchange)
        self.upstream.serve(run)
        message = self.connect().start("PUT", "/a", length=len(content))
        message.write(content[:sent], end=sent == len(content))
        status = message.finish()[1].status
        return status, lanes[0]

    @case.over("300000", "1000001")
    def test_written(self, size):
        content = random.Random(1).randbytes(int(size))

        def script(one, exchange):
            one.grant(1 << 40)
            if one.until_end() or exchange.content():
                raise AssertionError("nginx did not write all of the content")
            exchange.final(201)
        status, one = self.put(content, len(content), script)
        self.assertEqual(status, 201)
        self.assertTrue(one.content() == content)

    def test_rest(self):
        content, rest = random.Random(2).randbytes(400_000), []

        def script(one, exchange):
            one.grant(len(content) - 1, rest=True)
            one.until_end()
            rest.append(exchange.content())
            exchange.final(201)
        status, one = self.put(content, len(content), script)
        self.assertEqual(status, 201)
        self.assertTrue(one.content() == content[:-1] and rest == [content[-1:]])

    def test_stop(self):
        content = random.Random(3).randbytes(400_000)

        def script(one, exchange):
            one.grant(1 << 40)
            one.stop()
            one.until_end()
            if one.is_locked():
                raise AssertionError("the file is still locked")
            exchange.final(409)
        status, one = self.put(content, 1000, script)
        self.assertEqual(status, 409)
        self.assertTrue(content.startswith(one.content()))

    def test_client_cancels(self):
        content = random.Random(4).randbytes(400_000)
        message = self.connect().start("PUT", "/a", length=len(content))
        exchange = self.upstream.accept()
        one = lane.Lane(exchange, os.path.join(tempfile.mkdtemp(dir=options.scratch), "file"))
        one.expect_offer()
        one.grant(1 << 40)
        message.write(content[:10_000])
        message.client.pump_until(lambda: len(one.content()) == 10_000)
        message.write(content[10_000:20_000])
        message.cancel()
        exchange.until_closed()
        self.assertFalse(one.is_locked())
        self.assertGreaterEqual(len(one.content()), 10_000)
        self.assertTrue(content.startswith(one.content()))


class LaneInWorker(Lane):
    receive = "worker"
