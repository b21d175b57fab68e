"""The clients, each kind in a separate process: uploads, requests for a page, and an upstream that reads content."""

import asyncio
import hashlib
import multiprocessing
import os
import random
import resource
import threading
import time

from lab.application import Application
from lab.exchange import Exchange
from lab.http1 import Closed

PIECE = 256 << 10
# The seconds between two pieces of one upload, and between two requests for the page.
GAP = 0.05
PING = 0.01
# The longest wait for one response.
PATIENCE = 120

fork = multiprocessing.get_context("fork")


def pieces(number, size):
    """The content of an upload. Each piece differs."""
    block = random.Random(number).randbytes(PIECE - 8)
    for index in range(size // PIECE):
        yield index.to_bytes(8, "big") + block


class Separate:
    """A process that runs `_run`, and puts results into a queue."""

    def __init__(self, *arguments):
        self._results = fork.SimpleQueue()
        self._process = fork.Process(target=self._run, args=arguments, daemon=True)
        self._process.start()

    def _taken(self):
        """The results so far."""
        found = []
        while not self._results.empty():
            found.append(self._results.get())
        return found

    def stop(self):
        self._process.kill()
        self._process.join()


class Uploads(Separate):
    """`count` concurrent uploads; `results` has each one's status and the SHA-256 of its content."""

    def __init__(self, port, path, count, size):
        self._sent = fork.Value("Q", 0)
        self._total = count * size
        super().__init__(port, path, count, size)

    def share_sent(self):
        """The part of all content that was sent."""
        return self._sent.value / self._total

    def _run(self, port, path, count, size):
        threads = [
            threading.Thread(target=self._upload, args=(port, f"{path}u{number}.bin", number, size))
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _upload(self, port, target, number, size):
        digest = hashlib.sha256()
        fields = {"Upload-Draft-Interop-Version": "10", "Upload-Complete": "?1", "Content-Length": size}
        try:
            exchange = Exchange(port, "PUT", target, fields, patience=PATIENCE)
            for piece in pieces(number, size):
                digest.update(piece)
                if not exchange.send(piece):
                    break
                with self._sent.get_lock():
                    self._sent.value += len(piece)
                time.sleep(GAP)
            status = exchange.final().status
        except Closed as error:
            status = repr(error)
        self._results.put((status, digest.hexdigest()))

    def results(self):
        """Waits for the end of all uploads."""
        self._process.join(PATIENCE)
        found = self._taken()
        self.stop()
        return found


class Pings(Separate):
    """Requests the page a hundred times a second, each time on a new connection."""

    def __init__(self, port):
        self._ours, theirs = fork.Pipe()
        super().__init__(port, theirs)

    def _run(self, port, pipe):
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
        pipe.send(asyncio.run(self._ask(port, pipe)))

    async def _ask(self, port, pipe):
        answers, tasks, at = [], [], time.monotonic()

        async def ask(at):
            is_good = False
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /page HTTP/1.0\r\n\r\n")
                is_good = b" 200 " in (await reader.read(-1))[:16]
                writer.close()
            except OSError:
                pass
            answers.append((at, time.monotonic() - at, is_good))

        while not pipe.poll():
            await asyncio.sleep(max(0, at - time.monotonic()))
            tasks.append(asyncio.create_task(ask(at)))
            at += PING
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
        return answers

    def end(self):
        """Waits for all responses: (time of the request, seconds until the response, whether it was 200)."""
        self._ours.send(True)
        answers = self._ours.recv() if self._ours.poll(PATIENCE) else []
        self.stop()
        return answers


class Digests(Application):
    def __init__(self, pipe, digests):
        self._digests = digests
        super().__init__()
        pipe.send(self.port)

    def respond(self, request):
        self._digests.put(request.digest)
        return 201, {}, ""


class Sink(Separate):
    """An upstream that keeps only the SHA-256 of each request's content, in a separate process."""

    def __init__(self):
        ours, theirs = fork.Pipe()
        super().__init__(theirs)
        self.port = ours.recv()

    def _run(self, pipe):
        Digests(pipe, self._results)
        threading.Event().wait()

    def digests(self):
        return sorted(self._taken())


def settings():
    """The number of concurrent uploads, the size of each, and the seconds of a stall."""
    count = int(os.environ.get("STALL_UPLOADS") or 20)
    size = int(os.environ.get("STALL_MIB") or 32) << 20
    return count, size, float(os.environ.get("STALL_SECONDS") or 8)
