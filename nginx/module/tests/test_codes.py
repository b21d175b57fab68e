"""The status codes that pass, and the behaviour of nginx without the directive and with `off`."""

import case
from lab import fastcgi


class Codes(case.NginxTestCase):
    server = """
        location /104     { fastcgi_pass %%UPSTREAM%%; interim_responses 104; }
        location /several { fastcgi_pass %%UPSTREAM%%; interim_responses 102 103 104 199; }
    """

    def offer_all(self, protocol, path):
        message = self.connect(protocol).start("POST", path, content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        for code in range(100, 200):
            exchange.interim(code, "X-Code: %d" % code)
        exchange.final(200)
        interims, final = message.finish()
        self.assertEqual(final.status, 200)
        self.assertEqual([one["X-Code"] for one in interims], [str(one.status) for one in interims])
        return [one.status for one in interims]

    @case.over(*case.PROTOCOLS)
    def test_listed_codes_pass(self, protocol):
        self.assertEqual(self.offer_all(protocol, "/104"), [104])
        self.assertEqual(self.offer_all(protocol, "/several"), [102, 103, 104, 199])

    def test_reason_is_passed_on(self):
        for reason in "Upload Resumption Supported", "", "Other":
            message = self.connect().start("GET", "/104")
            exchange = self.upstream.accept()
            exchange.content()
            exchange.stdout(fastcgi.block(104, reason=reason))
            exchange.final(200)
            interims, final = message.finish()
            self.assertEqual([(one.status, one.reason) for one in interims], [(104, reason)])

    def test_invalid_status(self):
        # Invalid as the status of an interim response and of a final one.
        for status in "1044 x", "104x", "10 x", "1", "104,", "199.5":
            message = self.connect().start("GET", "/several")
            exchange = self.upstream.accept()
            exchange.content()
            exchange.stdout(b"Status: %s\r\nX-A: b\r\n\r\ncontent" % status.encode())
            exchange.end()
            self.assertStatuses(message, [], 502)


class Off(case.NginxTestCase):
    """Without the directive, or with `off`, nginx takes the first block for the final response."""

    server = """
        location /never { fastcgi_pass %%UPSTREAM%%; }
        location /off   { fastcgi_pass %%UPSTREAM%%; interim_responses off; }
    """

    @case.over("/never", "/off")
    def test_104_is_final_response(self, path):
        client = self.connect()
        client.start("POST", path, content=b"hello")
        exchange = self.upstream.accept()
        exchange.content()
        final = fastcgi.block(201, "X-Final: yes") + b"made"
        exchange.stdout(fastcgi.block(104, "Upload-Offset: 5"))
        exchange.stdout(final)
        exchange.end()
        head = client.take_until(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 104 "), head)
        self.assertIn(b"\r\nServer: nginx", head)
        self.assertIn(b"\r\nDate: ", head)
        self.assertIn(b"\r\nUpload-Offset: 5\r\n", head)
        # The client cannot detect the end of this response's content, and the connection stays open.
        self.assertEqual(client.take_until(b"made"), final)

    @case.over("/never", "/off")
    def test_nginx_sends_100(self, path):
        message = self.connect().start("POST", path, "Expect: 100-continue", length=5)
        self.assertEqual(message.next().status, 100)
        exchange = self.upstream.accept()
        message.write(b"hello")
        self.assertEqual(exchange.content(), b"hello")
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*case.PROTOCOLS)
    def test_ordinary_response(self, protocol):
        for path in "/never", "/off":
            message = self.connect(protocol).start("POST", path, content=b"hello")
            exchange = self.upstream.accept()
            self.assertEqual(exchange.content(), b"hello")
            exchange.final(201, "X-A: b", content=b"made")
            final = self.assertStatuses(message, [], 201)
            self.assertEqual((final["X-A"], final.content), ("b", b"made"))
