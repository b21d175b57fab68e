"""Any division into FastCGI records results in the same interim responses and the same final response."""

import case
from lab import fastcgi
from lab.fastcgi import STDERR, STDOUT, block, end, record, records

BLOCKS = [block(104, "Location: /resource/1"), block(104, "Upload-Offset: 10", "X-Second: two"),
          block(104)]
FINAL = block(201, "X-Final: yes") + b"made " * 30
LF_BLOCKS = [data.replace(b"\r\n", b"\n") for data in BLOCKS]
ALL = b"".join(BLOCKS)


def split_empty_line(data):
    """Return two records, divided between the CR and LF of the empty line that ends a block."""
    return record(STDOUT, data[:-1]) + record(STDOUT, data[-1:])


FRAMINGS = {
    "a_record_per_block": b"".join(record(STDOUT, data) for data in BLOCKS) + record(STDOUT, FINAL),
    "records_of_1": records(STDOUT, ALL + FINAL, 1),
    "records_of_2": records(STDOUT, ALL + FINAL, 2),
    "records_of_7": records(STDOUT, ALL + FINAL, 7),
    "records_of_50": records(STDOUT, ALL + FINAL, 50),
    "one_record": record(STDOUT, ALL + FINAL),
    "blocks_in_one_record": record(STDOUT, ALL) + record(STDOUT, FINAL),
    "last_block_with_final": record(STDOUT, BLOCKS[0]) + record(STDOUT, BLOCKS[1])
        + record(STDOUT, BLOCKS[2] + FINAL),
    "lf_only": b"".join(record(STDOUT, data) for data in LF_BLOCKS) + record(STDOUT, FINAL),
    "lf_only_in_records_of_3": records(STDOUT, b"".join(LF_BLOCKS) + FINAL, 3),
    "lf_only_in_one_record": record(STDOUT, b"".join(LF_BLOCKS) + FINAL),
    "padded": records(STDOUT, ALL + FINAL, 40, padding=7),
    "much_padded": b"".join(record(STDOUT, data, padding=255) for data in BLOCKS + [FINAL]),
    "padded_records_of_1": records(STDOUT, ALL + FINAL, 1, padding=3),
    "cut_in_empty_line": b"".join(map(split_empty_line, BLOCKS)) + record(STDOUT, FINAL),
    "cut_in_last_empty_line": record(STDOUT, ALL[:-1]) + record(STDOUT, ALL[-1:] + FINAL),
    "cut_in_status": record(STDOUT, ALL[:5]) + record(STDOUT, ALL[5:] + FINAL),
    "cut_after_status_digit": record(STDOUT, ALL[:9]) + record(STDOUT, ALL[9:] + FINAL),
    "cut_in_final_status": record(STDOUT, ALL + FINAL[:9]) + record(STDOUT, FINAL[9:]),
    "stderr_between": b"".join(record(STDERR, b"a complaint") + record(STDOUT, data)
                               for data in BLOCKS + [FINAL]),
    "stderr_padded_between": b"".join(record(STDERR, b"a complaint\n", 5) + record(STDOUT, data, 2)
                                      for data in BLOCKS + [FINAL]),
    "much_stderr_first": record(STDERR, b"e" * 3000) + record(STDOUT, ALL) + record(STDOUT, FINAL),
    "stderr_after_all": record(STDOUT, ALL) + record(STDOUT, FINAL) + record(STDERR, b"late"),
    "empty_stderr": record(STDERR) + record(STDOUT, ALL) + record(STDERR) + record(STDOUT, FINAL),
}

LOCATION = """
    fastcgi_param REQUEST_METHOD $request_method;
    fastcgi_param CONTENT_LENGTH $content_length;
    location / { fastcgi_pass %s; interim_responses 104; %s }
"""


class Matrix:
    """All framings in one kind of location; `protocols` and `pieces` limit the run time."""

    protocols = case.PROTOCOLS
    pieces = (None, 1)      # bytes per write to the socket; None for all at once

    @case.over(*FRAMINGS)
    def test_framing(self, name):
        data = FRAMINGS[name] + record(STDOUT) + end()
        for protocol in self.protocols:
            for piece in self.pieces:
                with self.subTest(protocol=protocol, piece=piece):
                    self.play(protocol, data, piece)

    def play(self, protocol, data, piece):
        client = self.connect(protocol)
        message = client.start("POST", "/", content=b"content")
        exchange = self.next_exchange()
        self.assertEqual(exchange.content(), b"content")
        for at in range(0, len(data), piece or len(data)):
            exchange.write(data[at:at + (piece or len(data))])
        exchange.shutdown()
        interims, final = message.finish()
        self.assertEqual([(one["Location"], one["Upload-Offset"], one["X-Second"]) for one in interims],
                         [("/resource/1", None, None), (None, "10", "two"), (None, None, None)])
        self.assertEqual((final.status, final["X-Final"], final.content),
                         (201, "yes", b"made " * 30))
        self.assertEqual(client.start("GET", "/static").finish()[1].status, 200)
        client.close()

    def next_exchange(self):
        return self.upstream.accept()


