"""nginx keeps a connection to the responder only if the request and the response on it are complete."""


import case
from lab.fastcgi import END_REQUEST, STDERR, STDOUT, block, end, record

HEADER = record(STDOUT, block(204))

# Complete responses to HEAD, in one write: nginx keeps the connection.
WHOLE = {
    "header_and_end": HEADER + end(),
    "stdout_ended": HEADER + record(STDOUT) + end(),
    "header_in_records": record(STDOUT, block(204)[:9]) + record(STDOUT, block(204)[9:], padding=3) + end(),
    "padded": record(STDOUT, block(204), padding=255) + record(END_REQUEST, bytes(8), padding=7),
    "stderr_between": HEADER + record(STDERR, b"oops") + record(STDERR) + end(),
    "application_status": HEADER + end(status=3),
    "content_for_head": record(STDOUT, block(200, "Content-Length: 4") + b"four") + end(),
    "interim_before": record(STDOUT, block(104)) + HEADER + end(),
    "interim_in_same_record": record(STDOUT, block(104) + block(204)) + end(),
    "interims_in_records": record(STDOUT, block(104)[:15])
                           + record(STDOUT, block(104)[15:] + block(104), padding=1)
                           + record(STDERR) + HEADER + end(),
}

# Responses that are incomplete, invalid, followed by more, or have a protocol status: nginx closes the connection.
CLOSED = {
    "no_end": HEADER,
    "half_an_end": HEADER + end()[:-3],
    "header_of_an_end": HEADER + end()[:8],
    "half_the_padding": HEADER + record(END_REQUEST, bytes(8), padding=7)[:-3],
    "incomplete_stdout": record(STDOUT, block(200) + b"four")[:-2],
    "empty_stderr_after": HEADER + end() + record(STDERR),
    "a_byte_after": HEADER + end() + b"\x01",
    "a_response_after": HEADER + end() + HEADER + end(),
    "end_of_another_request": HEADER + record(END_REQUEST, bytes(8), request=2),
    "end_of_version_2": HEADER + record(END_REQUEST, bytes(8), version=2),
    "end_too_short": HEADER + record(END_REQUEST, bytes(7)),
    "end_too_long": HEADER + record(END_REQUEST, bytes(9)),
    "cannot_multiplex": HEADER + end(protocol_status=1),
    "overloaded": HEADER + end(protocol_status=2),
    "stdin_between": HEADER + record(5, b"x") + end(),
    "end_inside_incomplete_stdout": HEADER + record(STDOUT, end())[:-1],
}


class KeepTestCase(case.NginxTestCase):
    http = "upstream kept { server %%UPSTREAM%%; keepalive 8; }"

    def assertKept(self, exchange, client, path="/next"):
        """nginx sends the next request on the same connection."""
        message = client.start("GET", path)
        exchange.following()
        self.assertEqual(exchange.params["REQUEST_URI"], path)
        exchange.content()
        exchange.whole(204)
        self.assertStatuses(message, [], 204)

    def request(self, protocol, method, path="/", content=None):
        """Returns (client, message, exchange) of a request. The responder has read its content."""
        client = self.connect(protocol)
        message = client.start(method, path, content=content)
        exchange = self.upstream.accept()
        self.assertEqual(exchange.content(), content or b"")
        return client, message, exchange

    def send_part(self, message, exchange, size):
        """Sends the first `size` of 1000 bytes, and waits until the responder has received them."""
        if size:
            message.write(b"x" * size, end=size == 1000)
        received = 0
        while received < size:
            received += len(exchange.receive(1))


