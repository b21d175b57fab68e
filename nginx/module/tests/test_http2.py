"""Features of HTTP/2: concurrent streams, HPACK table sizes, flow control, RST_STREAM."""

import random

import case
import options
from lab.fastcgi import block

FILL = "X-Fill: " + "f" * 200


class Streams(case.NginxTestCase):
    server = "interim_responses 104;"

    @case.over(*case.HTTP2)
    def test_20_in_parallel(self, protocol):
        client = self.connect(protocol)
        messages = [client.start("POST", "/%d" % n, length=4) for n in range(20)]
        exchanges = [self.upstream.accept() for _ in messages]
        order = random.Random(1)
        for offset in range(5):
            for exchange in order.sample(exchanges, 20):
                exchange.interim(104, "X-Of: " + exchange.params["REQUEST_URI"],
                                 "Upload-Offset: %d" % offset)
        for number, message in enumerate(messages):
            message.write(b"%4d" % number, end=True)
        for exchange in exchanges:
            self.assertEqual(b"/%d" % int(exchange.content()), exchange.params["REQUEST_URI"].encode())
            exchange.final(200, "X-Of: " + exchange.params["REQUEST_URI"])
        for number, message in enumerate(messages):
            interims, final = message.finish()
            self.assertEqual([one["Upload-Offset"] for one in interims], list("01234"))
            self.assertEqual({one["X-Of"] for one in [*interims, final]}, {"/%d" % number})

    @case.over(*case.HTTP2)
    def test_table_size_changes(self, protocol):
        # python-h2 rejects a header block that lacks the size update after a reduction of the table.
        client = self.connect(protocol)
        for size in 4096, 0, 100, 4096, 65536, 1, 0, 4096:
            client.settings(HEADER_TABLE_SIZE=size)
            message = client.start("POST", "/", content=b"x")
            exchange = self.upstream.accept()
            exchange.content()
            exchange.interim(104, "Upload-Offset: 1")
            exchange.interim(104, "Upload-Offset: 2")
            exchange.final(200, "X-A: b")
            self.assertStatuses(message, [104, 104], 200)
            self.assertStatuses(client.start("GET", "/static"), [], 200)

    @case.over(*case.HTTP2)
    def test_table_size_changes_between_interims(self, protocol):
        client = self.connect(protocol)
        message = client.start("POST", "/", content=b"x")
        exchange = self.upstream.accept()
        exchange.content()
        for size in 4096, 0, 64, 4096:
            client.settings(HEADER_TABLE_SIZE=size)
            exchange.interim(104, "Upload-Offset: %d" % size)
            self.assertEqual(message.next()["Upload-Offset"], str(size))
        client.settings(HEADER_TABLE_SIZE=0)
        exchange.final(200)
        self.assertStatuses(message, [], 200)

    @case.over(*case.HTTP2)
    def test_smallest_and_larger_frames(self, protocol):
        client = self.connect(protocol)
        client.settings(MAX_FRAME_SIZE=1 << 20)
        message = client.start("GET", "/")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(104, "Long: " + "v" * 3000)
        self.assertEqual(len(message.next()["Long"]), 3000)
        exchange.final(200)
        self.assertStatuses(message, [], 200)

    @case.over(*case.HTTP2)
    def test_names_in_lower_case(self, protocol):
        message = self.connect(protocol).start("GET", "/")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(104, "UPLOAD-Offset: 1", "X-CamelCase: YES")
        self.assertEqual(message.next().fields, [("upload-offset", "1"), ("x-camelcase", "YES")])
        exchange.final(200)
        self.assertStatuses(message, [], 200)

    @case.over(*case.HTTP2)
    def test_large_final_response(self, protocol):
        content = random.Random(2).randbytes(12 << 20)
        self.upstream.serve(lambda exchange: (exchange.content(), exchange.interim(104),
                                              exchange.final(200, content=content)))
        message = self.connect(protocol).start("GET", "/")
        self.assertTrue(self.assertStatuses(message, [104], 200).content == content)

    @case.over(*case.HTTP2)
    def test_interims_need_no_window(self, protocol):
        client = self.connect(protocol, window=0)
        client.settings(INITIAL_WINDOW_SIZE=0)
        stuck = client.start("GET", "/")
        exchange = self.upstream.accept()
        exchange.content()
        exchange.interim(104)
        exchange.final(200, content=b"x" * 1000)
        self.assertEqual(stuck.next().status, 104)
        other = client.start("POST", "/", content=b"x")
        second = self.upstream.accept()
        second.content()
        for number in range(3):
            second.interim(104, "Upload-Offset: %d" % number)
            self.assertEqual(other.next()["Upload-Offset"], str(number))
        second.final(204)
        self.assertStatuses(other, [], 204)
        self.assertEqual(stuck.received, 0)
        client.h2.increment_flow_control_window(1000, stuck.stream)
        client.flush()
        self.assertEqual(len(self.assertStatuses(stuck, [], 200).content), 1000)