class Unbuffered(Matrix, case.NginxTestCase):
    server = LOCATION % ("%%UPSTREAM%%", "")


class UnixSocket(Matrix, case.NginxTestCase):
    unix = True
    protocols = ("h1", "h2")
    server = LOCATION % ("%%UPSTREAM%%", "")


class Buffered(Matrix, case.NginxTestCase):
    protocols = ("h1s", "h2c")
    server = LOCATION % ("%%UPSTREAM%%", "fastcgi_buffering on;")


class RequestBuffered(Matrix, case.NginxTestCase):
    protocols = ("h1", "h2")
    pieces = (None,)
    server = LOCATION % ("%%UPSTREAM%%", "fastcgi_request_buffering on;")


class KeptConnection(Matrix, case.NginxTestCase):
    """All requests of the class use one FastCGI connection, which reveals a byte too many or too few."""

    protocols = ("h1", "h2")
    http = "upstream kept { server %%UPSTREAM%%; keepalive 1; }"
    server = LOCATION % ("kept", "fastcgi_keep_conn on;")

    def setUp(self):
        super().setUp()
        self.exchange = None

    def next_exchange(self):
        if self.exchange is None:
            self.exchange = self.upstream.accept()
        else:
            self.exchange.following()
        self.assertTrue(self.upstream.idle())
        return self.exchange


class LargeRecords(case.NginxTestCase):
    server = LOCATION % ("%%UPSTREAM%%", "fastcgi_buffer_size 4k;")

    @case.over(*case.PROTOCOLS)
    def test_large_content_in_the_record_of_the_blocks(self, protocol):
        content = bytes(range(256)) * 200
        for blocks in (BLOCKS[:1], BLOCKS):
            message = self.connect(protocol).start("GET", "/")
            exchange = self.upstream.accept()
            exchange.content()
            exchange.write(record(STDOUT, b"".join(blocks) + block(200) + content) + end())
            final = self.assertStatuses(message, [104] * len(blocks), 200)
            self.assertEqual(final.content, content)

    @case.over(*case.PROTOCOLS)
    def test_block_continues_in_a_largest_record(self, protocol):
        content = bytes(range(256)) * 300
        text = b"".join(BLOCKS) + block(200) + content
        for cut in 3, len(BLOCKS[0]) - 1, len(BLOCKS[0]) + 20, len(ALL) - 1:
            for padding in 0, 9:
                for pieces in [-1], [1] * 30 + [-1], [1000, -1]:
                    message = self.connect(protocol).start("GET", "/")
                    exchange = self.upstream.accept()
                    exchange.content()
                    exchange.write(record(STDOUT, text[:cut], padding))
                    rest = fastcgi.records(STDOUT, text[cut:], padding=padding)
                    for size in pieces:
                        piece, rest = (rest, b"") if size < 0 else (rest[:size], rest[size:])
                        exchange.write(piece)
                    exchange.end()
                    final = self.assertStatuses(message, [104] * len(BLOCKS), 200)
                    self.assertEqual(final.content, content)
                    exchange.close()

    @case.over(*case.PROTOCOLS)
    def test_more_blocks_than_the_buffer_holds(self, protocol):
        message = self.connect(protocol).start("GET", "/")
        exchange = self.upstream.accept()
        exchange.content()
        blocks = [block(104, "Upload-Offset: %d" % n, "X-Fill: " + "f" * 500) for n in range(50)]
        exchange.stdout(b"".join(blocks))
        exchange.final(200)
        interims, final = message.finish()
        self.assertEqual([one["Upload-Offset"] for one in interims], [str(n) for n in range(50)])
        self.assertEqual(final.status, 200)

    def test_every_division(self):
        # Two records, divided before, at and after the end of a block.
        whole = BLOCKS[1] + FINAL
        for cut in range(1, len(BLOCKS[1]) + 14):
            message = self.connect().start("GET", "/")
            exchange = self.upstream.accept()
            exchange.content()
            exchange.write(record(STDOUT, whole[:cut]) + record(STDOUT, whole[cut:]) + fastcgi.end())
            interims, final = message.finish()
            self.assertEqual([one["X-Second"] for one in interims], ["two"], cut)
            self.assertEqual(final.content, b"made " * 30, cut)
            exchange.close()
