"""Refusals that leave much content unread: the client receives the response, and nginx does not read the rest."""

import time

import case
import options
from lab import http1

LENGTH = 100 << 20
# More than the buffers of both sockets can hold (net.ipv4.tcp_rmem, tcp_wmem).
BOUND = 48 << 20


class Refusals(case.NginxTestCase):
    server = """
        interim_responses 104;
        client_body_buffer_size 1m;
    """

    def send_all(self, message):
        """Send LENGTH bytes without reading a response; return the number of bytes that could be sent."""
        sent = 0
        try:
            while sent < LENGTH:
                message.write(bytes(65536), end=sent + 65536 == LENGTH)
                sent += 65536
        except (http1.Closed, TimeoutError):
            pass
        return sent

    def refused(self, protocol, status, length=LENGTH, **options):
        """Send a request without its content; return after nginx has closed the connection to the responder."""
        client = self.connect(protocol)
        message = client.start("PATCH", "/", length=length, **options)
        exchange = self.upstream.accept()
        exchange.final(status, content=b"no")
        exchange.until_closed()
        return client, message

    @case.over(*case.HTTP1)
    def test_client_that_only_sends(self, protocol):
        for status, chunked in (409, False), (413, True):
            client, message = self.refused(protocol, status, chunked=chunked)
            started = time.monotonic()
            self.assertLess(self.send_all(message), BOUND)
            self.assertLess(time.monotonic() - started, options.patience(6))
            response = self.assertStatuses(message, [], status)
            self.assertEqual(response.content, b"no")
            self.assertEqual(response["Connection"], "close")
            client.close()

    @case.over(*case.HTTP2)
    def test_http2(self, protocol):
        client, message = self.refused(protocol, 409)
        self.assertLess(self.send_all(message), BOUND)
        self.assertEqual(self.assertStatuses(message, [], 409).content, b"no")
        self.assertEqual(message.reset_code, 0)
        # The connection remains usable.
        message = client.start("GET", "/")
        self.upstream.accept().final(204)
        self.assertStatuses(message, [], 204)

    @case.over(*case.HTTP1)
    def test_short_content_is_read(self, protocol):
        """The client can send all of it, and its connection is not reset."""
        client, message = self.refused(protocol, 409, length=1 << 20)
        response = message.next()
        self.assertEqual((response.status, response.content), (409, b"no"))
        message.write(bytes(1 << 20), end=True)
        self.assertEqual(client.rest(), b"")

    @case.over(*case.HTTP1)
    def test_success_reads_all_content(self, protocol):
        _, message = self.refused(protocol, 200)
        self.assertEqual(self.send_all(message), LENGTH)
        self.assertStatuses(message, [], 200)
