"""The clients, each kind in a separate process: uploads, requests for a page, and an upstream that reads content."""

import asyncio
import hashlib
import multiprocessing
import os
import random
import resource
import socket
import threading
import time

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


class Uploads:
    """`count` concurrent uploads; `results` has each one's status and the SHA-256 of its content."""

    def __init__(self, port, path, count, size):
        self._sent = fork.Value("Q", 0)
        self._total = count * size
        self._results = fork.SimpleQueue()
        self._count = count
        self._process = fork.Process(target=self._run, args=(port, path, count, size), daemon=True)
        self._process.start()

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
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as peer:
                peer.sendall(
                    f"PUT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n"
                    "Upload-Draft-Interop-Version: 10\r\nUpload-Complete: ?1\r\n"
                    "Connection: close\r\n\r\n".encode()
                )
                for piece in pieces(number, size):
                    digest.update(piece)
                    peer.sendall(piece)
                    with self._sent.get_lock():
                        self._sent.value += len(piece)
                    time.sleep(GAP)
                answer = b"".join(iter(lambda: peer.recv(1 << 16), b""))
            said = [int(part[9:12]) for part in answer.split(b"\r\n\r\n") if part[:7] == b"HTTP/1."]
            status = said[-1] if said else "no answer"
        except OSError as error:
            status = repr(error)
        self._results.put((status, digest.hexdigest()))

    def results(self):
        """Waits for the end of all uploads."""
        self._process.join(PATIENCE)
        found = []
        while not self._results.empty():
            found.append(self._results.get())
        self.stop()
        return found

    def stop(self):
        self._process.kill()
        self._process.join()


class Pings:
    """Requests the page a hundred times a second, each time on a new connection."""

    def __init__(self, port):
        self._ours, theirs = fork.Pipe()
        self._process = fork.Process(target=self._run, args=(port, theirs), daemon=True)
        self._process.start()

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

    def stop(self):
        self._process.kill()
        self._process.join()


class Sink:
    """An upstream that keeps only the SHA-256 of each request's content."""

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = listener.getsockname()[1]
        self._digests = fork.SimpleQueue()
        self._process = fork.Process(target=self._run, args=(listener,), daemon=True)
        self._process.start()
        listener.close()

    def _run(self, listener):
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=self._take, args=(peer,), daemon=True).start()

    def _take(self, peer):
        with peer, peer.makefile("rb", 1 << 18) as stream:
            length = 0
            while (line := stream.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            digest = hashlib.sha256()
            while length > 0 and (part := stream.read1(min(length, 1 << 18))):
                digest.update(part)
                length -= len(part)
            if length == 0:
                self._digests.put(digest.hexdigest())
                peer.sendall(b"HTTP/1.0 201 Created\r\nContent-Length: 0\r\n\r\n")

    def digests(self):
        found = []
        while not self._digests.empty():
            found.append(self._digests.get())
        return sorted(found)

    def stop(self):
        self._process.kill()
        self._process.join()


def settings():
    """The number of concurrent uploads, the size of each, and the seconds of a stall."""
    count = int(os.environ.get("STALL_UPLOADS") or 20)
    size = int(os.environ.get("STALL_MIB") or 32) << 20
    return count, size, float(os.environ.get("STALL_SECONDS") or 8)
