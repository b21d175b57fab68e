"""Kept connections that end: at the responder's request, or without notice."""

import os
import signal

import case
from lab.fastcgi import STDERR, STDOUT, block, end, record
from test_keep import KeepTestCase

CLOSE = record(STDERR)      # asks nginx to close an idle connection; nginx skips it during a request


class KeptTestCase(KeepTestCase):
    server = """
        interim_responses 104;
        fastcgi_keep_conn on;
        location / { fastcgi_pass kept; }
        location /off { fastcgi_pass kept; interim_responses off; }
        location /buffered { fastcgi_pass kept; fastcgi_buffering on; }
    """

    def keep(self, protocol="h1", path="/"):
        """Returns (client, exchange) of a connection that nginx keeps."""
        client, message, exchange = self.request(protocol, "HEAD", path)
        exchange.whole(204)
        self.assertStatuses(message, [], 204)
        return client, exchange


class ClosedOnRequest(KeptTestCase):
    @case.over(*case.PROTOCOLS)
    def test_idle(self, protocol):
        client, exchange = self.keep(protocol)
        exchange.write(CLOSE)
        exchange.until_closed()
        message = client.start("HEAD", "/")
        self.upstream.accept().whole(204)
        self.assertStatuses(message, [], 204)

    @case.over(*case.PROTOCOLS)
    def test_crosses_request_without_content(self, protocol):
        for path in "/", "/off", "/buffered":
            client, exchange = self.keep(protocol, path)
            message = client.start("HEAD", path)
            exchange.following()
            exchange.write(CLOSE)
            exchange.content()
            exchange.whole(200, after=CLOSE)
            self.assertStatuses(message, [], 200)
            exchange.until_closed()
        self.assertNotIn("stderr", self.logged())

    @case.over(*case.PROTOCOLS)
    def test_crosses_content(self, protocol):
        for path in "/", "/off", "/buffered":
            client, exchange = self.keep(protocol, path)
            message = client.start("POST", path, length=40000)
            exchange.following()
            exchange.write(CLOSE)
            message.write(b"x" * 20000)
            self.assertTrue(exchange.receive(20000))
            message.write(b"x" * 20000, end=True)
            exchange.content()
            self.assertEqual(exchange.received, 40000)
            exchange.whole(201, content=b"made", after=CLOSE)
            self.assertEqual(self.assertStatuses(message, [], 201).content, b"made")
            exchange.until_closed()
        self.assertNotIn("stderr", self.logged())

    @case.over(*case.PROTOCOLS)
    def test_between_interims(self, protocol):
        client, exchange = self.keep(protocol)
        message = client.start("POST", "/", length=5)
        exchange.following()
        exchange.write(CLOSE + record(STDOUT, block(104, "Upload-Offset: 0")) + CLOSE[:3])
        self.assertEqual(message.next()["Upload-Offset"], "0")
        exchange.write(CLOSE[3:])
        exchange.interim(104, "Upload-Offset: 1")
        self.assertEqual(message.next()["Upload-Offset"], "1")
        message.write(b"hello", end=True)
        self.assertEqual(exchange.content(), b"hello")
        exchange.whole(201, before=record(STDOUT, block(104)) + CLOSE, after=CLOSE)
        self.assertStatuses(message, [104], 201)
        exchange.until_closed()
        self.assertNotIn("stderr", self.logged())

    @case.over("h1", "h2")
    def test_after_the_end(self, protocol):
        # A responder can send it together with END_REQUEST.
        for method in "HEAD", "GET":
            for path in "/", "/off", "/buffered":
                client, message, exchange = self.request(protocol, method, path)
                exchange.whole(200, "Content-Length: 4", content=b"four" if method == "GET" else b"", after=CLOSE)
                self.assertStatuses(message, [], 200)
                exchange.until_closed()


class EndedWhileStopped(KeptTestCase):
    """nginx is stopped (SIGSTOP), so it reads a request and the end of a kept connection together, in this order."""

    @case.over(*(how + "_" + protocol for how in ("closed", "reset", "asked_to_close", "response")
                 for protocol in case.PROTOCOLS))
    def test_new_connection(self, how):
        how, protocol = how.rsplit("_", 1)
        for method, path in (("HEAD", "/"), ("POST", "/"), ("POST", "/off"), ("POST", "/buffered")):
            with self.subTest(method=method, path=path):
                client, old = self.keep(protocol, path)
                worker = self.stopped_worker()
                message = client.start(method, path, content=b"hello" if method == "POST" else None)
                if how == "asked_to_close":
                    old.write(CLOSE)
                elif how == "response":
                    old.write(record(STDOUT, block(200) + b"unexpected") + end())
                else:
                    old.close(reset=how == "reset")
                os.kill(worker, signal.SIGCONT)
                exchange = self.upstream.accept()
                self.assertEqual(exchange.content(), b"hello" if method == "POST" else b"")
                exchange.whole(201)
                self.assertStatuses(message, [], 201)
                self.assertKept(exchange, client)
                exchange.close()
