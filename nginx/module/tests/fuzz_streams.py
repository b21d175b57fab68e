"""Random FastCGI output: the bytes that the responder writes for a seed, and the expected responses.

The same seed always makes the same stream. A valid stream knows the interim responses and the final response that
a reading client receives. nginx must survive an invalid one.
"""

import random

from lab import fastcgi
from lab.fastcgi import STDERR, STDOUT

PASSED = (100, 103, 104)    # by `interim_responses` in fuzz.py, which ignores the 100
NAMES = ["Location", "Upload-Offset", "Upload-Limit", "x", "X-Mixed-CASE", "X-" + "n" * 62]
REMOVED = ["Connection: close", "Content-Length: 7", "Transfer-Encoding: chunked", "X-Accel-Expires: 1",
           "Keep-Alive: a", "Trailer: b"]
ODD = [b"", b":", b"no colon", b"Na me: v", b" folded: v", b"A: \x00", b"A: b\rc", b"\xff: v", b"A:" + b"v" * 300,
       b"n" * 65 + b": v", b"n" * 5000 + b": v", b"Status: 104", b"Status: 200", b"X-Accel-Redirect: /static",
       b"Content-Length: 3", b"X-Accel-Buffering: yes", b"Location: /static", b"A: \x7f"]


class Stream:
    """`writes` is a list of (bytes, pause in seconds)."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.valid = self.random.random() < 0.6
        self.interims = []      # (status, [(lower-case name, value)])
        self.status = self.random.choice([200, 201, 204, 403, 413, 500])
        self.content = b"" if self.status == 204 else self.random.randbytes(
            self.random.choice([0, 1, 10, 500, 5000, 70000]))
        self.reads_first = self.random.random() < 0.7   # reads the content before it responds
        self.how = self.random.choice(["close", "reset", "end"])
        self.writes = self._writes(self._valid() if self.valid else self._invalid())

    def _block(self):
        r = self.random
        status = r.choice([104, 104, 104, 103, 102, 100, 199, r.randrange(100, 200)])
        lines, kept = [], []
        for _ in range(r.choice([0, 1, 1, 2, 3, 10])):
            if r.random() < 0.15:
                lines.append(r.choice(REMOVED))
                continue
            name = r.choice(NAMES)
            value = "".join(r.choices("abc /:=\t~\xe9", k=r.choice([0, 1, 5, 20, 130]))).strip(" \t")
            lines.append(name + r.choice([": ", ":", ":  ", ":\t"]) + value + r.choice(["", "", " "]))
            kept.append((name.lower(), value))
        if status in PASSED and status != 100:
            self.interims.append((status, kept))
        return fastcgi.block(status, *lines, newline=r.choice(["\r\n", "\r\n", "\n"]))

    def _final(self):
        return fastcgi.block(self.status, "X-Final: yes") + self.content

    def _valid(self):
        """Blocks in records of random sizes, mixed with STDERR; each block fits the buffer."""
        r = self.random
        pieces = [self._block() for _ in range(r.choice([0, 1, 1, 2, 5, 20]))] + [self._final()]
        out, text = b"", b""
        for piece in pieces:
            text += piece
            if r.random() < 0.5 or piece is pieces[-1]:
                out += self._records(text)
                text = b""
                if r.random() < 0.3:
                    out += fastcgi.record(STDERR, r.choice([b"", b"oops", b"e" * 900]), r.choice([0, 0, 5]))
        if r.random() < 0.7:
            out += fastcgi.record(STDOUT)
        return out + fastcgi.end()

    def _records(self, text):
        """Divide `text` into records; each block, with its record headers and padding, must fit a buffer of 4k."""
        r = self.random
        out = b""
        small = r.random() < 0.3
        while text:
            size = r.randrange(20, 200) if small else r.choice([len(text), r.randrange(50, 2000), 65535])
            piece, text = text[:size], text[size:]
            if len(piece) > 65535:
                piece, text = piece[:65535], piece[65535:] + text
            out += fastcgi.record(STDOUT, piece, r.choice([0, 0, 0, r.randrange(8)]))
        return out

    def _invalid(self):
        r = self.random
        out = b""
        for _ in range(r.choice([1, 2, 3, 6, 15])):
            out += r.choice([self._mutated_block, self._odd_block, self._odd_record, self._noise,
                             self._ordinary, self._huge])()
        if r.random() < 0.3:
            out = out[:r.randrange(len(out) + 1)]
        elif r.random() < 0.7:
            out += fastcgi.records(STDOUT, self._final()) + fastcgi.end()
        return out

    def _ordinary(self):
        return self._records(self._block())

    def _mutated_block(self):
        r = self.random
        data = bytearray(self._block())
        for _ in range(r.choice([1, 1, 2, 5])):
            data[r.randrange(len(data))] = r.randrange(256)
        data = bytearray(fastcgi.record(STDOUT, bytes(data), r.choice([0, 8])))
        if r.random() < 0.3:
            data[r.randrange(8)] = r.randrange(256)
        return bytes(data)

    def _odd_block(self):
        r = self.random
        first = r.choice([b"Status: 104", b"Status:104", b"status: 1", b"Status: 1044", b"Status: 99", b"Status",
                          b"Status: 104\x00", b"Status: 100", b"Status: 101 Switching Protocols", b"X: y",
                          b"Status:" + b" " * r.choice([5, 5000]) + b"104", b"Status: 200", b"Status: 1xx"])
        lines = [first] + r.choices(ODD, k=r.choice([0, 1, 3, 30]))
        text = r.choice([b"\r\n", b"\n", b"\r"]).join(lines + [b"", b""])
        return fastcgi.records(STDOUT, text, r.choice([1, 3, 40, 1000, 65535]), r.choice([0, 0, 1, 255]))

    def _odd_record(self):
        r = self.random
        return fastcgi.record(r.choice([0, 1, 3, 5, 6, 6, 7, 7, 11, 255]), r.randbytes(r.choice([0, 1, 8, 100])),
                              r.choice([0, 0, 3, 255]), r.choice([1, 1, 1, 0, 2, 257]), r.choice([1, 1, 1, 0, 2]))

    def _noise(self):
        return self.random.randbytes(self.random.choice([1, 7, 8, 9, 100]))

    def _huge(self):
        r = self.random
        kind = r.choice([STDOUT, STDERR])
        text = b"Status: 104\r\n" if kind == STDOUT and r.random() < 0.7 else b""
        return fastcgi.records(kind, text + r.choice([b"a", b"a: ", b"\n", b"\r\n", b"\x00"]) * r.choice([2000, 6000]),
                               r.choice([500, 4088, 4096, 65535]), r.choice([0, 200]))

    def _writes(self, data):
        """Split the bytes into writes, some followed by a pause."""
        r = self.random
        how = r.choice(["whole", "whole", "few", "bytes"])
        out, at = [], 0
        while at < len(data):
            if how == "whole" or at > 3000:
                size = len(data)
            else:
                size = r.randrange(1, 5) if how == "bytes" else r.randrange(1, 300)
            pause = r.choice([0.0005, 0.003]) if how != "whole" and r.random() < 0.05 else 0
            out.append((data[at:at + size], pause))
            at += size
        return out
