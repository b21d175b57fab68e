"""Responders that close, reset, violate FastCGI or time out, before or after an interim response."""

import contextlib
import struct

import case
from lab.fastcgi import END_REQUEST, STDERR, STDOUT, block, end, record
from responder import Disconnected

INTERIM = record(STDOUT, block(104, "Upload-Offset: 1"))
BLOCK = block(104, "Upload-Offset: 2")

# The bytes that the responder sends before it closes, and the number of interim responses that the client receives
# (None: any number).
CLOSED = {
    "at_once": (b"", 0),
    "after_an_interim": (INTERIM, 1),
    "in_a_record_head": (INTERIM + INTERIM[:5], 1),
    "after_a_record_head": (INTERIM + INTERIM[:8], 1),
    "in_status": (INTERIM + INTERIM[:12], 1),
    "in_a_block": (INTERIM + INTERIM[:-6], 1),
    "in_the_empty_line": (INTERIM + INTERIM[:-1], 1),
    "between_records_of_a_block": (INTERIM + record(STDOUT, BLOCK[:20]), 1),
    "in_padding": (INTERIM + record(STDOUT, BLOCK, padding=100)[:-50], None),
    "in_the_final_header": (INTERIM + record(STDOUT, b"Status: 200 OK\r\nX-A"), 1),
    "in_the_final_status": (INTERIM + record(STDOUT, b"Status: 2"), 1),
}

# Invalid bytes that the responder sends before END_REQUEST, and the number of interim responses before the 502.
INVALID = {
    "status_not_first": (record(STDOUT, b"X-A: b\r\nStatus: 104 x\r\n\r\n"), 0),
    "status_not_first_after_interim": (INTERIM + record(STDOUT, b"X-A: b\r\nStatus: 104 x\r\n\r\n"), 1),
    "lower_case_status_not_first": (record(STDOUT, b"a: b\nstatus: 199\n\n"), 0),
    "unfinished_block": (INTERIM + record(STDOUT, BLOCK[:-2]), 1),
    "interims_only": (INTERIM + INTERIM, 2),
    "stderr_in_a_block": (record(STDOUT, BLOCK[:10]) + record(STDERR, b"error")
                          + record(STDOUT, BLOCK[10:]), 0),
    "version_0": (INTERIM + record(STDOUT, block(200), version=0), 1),
    "type_0": (INTERIM + record(0, b"x"), 1),
    "type_11": (record(11, b"x") + INTERIM, 0),
    "stdin_record": (INTERIM + record(5, b"x"), 1),
    "request_id_2": (INTERIM + record(STDOUT, block(200), request=2), 1),
    "interim_for_request_id_2": (record(STDOUT, BLOCK, request=2), 0),
    "interim_of_version_2": (record(STDOUT, BLOCK, version=2), 0),
    "record_in_a_record": (struct.pack("!BBHHBB", 1, STDOUT, 1, 60, 0, 0) + INTERIM, 0),
}


class Failures(case.NginxTestCase):
    server = "interim_responses 104;"

    def play(self, protocol, data, interims, reset=False, ended=False):
        client = self.connect(protocol)
        message = client.start("POST", "/", content=b"hello")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.write(data + (end() if ended else b""))
        if reset:       # a reset may discard sent bytes, so wait for the responses first
            for _ in range(interims):
                self.assertEqual(message.next().status, 104)
        exchange.close(reset)
        early, final = message.finish()
        self.assertEqual(final.status, 502)
        if not reset and interims is not None:
            self.assertEqual([one.status for one in early], [104] * interims)
        self.assertEqual(client.start("GET", "/static").finish()[1].status, 200)

    @case.over(*CLOSED)
    def test_responder_closes(self, name):
        for protocol in case.PROTOCOLS:
            with self.subTest(protocol):
                self.play(protocol, *CLOSED[name])

    @case.over(*(name for name in CLOSED if CLOSED[name][1] is not None))
    def test_responder_resets(self, name):
        for protocol in "h1", "h2":
            with self.subTest(protocol):
                self.play(protocol, *CLOSED[name], reset=True)

    @case.over(*INVALID)
    def test_responder_violates_fastcgi(self, name):
        for protocol in case.PROTOCOLS:
            with self.subTest(protocol):
                self.play(protocol, *INVALID[name], ended=True)

    def test_end_request_with_an_error_status(self):
        message = self.connect().start("GET", "/")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(104)
        exchange.write(record(END_REQUEST, struct.pack("!IB3x", 1, 3)))     # FCGI_OVERLOADED
        self.assertStatuses(message, [104], 502)

    def test_stderr_is_logged(self):
        message = self.connect().start("GET", "/")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.stderr(b"first complaint")
        exchange.interim(104)
        exchange.stderr(b"second complaint")
        exchange.interim(104)
        exchange.final(200)
        self.assertStatuses(message, [104, 104], 200)
        self.assertRegex(self.logged(), "(?s)first complaint.*second complaint")


class CatchStderr(case.NginxTestCase):
    server = """
        location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104; fastcgi_catch_stderr fatal; }
    """

    def test_ends_the_request(self):
        message = self.connect().start("GET", "/")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(104)
        exchange.stderr(b"fatal: all is lost")
        with contextlib.suppress(Disconnected):     # nginx may close before this
            exchange.final(200)
        self.assertStatuses(message, [104], 502)


class Timeouts(case.NginxTestCase):
    server = """
        location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104; fastcgi_read_timeout 1s; }
    """

    @case.over("h1", "h2")
    def test_504_after_silence(self, protocol):
        message = self.connect(protocol).start("POST", "/", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(104)
        self.assertStatuses(message, [104], 504)
        exchange.until_closed()

    @case.over("h1", "h1s", "h2c", "h2")
    def test_interims_prevent_the_timeout(self, protocol):
        message = self.connect(protocol).start("POST", "/", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        # An interim response every 0.5 s for 3 s; each read that times out is a pause.
        for number in range(6):
            exchange.sock.settimeout(0.5)
            with self.assertRaises(TimeoutError):
                exchange.sock.recv(1)
            exchange.interim(104, "Upload-Offset: %d" % number)
            self.assertEqual(message.next()["Upload-Offset"], str(number))
        exchange.final(200)
        self.assertStatuses(message, [], 200)

    def test_unlisted_code_prevents_the_timeout(self):
        message = self.connect().start("POST", "/", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        for _ in range(4):
            exchange.sock.settimeout(0.5)
            with self.assertRaises(TimeoutError):
                exchange.sock.recv(1)
            exchange.interim(102)
        exchange.final(200)
        self.assertStatuses(message, [], 200)