class Resets(case.NginxTestCase):
    server = "interim_responses 104;"

    @case.over(*case.HTTP2)
    def test_one_stream_of_two(self, protocol):
        client = self.connect(protocol)
        for interims in 0, 1, 3:
            cancelled = client.start("POST", "/cancelled", length=10)
            first = self.upstream.accept()
            kept = client.start("POST", "/kept", length=4)
            second = self.upstream.accept()
            for exchange, message in (first, cancelled), (second, kept):
                for _ in range(interims):
                    exchange.interim(104)
                    self.assertEqual(message.next().status, 104)
            cancelled.cancel()
            first.until_closed(2.5)
            second.interim(104)
            self.assertEqual(kept.next().status, 104)
            kept.write(b"kept", end=True)
            self.assertEqual(second.content(), b"kept")
            second.final(201)
            self.assertStatuses(kept, [], 201)

    @case.over(*case.HTTP2)
    def test_reset_crosses_interims(self, protocol):
        client = self.connect(protocol)
        for _ in range(30):
            message = client.start("POST", "/", length=10)
            exchange = self.upstream.accept()
            exchange.stdout(block(104, FILL) * 20)
            message.cancel()
            exchange.until_closed(2.5)
        self.assertStatuses(client.start("GET", "/static"), [], 200)

    @case.over(*case.HTTP2)
    def test_connection_closes(self, protocol):
        for reset in False, True:
            client = self.connect(protocol)
            for number in range(5):
                client.start("POST", "/", length=10)
            exchanges = [self.upstream.accept() for _ in range(5)]
            for exchange in exchanges:
                exchange.stdout(block(104, FILL) * 5)
            client.reset() if reset else client.close()
            for exchange in exchanges:
                exchange.until_closed(2.5)


class QueuedFrames(case.NginxTestCase):
    """The client's socket is full, so interim responses wait in nginx's output queue."""

    server = "interim_responses 104;"
    send_buffer = 4096

    def queue(self, protocol, streams=5):
        client = self.connect(protocol, receive_buffer=4096)
        messages = [client.start("POST", "/", length=10) for _ in range(streams)]
        exchanges = [self.upstream.accept() for _ in messages]
        for _ in range(400):
            for exchange in exchanges:
                exchange.sock.settimeout(options.patience(20))
                exchange.interim(104, FILL)
        return client, messages, exchanges

    @case.over(*case.HTTP2)
    def test_reset_of_all_streams(self, protocol):
        client, messages, exchanges = self.queue(protocol)
        for message in messages:
            message.cancel()
        self.assertStatuses(client.start("GET", "/static"), [], 200)
        for exchange in exchanges:
            exchange.until_closed(5)

    @case.over(*case.HTTP2)
    def test_reset_of_some_streams(self, protocol):
        client, messages, exchanges = self.queue(protocol)
        for message in messages[::2]:
            message.cancel()
        for message, exchange in list(zip(messages, exchanges))[1::2]:
            message.write(b"0123456789", end=True)
            self.assertEqual(exchange.content(), b"0123456789")
            exchange.final(201)
            interims, final = message.finish()
            self.assertLess(len(interims), 400)
            self.assertEqual(final.status, 201)
        for exchange in exchanges[::2]:
            exchange.until_closed(5)

    @case.over(*(protocol + end for protocol in case.HTTP2 for end in ("_fin", "_rst")))
    def test_connection_closes(self, how):
        protocol, end = how.split("_")
        client, messages, exchanges = self.queue(protocol)
        client.reset() if end == "rst" else client.close()
        for exchange in exchanges:
            exchange.until_closed(5)

    @case.over(*case.HTTP2)
    def test_final_responses_keep_their_order(self, protocol):
        client, messages, exchanges = self.queue(protocol)
        for message, exchange in zip(messages, exchanges):
            message.write(b"0123456789", end=True)
            exchange.content()
            exchange.final(200, content=b"x" * 20000)
        for message in messages:
            interims, final = message.finish()
            self.assertGreater(len(interims), 0)
            self.assertEqual((final.status, len(final.content)), (200, 20000))