class Kept(KeepTestCase):
    server = """
        interim_responses 104;
        fastcgi_keep_conn on;
        location / { fastcgi_pass kept; }
        location /buffered { fastcgi_pass kept; fastcgi_buffering on; }
        location /collected { fastcgi_pass kept; fastcgi_request_buffering on; }
        location /variable { set $to kept; fastcgi_pass $to; }
        location /intercepted { fastcgi_pass kept; fastcgi_intercept_errors on; error_page 404 /static; }
        location /redirected { fastcgi_pass kept; }
        location /off { fastcgi_pass kept; interim_responses off; }
        location /not_kept { fastcgi_pass kept; fastcgi_keep_conn off; }
        location /no_group { fastcgi_pass %%UPSTREAM%%; }
        location /small { fastcgi_pass kept; fastcgi_buffer_size 1k; interim_responses off; }
    """

    @case.over(*case.PROTOCOLS)
    def test_without_content(self, protocol):
        client = self.connect(protocol)
        exchange = None
        for path in "/", "/buffered", "/collected", "/variable", "/off":
            for method, status, *fields in (("HEAD", 200, "Content-Length: 4"), ("HEAD", 200), ("HEAD", 404),
                                            ("GET", 204), ("GET", 304), ("DELETE", 204), ("GET", 404)):
                message = client.start(method, path, length=0 if method == "DELETE" else None)
                exchange = exchange.following() if exchange else self.upstream.accept()
                exchange.content()
                exchange.whole(status, *fields)
                self.assertStatuses(message, [], status)
        self.assertEqual(self.upstream.connections(), 1)

    @case.over(*case.PROTOCOLS)
    def test_with_content(self, protocol):
        client = self.connect(protocol)
        exchange = None
        for path in "/", "/buffered", "/collected", "/off":
            for size in 0, 10, 3000, 40000:
                for fields in ((), ("Content-Length: %d" % size,)):
                    message = client.start("POST", path, content=b"y" * size or None, length=size)
                    exchange = exchange.following() if exchange else self.upstream.accept()
                    self.assertEqual(len(exchange.content()), size)
                    exchange.whole(201, *fields, content=b"x" * size)
                    self.assertEqual(len(self.assertStatuses(message, [], 201).content), size)
        self.assertEqual(self.upstream.connections(), 1)

    @case.over(*WHOLE)
    def test_whole(self, name):
        for protocol in case.PROTOCOLS:
            with self.subTest(protocol):
                client, message, exchange = self.request(protocol, "HEAD")
                exchange.write(WHOLE[name])
                self.assertIn(message.finish()[1].status, (200, 204))
                self.assertKept(exchange, client)
                exchange.close()

    @case.over(*WHOLE)
    def test_whole_in_two_reads(self, name):
        # nginx may keep or close the connection, depending on the split. The next request must succeed.
        whole = WHOLE[name]
        self.upstream.serve(lambda exchange: self.split(exchange, whole))
        client = self.connect()
        for at in range(1, len(whole)):
            message = client.start("HEAD", "/%d" % at)
            self.assertIn(message.finish()[1].status, (200, 204))

    def split(self, exchange, whole):
        exchange.content()
        at = int(exchange.params["REQUEST_URI"][1:])
        exchange.write(whole[:at])
        exchange.write(whole[at:])

    @case.over(*CLOSED)
    def test_closed(self, name):
        for protocol in case.PROTOCOLS:
            with self.subTest(protocol):
                client, message, exchange = self.request(protocol, "HEAD")
                exchange.write(CLOSED[name])
                self.assertIn(message.finish()[1].status, (200, 204))
                exchange.until_closed()

    @case.over(*case.PROTOCOLS)
    def test_late_end_after_content(self, protocol):
        client, message, exchange = self.request(protocol, "GET")
        exchange.stdout(block(200, "Content-Length: 4") + b"four")
        if protocol in case.HTTP1:      # over HTTP/2, nginx ends the stream only after END_REQUEST
            self.assertEqual(self.assertStatuses(message, [], 200).content, b"four")
        exchange.write(end())
        if protocol in case.HTTP2:
            self.assertEqual(self.assertStatuses(message, [], 200).content, b"four")
        self.assertKept(exchange, client)

    @case.over("empty_stderr_after", "a_byte_after", "a_response_after")
    def test_bytes_after_content(self, name):
        for path in "/", "/buffered":
            client, message, exchange = self.request("h1", "GET", path)
            exchange.whole(200, "Content-Length: 4", content=b"four", after=CLOSED[name][len(HEADER + end()):])
            self.assertEqual(self.assertStatuses(message, [], 200).content, b"four")
            exchange.until_closed()

    @case.over(*case.PROTOCOLS)
    def test_interims_before_response(self, protocol):
        client = self.connect(protocol)
        message = client.start("POST", "/", length=5)
        exchange = self.upstream.accept()
        exchange.interim(104, "Location: /1")
        self.assertEqual(message.next()["Location"], "/1")
        message.write(b"hello", end=True)
        self.assertEqual(exchange.content(), b"hello")
        exchange.whole(204, before=record(STDOUT, block(104, "Upload-Offset: 5")))
        self.assertStatuses(message, [104], 204)
        self.assertKept(exchange, client)

    @case.over(*(protocol + "_" + status for protocol in case.PROTOCOLS for status in ("204", "413")))
    def test_response_during_content(self, how):
        protocol, status = how.split("_")
        for sent in 0, 400:
            message = self.connect(protocol).start("POST", "/", length=1000)
            exchange = self.upstream.accept()
            self.send_part(message, exchange, sent)
            exchange.whole(int(status))
            self.assertStatuses(message, [], int(status))
            exchange.until_closed()

    @case.over(*case.PROTOCOLS)
    def test_client_aborts(self, protocol):
        for sent in 0, 400, 1000:
            client = self.connect(protocol)
            message = client.start("POST", "/", length=1000)
            exchange = self.upstream.accept()
            self.send_part(message, exchange, sent)
            client.reset()
            exchange.until_closed(2.5)

    def test_redirected_and_intercepted(self):
        client, message, exchange = self.request("h1", "GET", "/redirected")
        exchange.whole(200, "X-Accel-Redirect: /static")
        self.assertEqual(self.assertStatuses(message, [], 200).content, b"a static file\n")
        self.assertKept(exchange, client, "/intercepted")
        message = client.start("GET", "/intercepted")
        exchange.following().content()
        exchange.whole(404)
        self.assertStatuses(message, [], 404)
        self.assertKept(exchange, client)

    def test_not_configured(self):
        for path in "/not_kept", "/no_group":
            client, message, exchange = self.request("h1", "HEAD", path)
            self.assertEqual(exchange.keep, path == "/no_group")
            exchange.whole(204)
            self.assertStatuses(message, [], 204)
            exchange.until_closed()

    def test_stderr_larger_than_buffer(self):
        client, message, exchange = self.request("h1", "HEAD", "/small")
        # nginx resets its buffer within this record. The rest of the record looks like other records.
        fake = record(STDOUT, b"x") + end()
        exchange.write(record(STDERR, b"e" * (1024 - 8) + fake * 20))
        exchange.whole(204)
        self.assertStatuses(message, [], 204)
        exchange.until_closed()

    def test_1000_requests(self):
        def script(exchange):
            exchange.content()
            exchange.whole(204 if exchange.params["REQUEST_METHOD"] == "DELETE" else 200, "Content-Length: 0")

        self.upstream.serve(script)
        clients = [self.connect(protocol) for protocol in case.PROTOCOLS]
        for number in range(250):
            method = ("HEAD", "DELETE", "GET", "POST")[number % 4]
            content, length = {"POST": (b"x" * number, number), "DELETE": (None, 0)}.get(method, (None, None))
            messages = [client.start(method, "/%d" % number, content=content, length=length)
                        for client in clients]
            for message in messages:
                self.assertStatuses(message, [], 204 if method == "DELETE" else 200)
        self.assertLessEqual(self.upstream.connections(), len(clients))


class KeptSubrequests(KeepTestCase):
    server = """
        fastcgi_keep_conn on;
        location / { fastcgi_pass kept; }
        location /protected { auth_request /auth; fastcgi_pass kept; }
        location = /auth { internal; fastcgi_pass kept; fastcgi_pass_request_body off;
                           fastcgi_param CONTENT_LENGTH ""; interim_responses 104; }
    """

    @case.over(*case.PROTOCOLS)
    def test_auth_request(self, protocol):
        client, message, exchange = self.request(protocol, "GET", "/protected")
        exchange.whole(200, content=b"yes")
        exchange.following().content()
        exchange.whole(200, content=b"content")
        self.assertEqual(self.assertStatuses(message, [], 200).content, b"content")
        self.assertKept(exchange, client)
