"""Clients that do not read: nginx continues to read from the responder, keeps the order, and does not grow."""

import threading
import time

import case
import options
from lab.fastcgi import STDOUT, block, end, record

FILL = "X-Fill: " + "f" * 200


class BlockedClients(case.NginxTestCase):
    server = """
        interim_responses 104;
        send_timeout 30s;
        location = /again { internal; fastcgi_pass %%UPSTREAM%%; }
        location = /off { internal; fastcgi_pass %%UPSTREAM%%; interim_responses off; }
        location = /error {
            fastcgi_pass %%UPSTREAM%%; fastcgi_intercept_errors on; error_page 503 = @again;
        }
        location @again { fastcgi_pass %%UPSTREAM%%; }
    """
    send_buffer = 4096
    COUNT = 6000

    def blocked(self, protocol, path="/"):
        """Returns (client, message, exchange) of a request to whose client nginx can write no more."""
        client = self.connect(protocol, receive_buffer=4096)
        message = client.start("POST", path, content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.sock.settimeout(options.patience(20))
        for number in range(self.COUNT):
            exchange.interim(104, "Upload-Offset: %d" % number, FILL)
        return client, message, exchange

    def check_interims(self, interims):
        offsets = [int(one["Upload-Offset"]) for one in interims]
        self.assertEqual(offsets[0], 0)
        self.assertEqual(offsets, sorted(set(offsets)))
        self.assertLess(len(offsets), self.COUNT, "the client was never blocked")
        for one in interims:
            self.assertEqual(one["X-Fill"], "f" * 200)

    @case.over(*case.PROTOCOLS)
    def test_reads_after_the_final_response(self, protocol):
        client, message, exchange = self.blocked(protocol)
        exchange.final(200, content=b"0123456789" * 3000)
        interims, final = message.finish()
        self.check_interims(interims)
        self.assertEqual((final.status, final.content), (200, b"0123456789" * 3000))
        self.assertEqual(client.start("GET", "/static").finish()[1].status, 200)

    @case.over(*case.PROTOCOLS)
    def test_reads_before_the_final_response(self, protocol):
        client, message, exchange = self.blocked(protocol)
        first = message.next()
        self.assertEqual(first["Upload-Offset"], "0")
        # nginx first sends the queued interim responses, then forwards new ones again.
        interims = [first]
        deadline = time.monotonic() + options.patience(5)
        number = self.COUNT
        while int(interims[-1]["Upload-Offset"]) < self.COUNT and time.monotonic() < deadline:
            exchange.interim(104, "Upload-Offset: %d" % number, FILL)
            number += 1
            interims.append(message.next())
        self.assertGreaterEqual(int(interims[-1]["Upload-Offset"]), self.COUNT)
        exchange.final(200)
        more, final = message.finish()
        self.check_interims(interims + more)
        self.assertEqual(final.status, 200)

    @case.over(*case.PROTOCOLS)
    def test_reads_small_parts(self, protocol):
        client, message, exchange = self.blocked(protocol)
        exchange.final(200, content=b"end")
        whole = client.receive

        def drip():
            received = client.sock.recv(97)
            if not received:
                whole()     # raises
            return received

        client.receive = drip
        interims, final = message.finish()
        self.check_interims(interims)
        self.assertEqual(final.content, b"end")

    @case.over(*(protocol + end for protocol in case.PROTOCOLS for end in ("_fin", "_rst")))
    def test_aborts_while_blocked(self, how):
        protocol, ending = how.split("_")
        client, message, exchange = self.blocked(protocol)
        client.reset() if ending == "rst" else client.close()
        exchange.until_closed(5)

    @case.over(*case.PROTOCOLS)
    def test_aborts_with_the_final_response_queued(self, protocol):
        client, message, exchange = self.blocked(protocol)
        exchange.final(200, content=b"x" * 200000)
        client.reset()
        exchange.until_closed(5)

    @case.over(*case.PROTOCOLS)
    def test_redirected_while_blocked(self, protocol):
        for target in "/static", "/again", "/off", "@again":
            client, message, exchange = self.blocked(protocol, "/error" if target == "@again" else "/")
            if target == "@again":
                exchange.final(503)
            else:
                exchange.final(200, "X-Accel-Redirect: " + target)
            if target != "/static":
                second = self.upstream.accept()
                second.content()
                for number in range(100 if target != "/off" else 0):
                    second.interim(104, "Upload-Offset: %d" % (self.COUNT + number), FILL)
                second.final(200, content=b"second")
            interims, final = message.finish()
            self.check_interims(interims)
            self.assertEqual((final.status, final.content),
                             (200, b"a static file\n" if target == "/static" else b"second"))
            client.close()

    @case.over("h1", "h2")
    def test_responder_closes_while_blocked(self, protocol):
        client, message, exchange = self.blocked(protocol)
        exchange.close()
        interims, final = message.finish()
        self.check_interims(interims)
        self.assertEqual(final.status, 502)

    @case.over(*case.PROTOCOLS)
    def test_blocked_during_content(self, protocol):
        client = self.connect(protocol, receive_buffer=4096)
        message = client.start("POST", "/", length=400000)
        exchange = self.upstream.accept()
        for number in range(self.COUNT):
            exchange.interim(104, "Upload-Offset: %d" % number, FILL)
        received = []
        reader = threading.Thread(target=lambda: received.append(exchange.content()), daemon=True)
        reader.start()
        if protocol in case.HTTP1:      # over HTTP/2, write() reads the interim responses before each WINDOW_UPDATE
            message.write(b"x" * 400000)
        else:
            message.write(b"x" * 400000, end=True)
        reader.join(options.patience(10))
        self.assertEqual(len(received[0]), 400000)
        exchange.final(201)
        interims, final = message.finish()
        self.check_interims(interims)
        self.assertEqual(final.status, 201)


class Thousands(case.NginxTestCase):
    server = "interim_responses 104;"

    @case.over(*case.PROTOCOLS)
    def test_5000(self, protocol):
        message = self.connect(protocol).start("POST", "/", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        offsets = []
        for start in range(0, 5000, 50):    # few enough that no socket buffer fills
            exchange.write(b"".join(record(STDOUT, block(104, "Upload-Offset: %d" % number))
                                    for number in range(start, start + 50)))
            offsets += [int(message.next()["Upload-Offset"]) for _ in range(50)]
        self.assertEqual(offsets, list(range(5000)))
        exchange.final(200)
        self.assertStatuses(message, [], 200)


class Memory(case.NginxTestCase):
    """200,000 interim responses to one request do not increase the memory of the worker process."""

    server = "interim_responses 104;"
    COUNT = 200000
    BATCH = 10000

    def setUp(self):
        if options.valgrind or options.sanitized():
            self.skipTest("resident memory is not comparable under valgrind or AddressSanitizer")
        super().setUp()

    def count_http1(self, client):
        data = client.receive()
        client.buffer = client.buffer[-16:]
        seen = (client.buffer + data).count(b"HTTP/1.1 104") - client.buffer.count(b"HTTP/1.1 104")
        client.buffer += data
        return seen

    def count_http2(self, client):
        """Counts HEADERS frames itself, because python-h2 is too slow for so many."""
        data = client.rest + client.receive()
        at = seen = 0
        while len(data) - at >= 9:
            size = 9 + int.from_bytes(data[at:at + 3], "big")
            if len(data) - at < size:
                break
            seen += data[at + 3] == 1
            at += size
        client.rest = data[at:]
        return seen

    @case.over(*case.PROTOCOLS)
    def test_flat(self, protocol):
        client = self.connect(protocol)
        message = client.start("POST", "/", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(104)
        self.assertEqual(message.next().status, 104)
        client.rest = b""
        count = self.count_http1 if protocol in case.HTTP1 else self.count_http2
        batch = record(STDOUT, block(104, "Upload-Offset: 1234567890", "X-Fill: " + "f" * 30)) * self.BATCH
        sizes, passed = [], 0
        client.sock.settimeout(0.05)
        for _ in range(self.COUNT // self.BATCH):
            writer = threading.Thread(target=exchange.write, args=(batch,))
            writer.start()
            exchange.sock.settimeout(options.patience(20))
            quiet = False
            while writer.is_alive() or not quiet:
                try:
                    passed += count(client)
                except TimeoutError:
                    quiet = True
            writer.join()
            sizes.append(self.nginx.resident())
        self.assertLess(sizes[-1] - sizes[1], 512, sizes)
        self.assertGreater(passed, self.COUNT // 10)
        exchange.write(record(STDOUT, block(200)) + end())
        exchange.until_closed()
