"""Interim responses on each protocol: before the content, several for a request, never after the final header."""

import case


class Basic(case.NginxTestCase):
    server = "interim_responses 104;"

    @case.over(*case.PROTOCOLS)
    def test_before_content(self, protocol):
        client = self.connect(protocol)
        for number in range(3):
            message = client.start("POST", "/%d" % number, length=5)
            exchange = self.upstream.accept()
            exchange.interim(104, "Location: /resource/%d" % number, "Upload-Limit: max-size=9")
            interim = message.next()
            self.assertEqual(interim.status, 104)
            self.assertEqual(interim["Location"], "/resource/%d" % number)
            self.assertEqual(interim["Upload-Limit"], "max-size=9")
            self.assertEqual(exchange.received, 0)
            message.write(b"hello", end=True)
            self.assertEqual(exchange.content(), b"hello")
            exchange.final(201, "X-Number: %d" % number, content=b"made")
            final = self.assertStatuses(message, [], 201)
            self.assertEqual((final["X-Number"], final.content), (str(number), b"made"))
            exchange.until_closed()
        final = self.assertStatuses(client.start("GET", "/static"), [], 200)
        self.assertEqual(final.content, b"a static file\n")

    @case.over(*case.PROTOCOLS)
    def test_nginx_adds_no_field(self, protocol):
        message = self.connect(protocol).start("POST", "/", content=b"x")
        exchange = self.upstream.accept()
        exchange.interim(104, "Location: /1")
        self.assertEqual([(name.lower(), value) for name, value in message.next().fields],
                         [("location", "/1")])
        exchange.content()
        exchange.final(204)
        self.assertStatuses(message, [], 204)

    @case.over(*case.PROTOCOLS)
    def test_several_for_one_request(self, protocol):
        message = self.connect(protocol).start("POST", "/", length=3)
        exchange = self.upstream.accept()
        for number in range(3):
            exchange.interim(104, "Upload-Offset: %d" % number)
            self.assertEqual(message.next()["Upload-Offset"], str(number))
            message.write(b"x", end=number == 2)
            self.assertEqual(exchange.receive(1), b"x")
        exchange.interim(104, "Upload-Offset: 3")
        exchange.final(200)
        self.assertStatuses(message, [104], 200)

    @case.over(*case.PROTOCOLS)
    def test_without_content(self, protocol):
        client = self.connect(protocol)
        for method in "GET", "HEAD", "DELETE":
            message = client.start(method, "/", length=0 if method == "DELETE" else None)
            exchange = self.upstream.accept()
            exchange.interim(104, "Location: /1")
            self.assertEqual(message.next()["Location"], "/1")
            exchange.content()
            exchange.final(200, "Content-Length: 4", content=b"" if method == "HEAD" else b"four")
            final = self.assertStatuses(message, [], 200)
            self.assertEqual(final.content, b"" if method == "HEAD" else b"four")

    @case.over(*case.PROTOCOLS)
    def test_none_after_final_header(self, protocol):
        message = self.connect(protocol).start("GET", "/")
        exchange = self.upstream.accept()
        exchange.interim(104)
        self.assertEqual(message.next().status, 104)
        # Text that looks like an interim block is content now, whether or not a record begins with it.
        text = b"Status: 104 No\r\n\r\n"
        exchange.stdout(b"Status: 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        exchange.stdout(text)
        exchange.stdout(text + text)
        exchange.end()
        self.assertEqual(self.assertStatuses(message, [], 200).content, text * 3)

    @case.over(*case.HTTP1)
    def test_none_for_http_1_0(self, protocol):
        message = self.connect(protocol).start("POST", "/", content=b"hello", version="1.0")
        exchange = self.upstream.accept()
        exchange.interim(104)
        self.assertEqual(exchange.content(), b"hello")
        exchange.interim(104)
        exchange.final(201, content=b"made")
        self.assertEqual(self.assertStatuses(message, [], 201).content, b"made")

    @case.over(*case.HTTP1)
    def test_chunked(self, protocol):
        message = self.connect(protocol).start("POST", "/", chunked=True)
        exchange = self.upstream.accept()
        exchange.interim(104)
        self.assertEqual(message.next().status, 104)
        message.write(b"hello ")
        self.assertEqual(exchange.receive(1), b"hello ")
        exchange.interim(104)
        self.assertEqual(message.next().status, 104)
        message.write(b"world", end=True)
        self.assertEqual(exchange.content(), b"world")
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*case.HTTP2)
    def test_content_of_unknown_length(self, protocol):
        message = self.connect(protocol).start("POST", "/")
        exchange = self.upstream.accept()
        exchange.interim(104)
        self.assertEqual(message.next().status, 104)
        message.write(b"hello", end=True)
        self.assertEqual(exchange.content(), b"hello")
        exchange.final(201)
        self.assertStatuses(message, [], 201)

    @case.over(*case.HTTP1)
    def test_pipelined(self, protocol):
        client = self.connect(protocol)
        client.send(b"".join(b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n%d%d"
                             % (n, n, n) for n in range(3)))
        first = client.start("GET", "/last")
        for number in range(3):
            exchange = self.upstream.accept()
            self.assertEqual(exchange.params["REQUEST_URI"], "/%d" % number)
            exchange.interim(104, "Location: /%d" % number)
            self.assertEqual(exchange.content(), b"%d%d" % (number, number))
            exchange.interim(104)
            exchange.final(200, "X-Number: %d" % number)
            interims, final = first.finish()
            self.assertEqual([one["Location"] for one in interims], ["/%d" % number, None])
            self.assertEqual(final["X-Number"], str(number))
        exchange = self.upstream.accept()
        exchange.content()
        exchange.final(204)
        self.assertStatuses(first, [], 204)

    @case.over(*case.HTTP1)
    def test_on_the_wire(self, protocol):
        client = self.connect(protocol)
        client.start("GET", "/")
        exchange = self.upstream.accept()
        exchange.interim(104, "Upload-Offset:7", "X-Empty:", "X-Spaces:   a b  ")
        self.assertEqual(client.take_until(b"\r\n\r\n").split(b"\r\n")[0],
                         b"HTTP/1.1 104 Upload Resumption Supported")
        exchange.content()
        exchange.final(204)
        self.assertTrue(client.take_until(b"\r\n\r\n").startswith(b"HTTP/1.1 204 "))


class Progress(case.NginxTestCase):
    server = "location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104; }"
    SIZE = 5 << 20

    @case.over(*case.PROTOCOLS)
    def test_offset_rises_with_content(self, protocol):
        sent = []

        def script(exchange):
            while exchange.receive(1 << 16):
                sent.append(exchange.received)
                exchange.interim(104, "Upload-Offset: %d" % exchange.received)
            exchange.final(201)

        self.upstream.serve(script)
        message = self.connect(protocol).start("POST", "/", content=b"x" * self.SIZE)
        interims, final = message.finish()
        self.assertEqual(final.status, 201)
        self.assertEqual([int(one["Upload-Offset"]) for one in interims], sent)
        self.assertEqual(sent, sorted(set(sent)))
        self.assertEqual(sent[-1], self.SIZE)
        self.assertGreater(len(sent), 20)
