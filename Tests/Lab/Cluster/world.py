"""Two nodes, the nginx in front of them and the application behind them, in a separate directory."""

import os
import shutil
import threading
import time

from Cluster.application import Application
from Cluster.ceph import Ceph
from Cluster.client import Client, Task
from Cluster.front import Front
from Cluster.gateway import Gateway
from Cluster.moments import Moments
from lab.processes import must

NODES = ("n1", "n2")


class World:
    """A context manager that removes everything on exit.

    If the spool is shared, each node has its own mount of it; otherwise each has its own spool.
    """

    def __init__(self, scratch, is_shared):
        self.directory = os.path.join(scratch, "shared" if is_shared else "own")
        self.is_shared = is_shared
        # The factor by which time limits are extended for nodes that share a machine.
        self.slowness = 1
        self.moments = Moments()
        self.application = None
        self.ceph = None
        self.mounts = {}
        self.gateways = {}
        self.front = None
        self._began = time.monotonic()

    def __enter__(self):
        # nginx's workers must be able to reach the sockets.
        os.makedirs(self.directory, mode=0o755)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        self.seconds = round(time.monotonic() - self._began, 1)
        return self

    def _start(self):
        self.application = Application(self.moments)
        if self.is_shared:
            self.ceph = Ceph(os.path.join(self.directory, "ceph"))
            os.mkdir(self.ceph.directory)
            self.ceph.start()
            self.mounts = {name: self.ceph.mount(name) for name in NODES}
        for name in NODES:
            spool = os.path.join(self.mounts[name].path if self.is_shared else self.directory)
            spool = os.path.join(spool, "spool" if self.is_shared else f"spool-{name}")
            upstream = f"http://127.0.0.1:{self.application.port}"
            self.gateways[name] = Gateway(name, self.directory, spool, upstream, self.is_shared)
            self.gateways[name].start()
        self.front = Front(self.directory, self.gateways.values(), self.is_shared)
        self.front.start()

    def __exit__(self, *_):
        if self.front:
            self.front.stop()
        for mount in self.mounts.values():
            # A daemon whose mount is stopped cannot end.
            mount.thaw()
        for gateway in self.gateways.values():
            gateway.kill()
        if self.ceph:
            self.ceph.stop()
        if self.application:
            self.application.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def heal(self):
        """Makes both nodes serve again after a scene, and releases the application."""
        self.application.release()
        for name, gateway in self.gateways.items():
            if self.mounts:
                self.mounts[name].thaw()
            if gateway.status() is not None:
                gateway.start()

    def client(self, task, route=lambda request: None):
        return Client(task, self.front.port, route, self.moments)

    def begin(self, draw, name, route=lambda request: None, largest=1 << 21, **values):
        """A client that has created an upload, and is never interrupted; `values` are further ones of its task."""
        task = Task(f"{draw.random()}", largest)
        vars(task).update({"number": name, "breaks": [], "pieces": 0, "is_careful": True, **values})
        client = self.client(task, route)
        client.create()
        return client

    def begin_whole(self, draw, name, route=lambda request: None):
        """A client, and its request for a whole upload with 30,000 bytes of its content; the Location has arrived."""
        task = Task(f"{draw.random()}")
        vars(task).update(number=name, breaks=[], is_careful=False, content=draw.randbytes(60_000))
        client = self.client(task, route)
        fields = {"Upload-Complete": "?1", "Content-Length": len(task.content)}
        exchange = client.open(task.method, client.begin(), fields)
        exchange.send(task.content[:30_000])
        client.current.sent = len(task.content)
        must(10, "the Location arrives", lambda: exchange.listen(0.1) and client.current.location)
        return client, exchange

    def run(self, clients, seconds, at_a_time=8, beside=lambda: None):
        """Performs uploads until their end, with `beside` running at the same time."""
        deadline = time.monotonic() + seconds
        left, lock = list(reversed(clients)), threading.Lock()

        def work():
            while True:
                with lock:
                    if not left:
                        return
                    client = left.pop()
                try:
                    client.run(deadline)
                except Exception as error:  # noqa: BLE001: it is that upload's failure
                    client.faults.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=work, daemon=True) for _ in range(at_a_time)]
        for thread in threads:
            thread.start()
        try:
            beside()
        finally:
            self.moments.go_on()
            for thread in threads:
                thread.join(max(1, deadline + 60 - time.monotonic()))

    def replaying(self, draw):
        """The node from which a replay is requested."""
        return draw.choice(NODES)

    def log_sizes(self):
        return {name: len(node.log()) for name, node in self.gateways.items()}

    def check_logs(self, transcript, since, sentence, allowed):
        """Checks the nodes' logs since their `log_sizes` for warnings that match none of the patterns."""
        said = [line for name, node in self.gateways.items() for line in node.complaints(since[name], allowed)]
        transcript.check(not said, sentence, "\n".join(said[:20]))

    def play(self, transcript, title, scene, draw, prefix=""):
        """Plays a scene; if it fails, prints the nodes' logs as `tell` does."""

        def play_healed():
            self.heal()
            scene(self, transcript, draw)

        transcript.scene(title)
        if not transcript.attempt(play_healed):
            self.tell(transcript, prefix)

    def tell(self, transcript, prefix=""):
        """Prints the nodes' last log lines; all lines go to CLUSTER_KEEP, in files whose names begin with `prefix`."""
        keep = os.environ.get("CLUSTER_KEEP")
        for name, node in self.gateways.items():
            lines = node.log().splitlines()
            transcript.say(f"  the last of {len(lines)} log lines of {name}:")
            transcript.output("\n".join(lines[-8:]))
            if keep:
                os.makedirs(keep, exist_ok=True)
                with open(os.path.join(keep, f"{prefix}{name}.log"), "w") as file:
                    file.write(node.log())

    @staticmethod
    def other(node):
        return NODES[1 - NODES.index(node)]
