"""Slow uploads of many clients, each with an address and connections of its own, in separate processes."""

import asyncio
import collections
import dataclasses
import multiprocessing
import time
import typing

# A request that was admitted lasts longer than this; one that is rejected ends sooner, after at most a second.
ADMITTED = 1.2
# The seconds in which all uploads must be finished.
PATIENCE = 300

fork = multiprocessing.get_context("fork")


@dataclasses.dataclass
class Plan:
    port: int
    count: int
    # The bytes that each upload sends, and the seconds after which it sends them again.
    portion: int
    period: float
    # Clients that begin in a second.
    openings: float
    # The address of a client, by its number.
    address: typing.Callable
    # Whether each client creates an upload first, and resumes it whenever its connection is closed; otherwise each
    # request is an upload of its own.
    resumes: bool = True
    length: int = 100_000_000
    # The seconds after which a client returns, and those between the returns of any two clients.
    pause: float = 1
    turn: float = 0
    # Further lines of each header section.
    fields: tuple = ()


class Clients:
    """The clients of a plan, from now on."""

    def __init__(self, plan, processes=1):
        self._pipes, self._processes = [], []
        for first in range(processes):
            ours, theirs = fork.Pipe()
            numbers = range(first, plan.count, processes)
            process = fork.Process(target=_run, args=(plan, numbers, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def _ask(self, word):
        for pipe in self._pipes:
            pipe.send(word)
        return sum((collections.Counter(pipe.recv()) for pipe in self._pipes), collections.Counter())

    def counts(self):
        """What happened since the last call: `begun`, `ended` (admitted requests), `twice` (those of a client that had
        returned), `rejected` and `lowered` (offsets). And what is: `open` requests, and the bytes `told`.
        """
        return self._ask("counts")

    def finish(self):
        """Sends the rest of each upload; returns how many of them received each status."""
        return self._ask("finish")

    def leave(self):
        """Closes all connections, and retrieves each offset once more; returns the counts."""
        return self._ask("leave")

    def stop(self):
        for process in self._processes:
            process.kill()
            process.join()


def _run(plan, numbers, pipe):
    asyncio.run(_Process(plan, numbers).serve(pipe))


class _Process:
    def __init__(self, plan, numbers):
        self.plan = plan
        self.counts = collections.Counter()
        self.turn = asyncio.Lock()
        self.start, self.finishing = 0, None
        self.clients = [_Client(number, self) for number in numbers]

    async def serve(self, pipe):
        loop, words = asyncio.get_running_loop(), asyncio.Queue()
        loop.add_reader(pipe.fileno(), lambda: words.put_nowait(pipe.recv()))
        self.finishing = loop.create_future()
        # Once every client has an upload, each needs a thread for its content.
        self.start = time.monotonic() + self.plan.count / self.plan.openings + 2
        tasks = [asyncio.create_task(client.live()) for client in self.clients]
        while True:
            word = await words.get()
            if word == "finish":
                self.finishing.set_result(None)
                async with asyncio.timeout(PATIENCE):
                    pipe.send(collections.Counter(await asyncio.gather(*tasks)))
                continue
            if word == "leave":
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await asyncio.gather(*(client.ask() for client in self.clients), return_exceptions=True)
            self.counts["open"] = sum(client.is_open for client in self.clients)
            self.counts["told"] = sum(client.told for client in self.clients)
            pipe.send(dict(self.counts))
            self.counts.clear()


class _Client:
    def __init__(self, number, process):
        self.number, self.process, self.plan = number, process, process.plan
        self.target, self.told, self.ends = None, 0, 0
        self.is_open = False

    async def live(self):
        """Sends its upload, again and again until all finish; returns the final status."""
        await asyncio.sleep(self.number / self.plan.openings)
        while True:
            status = 0
            try:
                status = await (self._resume() if self.plan.resumes else self._upload())
            except (OSError, EOFError):
                pass
            if self.process.finishing.done():
                return status
            await asyncio.sleep(self.plan.pause)
            if self.plan.turn:
                async with self.process.turn:
                    await asyncio.sleep(self.plan.turn)

    async def _upload(self):
        lines = ("Upload-Complete: ?1", f"Content-Length: {self.plan.length}")
        return await self._send("POST /files/slow", self.plan.portion, *lines)

    async def _resume(self):
        if self.target is None:
            status, fields = await self._request("POST /files/slow", "Upload-Complete: ?0", "Content-Length: 0")
            if status != 201:
                return 0
            self.target = "/" + fields["location"].split("/", 3)[3]
            await asyncio.sleep(self.process.start + self.number / self.plan.openings - time.monotonic())
        if await self.ask() != 204:
            return 0
        lines = (f"Upload-Offset: {self.told}", "Upload-Complete: ?0", "Content-Type: application/partial-upload")
        return await self._send(f"PATCH {self.target}", 0, *lines, f"Content-Length: {self.plan.length}")

    async def ask(self):
        """Retrieves the offset; returns the status."""
        status, fields = await self._request(f"HEAD {self.target}")
        if status == 204:
            offset = int(fields["upload-offset"])
            self.process.counts["lowered"] += offset < self.told
            self.told = max(self.told, offset)
        return status

    async def _request(self, what, *lines):
        reader, writer = await self._open(what, *lines, "Connection: close")
        try:
            return await _final(reader)
        finally:
            writer.close()

    async def _open(self, what, *lines):
        local = (self.plan.address(self.number), 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.plan.port, local_addr=local)
        lines = (f"{what} HTTP/1.1", "Host: localhost", *self.plan.fields, *lines, "", "")
        writer.write("\r\n".join(lines).encode())
        return reader, writer

    async def _send(self, what, sent, *lines):
        """Sends one request's content in portions, until it is finished, or ended by the server; returns its status."""
        plan, process = self.plan, self.process
        reader, writer = await self._open(what, *lines)
        begun, self.is_open = time.monotonic(), True
        process.counts["begun"] += 1
        writer.write(b"x" * sent)
        answer = asyncio.create_task(_final(reader))
        due = begun + plan.period * (self.number % 97) / 97
        try:
            while not answer.done() and not process.finishing.done():
                await asyncio.wait(
                    (answer, process.finishing),
                    timeout=max(0, due - time.monotonic()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if time.monotonic() >= due:
                    portion = min(plan.portion, plan.length - sent)
                    writer.write(b"x" * portion)
                    sent, due = sent + portion, due + plan.period
            if not answer.done():
                writer.write(b"x" * (plan.length - sent))
            else:
                self._count_end(time.monotonic() - begun)
            return (await answer)[0]
        finally:
            answer.cancel()
            writer.close()
            self.is_open = False

    def _count_end(self, seconds):
        counts = self.process.counts
        if seconds > ADMITTED:
            self.ends += 1
            counts["ended"] += 1
            counts["twice"] += self.ends > 1
        else:
            counts["rejected"] += 1


async def _final(reader):
    """The status and the fields of the final response; its content is not read."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        if status >= 200:
            return status, {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:-2])}
