"""The fields of an interim response that reach the client, and invalid blocks."""

import contextlib

import case
from lab import fastcgi
from responder import Disconnected


class Fields(case.NginxTestCase):
    server = """
        location / {
            fastcgi_pass %%UPSTREAM%%;
            interim_responses 104;
            fastcgi_hide_header X-Hidden;
            fastcgi_buffer_size 8k;
        }
    """

    def through(self, protocol, *fields):
        """Send an interim response with `fields`; return those that the client receives, or None if nginx drops it."""
        message = self.connect(protocol).start("POST", "/", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(104, *fields)
        exchange.interim(104, "X-Next: yes")
        exchange.final(200)
        interims, final = message.finish()
        self.assertEqual(final.status, 200)
        self.assertEqual(interims.pop()["X-Next"], "yes")
        self.assertLessEqual(len(interims), 1)
        return [(name.lower(), value) for name, value in interims[0].fields] if interims else None

    @case.over(*case.PROTOCOLS)
    def test_passed(self, protocol):
        fields = [("Location", "http://a/b?c=d"), ("Upload-Offset", "0"), ("Upload-Limit", "max-age=9"),
                  ("X-Caps-LOCK", "MiXeD"), ("x!#$%&'*+-.^_`|~09", "token"), ("Empty", ""),
                  ("Latin", "caf\xe9"), ("Tab", "a\tb"), ("Twice", "1"), ("Twice", "2")]
        self.assertEqual(self.through(protocol, *("%s: %s" % field for field in fields)),
                         [(name.lower(), value) for name, value in fields])

    @case.over(*case.PROTOCOLS)
    def test_removed(self, protocol):
        self.assertEqual(
            self.through(protocol, "A: 1", "Connection: close", "Keep-Alive: 5", "Proxy-Connection: x",
                         "Transfer-Encoding: chunked", "TE: trailers", "Trailer: X", "Upgrade: h2c",
                         "Content-Length: 5", "X-Accel-Redirect: /static", "X-Accel-Expires: 5",
                         "X-Accel-Limit-Rate: 1", "X-Accel-Buffering: yes", "X-Accel-Charset: x",
                         "X-Hidden: secret", "x-hidden: secret", "CONNECTION: close", "Status: 200",
                         "B: 2"),
            [("a", "1"), ("b", "2")])

    @case.over(*case.PROTOCOLS)
    def test_removed_fields_have_no_effect(self, protocol):
        client = self.connect(protocol)
        message = client.start("GET", "/")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(104, "X-Accel-Redirect: /static", "X-Accel-Limit-Rate: 1", "Connection: close",
                         "Content-Length: 3", "Set-Cookie: a=b")
        exchange.final(200, content=b"0123456789" * 100)
        self.assertEqual(self.assertStatuses(message, [104], 200).content, b"0123456789" * 100)
        self.assertEqual(client.start("GET", "/static").finish()[1].status, 200)

    @case.over(*case.PROTOCOLS)
    def test_invalid_names_and_values(self, protocol):
        for bad in ("Na me: x", "Name : x", ": x", "no colon", "Na\x00me: x", "Na\x7fme: x", "N(: x",
                    "N\xe9: x", "Name: a\x00b", "Name: a\rb", "Name: a\x01b", "Name: a\x7fb", " Folded: x",
                    "A: b\r\n folded", "Name: a\r\r", ":status: 200", "\x80: x"):
            with self.subTest(bad=bad):
                self.assertIsNone(self.through(protocol, "Good: 1", bad, "Also: 2"))

    @case.over(*case.PROTOCOLS)
    def test_at_most_16(self, protocol):
        fields = ["F%d: %d" % (n, n) for n in range(16)]
        self.assertEqual(len(self.through(protocol, *fields)), 16)
        self.assertIsNone(self.through(protocol, *fields, "F16: 16"))

    @case.over(*case.PROTOCOLS)
    def test_long_names_and_values(self, protocol):
        name = "n" * 64
        self.assertEqual(self.through(protocol, name + ": v"), [(name, "v")])
        self.assertIsNone(self.through(protocol, "A: 1", "n" * 65 + ": v"))
        for size in 126, 127, 128, 254, 255, 256, 4000:
            self.assertEqual(self.through(protocol, "Long: " + "v" * size), [("long", "v" * size)])

    def test_invalid_block_is_logged(self):
        self.assertIsNone(self.through("h1", "no colon here"))
        self.assertIn('interim response 104 with invalid line "no colon here"', self.logged())


class Oversize(case.NginxTestCase):
    server = """
        location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104; fastcgi_buffer_size 4k; }
    """

    @case.over(*case.PROTOCOLS)
    def test_block_larger_than_the_buffer(self, protocol):
        for size in None, 1000:
            client = self.connect(protocol)
            message = client.start("POST", "/", content=b"x")
            exchange = self.upstream.accept()
            exchange.content()
            exchange.interim(104, "Upload-Offset: 1")
            with contextlib.suppress(Disconnected):
                exchange.stdout(fastcgi.block(104, "Long: " + "v" * 10000), size or 65535)
                exchange.final(200)
            self.assertStatuses(message, [104], 502)
            self.assertEqual(client.start("GET", "/static").finish()[1].status, 200)
