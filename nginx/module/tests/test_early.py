"""Final responses before the content is complete, and clients that disconnect."""

import time

import case
from lab import http1
from responder import Disconnected


class EarlyFinal(case.NginxTestCase):
    server = "interim_responses 104;"

    @case.over(*case.PROTOCOLS)
    def test_before_any_content(self, protocol):
        message = self.connect(protocol).start("POST", "/", length=1000)
        exchange = self.upstream.accept()
        exchange.final(413, content=b"no")
        self.assertEqual(self.assertStatuses(message, [], 413).content, b"no")
        exchange.until_closed()

    @case.over(*case.PROTOCOLS)
    def test_after_an_interim(self, protocol):
        message = self.connect(protocol).start("POST", "/", length=1000)
        exchange = self.upstream.accept()
        exchange.interim(104)
        exchange.final(413, content=b"no")
        self.assertEqual(self.assertStatuses(message, [104], 413).content, b"no")
        exchange.until_closed()

    @case.over(*case.PROTOCOLS)
    def test_during_content(self, protocol):
        message = self.connect(protocol).start("POST", "/", length=1000)
        exchange = self.upstream.accept()
        exchange.interim(104)
        message.write(b"x" * 400)
        received = 0
        while received < 400:
            received += len(exchange.receive(1))
        exchange.interim(104, "Upload-Offset: 400")
        exchange.final(413, content=b"no")
        self.assertEqual(self.assertStatuses(message, [104, 104], 413).content, b"no")
        exchange.until_closed()

    @case.over(*case.PROTOCOLS)
    def test_while_client_keeps_sending(self, protocol):
        # A responder sends the final response and END_REQUEST, then reads until the end of the stream.
        for attempt in range(5):
            self.upstream.reset()
            self.upstream.serve(self.reject)
            client = self.connect(protocol)
            message = client.start("POST", "/", length=16 << 20)
            try:
                for _ in range(256):
                    message.write(b"x" * 65536)
            except (http1.Closed, TimeoutError):
                pass        # nginx has stopped reading, and has sent the response
            self.assertStatuses(message, [104, 104], 413)
            client.close()

    def reject(self, exchange):
        exchange.interim(104)
        exchange.receive(1 << 20)
        exchange.interim(104)
        exchange.final(413)


class ClientAborts(case.NginxTestCase):
    server = """
        interim_responses 104;
        location /buffered { fastcgi_pass %%UPSTREAM%%; fastcgi_buffering on; }
    """

    @case.over(*(protocol + end for protocol in case.PROTOCOLS for end in ("_fin", "_rst")))
    def test_responder_connection_closes(self, how):
        protocol, end = how.split("_")
        for length, sent in ((1000, 0), (1000, 500), (500, 500)):
            for interims in 0, 1:
                client = self.connect(protocol)
                message = client.start("POST", "/", length=length)
                exchange = self.upstream.accept()
                for _ in range(interims):
                    exchange.interim(104)
                    self.assertEqual(message.next().status, 104)
                if sent:
                    message.write(b"x" * sent, end=sent == length)
                received = 0
                while received < sent:
                    received += len(exchange.receive(1))
                client.reset() if end == "rst" else client.close()
                exchange.until_closed(2.5)

    @case.over(*case.PROTOCOLS)
    def test_interims_after_disconnect(self, protocol):
        for path in "/", "/buffered":
            client = self.connect(protocol)
            client.start("POST", path, length=10)
            exchange = self.upstream.accept()
            client.reset()
            deadline = time.monotonic() + 5
            with self.assertRaises(Disconnected):
                while time.monotonic() < deadline:
                    exchange.interim(104, "Upload-Offset: 0")


class IgnoredAborts(case.NginxTestCase):
    server = """
        location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104; fastcgi_ignore_client_abort on; }
    """

    @case.over(*case.PROTOCOLS)
    def test_interims_after_disconnect(self, protocol):
        client = self.connect(protocol)
        client.start("POST", "/", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        client.reset()
        for _ in range(2000):
            exchange.interim(104, "Upload-Offset: 1")
        exchange.final(200)
        exchange.until_closed()
