"""Expect: 100-continue: nginx sends the 100, or the responder if the directive lists 100."""

import case

EXPECT = "Expect: 100-continue"


class Expect(case.NginxTestCase):
    server = """
        location /nginx     { fastcgi_pass %%UPSTREAM%%; interim_responses 104; }
        location /responder { fastcgi_pass %%UPSTREAM%%; interim_responses 104 100; }
        location /only      { fastcgi_pass %%UPSTREAM%%; interim_responses 100; }
    """

    @case.over(*case.HTTP1)
    def test_nginx_sends_100(self, protocol):
        message = self.connect(protocol).start("POST", "/nginx", EXPECT, length=5)
        exchange = self.upstream.accept()
        exchange.interim(100)       # not listed
        exchange.interim(104)
        self.assertEqual([message.next().status, message.next().status], [100, 104])
        message.write(b"hello", end=True)
        self.assertEqual(exchange.content(), b"hello")
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*case.HTTP2)
    def test_none_on_http2(self, protocol):
        message = self.connect(protocol).start("POST", "/nginx", EXPECT, length=5)
        exchange = self.upstream.accept()
        exchange.interim(104)
        self.assertEqual(message.next().status, 104)
        message.write(b"hello", end=True)
        exchange.content()
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*case.PROTOCOLS)
    def test_responder_sends_100(self, protocol):
        for path in "/responder", "/only":
            message = self.connect(protocol).start("POST", path, EXPECT, length=5)
            exchange = self.upstream.accept()
            self.assertEqual(exchange.params["HTTP_EXPECT"], "100-continue")
            exchange.interim(104, "Location: /1")
            if path == "/responder":
                # This is the first response, so nginx sent no 100.
                self.assertEqual(message.next()["Location"], "/1")
            exchange.interim(100)
            interim = message.next()
            self.assertEqual((interim.status, interim.fields), (100, []))
            message.write(b"hello", end=True)
            self.assertEqual(exchange.content(), b"hello")
            exchange.final(201)
            self.assertStatuses(message, [], 201)

    @case.over(*case.PROTOCOLS)
    def test_refused_before_any_content(self, protocol):
        for interims in [], [104]:
            message = self.connect(protocol).start("POST", "/responder", EXPECT, length=5)
            exchange = self.upstream.accept()
            for status in interims:
                exchange.interim(status)
            exchange.final(403, content=b"no")
            self.assertEqual(self.assertStatuses(message, interims, 403).content, b"no")
            self.assertEqual(exchange.received, 0)
            exchange.until_closed()

    @case.over(*case.PROTOCOLS)
    def test_at_most_one(self, protocol):
        message = self.connect(protocol).start("POST", "/responder", EXPECT, length=5)
        exchange = self.upstream.accept()
        for status in 100, 100, 104, 100:
            exchange.interim(status)
        self.assertEqual(message.next().status, 100)
        message.write(b"hello", end=True)
        exchange.content()
        exchange.interim(100)
        exchange.final(201)
        self.assertStatuses(message, [104], 201)

    @case.over(*case.PROTOCOLS)
    def test_none_without_expect(self, protocol):
        message = self.connect(protocol).start("POST", "/responder", content=b"hello")
        exchange = self.upstream.accept()
        exchange.interim(100)
        exchange.interim(104)
        exchange.content()
        exchange.interim(100)
        exchange.final(201)
        self.assertStatuses(message, [104], 201)

    @case.over(*case.PROTOCOLS)
    def test_none_for_another_expectation(self, protocol):
        message = self.connect(protocol).start("POST", "/responder", "Expect: 200-ok", content=b"hello")
        exchange = self.upstream.accept()
        exchange.interim(100)
        exchange.content()
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*case.HTTP1)
    def test_none_for_http_1_0(self, protocol):
        message = self.connect(protocol).start("POST", "/responder", EXPECT, content=b"hello",
                                               version="1.0")
        exchange = self.upstream.accept()
        exchange.interim(100)
        self.assertEqual(exchange.content(), b"hello")
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*case.PROTOCOLS)
    def test_client_does_not_wait(self, protocol):
        message = self.connect(protocol).start("POST", "/responder", EXPECT, content=b"hello")
        exchange = self.upstream.accept()
        self.assertEqual(exchange.content(), b"hello")
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*case.PROTOCOLS)
    def test_kept_connection(self, protocol):
        client = self.connect(protocol)
        for number in range(3):
            message = client.start("POST", "/responder", EXPECT, length=1)
            exchange = self.upstream.accept()
            exchange.interim(100)
            self.assertEqual(message.next().status, 100)
            message.write(b"x", end=True)
            exchange.content()
            exchange.final(201)
            self.assertStatuses(message, [], 201)
        # In another location nginx still sends the 100 itself.
        message = client.start("POST", "/nginx", EXPECT, length=1)
        if protocol in case.HTTP1:
            self.assertEqual(message.next().status, 100)
        message.write(b"x", end=True)
        exchange = self.upstream.accept()
        exchange.content()
        exchange.final(201)
        self.assertStatuses(message, [], 201)


class BufferedRequest(case.NginxTestCase):
    """fastcgi_request_buffering on: nginx reads the content before it connects to the responder."""

    server = """
        location / {
            fastcgi_pass %%UPSTREAM%%; interim_responses 104 100; fastcgi_request_buffering on;
        }
    """

    @case.over(*case.PROTOCOLS)
    def test_client_does_not_wait(self, protocol):
        message = self.connect(protocol).start("POST", "/", EXPECT, content=b"hello")
        exchange = self.upstream.accept()
        self.assertEqual(exchange.content(), b"hello")
        exchange.interim(104)
        exchange.final(201)
        # nginx sends no 100 if the content has already arrived.
        interims, final = message.finish()
        self.assertIn([one.status for one in interims],
                      ([104], [100, 104]) if protocol in case.HTTP1 else ([104],))
        self.assertEqual(final.status, 201)

    @case.over(*case.HTTP1)
    def test_nginx_sends_100(self, protocol):
        message = self.connect(protocol).start("POST", "/", EXPECT, length=5)
        self.assertEqual(message.next().status, 100)
        message.write(b"hello")
        exchange = self.upstream.accept()
        self.assertEqual(exchange.content(), b"hello")
        for status in 100, 104:
            exchange.interim(status)
        exchange.final(201)
        self.assertStatuses(message, [104], 201)
