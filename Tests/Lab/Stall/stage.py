"""nginx with the shipped location in front of a gateway whose spool and drop directory are on the stalling disk."""

import glob
import hashlib
import os
import re
import select
import shutil
import signal
import sys

from lab.gateway import Gateway, ship, ship_module, start_nginx, write
from lab.processes import MODULE, Unavailable, free_ports, must, processor

# A row of the table: its name, the path of its uploads, and the value of spool_receive.
ROWS = {
    "off": ("`spool_receive off`", "/files/", "off"),
    "worker": ("`spool_receive worker`", "/files/", "worker"),
    "on": ("`spool_receive on`", "/files/", "on"),
    "dav": ("nginx's `dav_methods PUT`", "/dav/", "off"),
    "proxy": ("nginx's `proxy_pass`, request buffered", "/proxy/", "off"),
}
# System calls that write: write, pwrite64, writev, pwritev, pwritev2 of x86-64; those of arm64.
WRITES = {
    "x86_64": {1, 18, 20, 296, 328},
    "aarch64": {64, 68, 66, 70, 287},
}.get(os.uname().machine, set())
# fsync and fdatasync, with which the gateway also waits for the disk.
SYNCS = {"x86_64": {74, 75}, "aarch64": {82, 83}}.get(os.uname().machine, set())

SETTINGS = """socket-mode: "0666"
threads: {{maximum: 500}}
spool: {{directory: {mount}/spool, reserve: 16MiB}}
routes:
  default:
    upstream: directory:{mount}/drop
    spool-receive: on
"""

NGINX = """load_module {module};
user root;
worker_processes 1;
error_log {directory}/error.log error;
pid {directory}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    include {directory}/nginx/http.conf;
    client_body_temp_path {directory}/temporary;
    proxy_temp_path {directory}/temporary;
    fastcgi_temp_path {directory}/temporary;
    uwsgi_temp_path {directory}/temporary;
    scgi_temp_path {directory}/temporary;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        root {directory}/pages;
        client_max_body_size 0;
        # The location that is requested during the stall. Its file is on another disk.
        location = /page {{ }}
        location ^~ /files/ {{
            include {directory}/nginx/pass.conf;
            fastcgi_param SPOOLGATE_ROUTE  default;
            fastcgi_param SPOOLGATE_ORIGIN http://$host;
            include {directory}/nginx/location.conf;
        }}
        include {directory}/nginx/server.conf;
        location ^~ /dav/ {{
            root {mount};
            client_body_temp_path {mount}/body;
            dav_methods PUT;
        }}
        location ^~ /proxy/ {{
            proxy_pass http://127.0.0.1:{sink};
            client_body_temp_path {mount}/body;
        }}
    }}
}}
"""


def chosen(variable, kind, known):
    """The names in an environment variable, which must be known; all of them by default."""
    names = os.environ.get(variable, "").split() or list(known)
    unknown = [one for one in names if one not in known]
    if unknown:
        sys.exit(f"make stall-test: unknown {kind} {unknown[0]}; known: {' '.join(known)}")
    return names


def rows():
    return chosen("STALL_ROWS", "row", ROWS)


def module():
    """The nginx module's path."""
    path = os.environ.get("STALL_MODULE") or MODULE
    if not os.path.exists(path):
        raise Unavailable(f"the nginx module {path} is missing: make module")
    return path


class Stage:
    """One nginx and one gateway, with their own directories on the disk."""

    def __init__(self, directory, mount, row, sink=9):
        self._directory, self._mount = directory, mount
        _, self.path, self._mode = ROWS[row]
        self.port = free_ports(1)[0]
        self._sink = sink
        self._nginx = self._gateway = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        for name in ("temporary", "pages"):
            os.makedirs(f"{self._directory}/{name}")
        for name in ("spool", "drop", "dav", "body"):
            os.makedirs(f"{self._mount}/{name}")
        with open(f"{self._directory}/pages/page", "wb") as page:
            page.write(bytes(4096))
        self._gateway = Gateway(self._directory, SETTINGS.format(mount=self._mount))
        self._gateway.start()
        folder = f"{self._directory}/nginx"
        self._write_nginx(folder)
        self._nginx = start_nginx(folder, self.port)
        must(20, "nginx has its worker", lambda: len(self._nginx.children) == 1)
        self.worker = self._nginx.children[0]

    def _write_nginx(self, folder):
        """The shipped files, with other paths and the row's value of spool_receive."""
        socket = self._gateway.socket
        ship(
            folder,
            [f"{name}.conf" for name in "http location params pass server".split()],
            edit=lambda text: text.replace("/run/spoolgate/spoolgate.sock", socket),
        )
        ship_module(folder, self._with_mode)
        words = {"module": module(), "directory": self._directory, "mount": self._mount}
        write(f"{folder}/nginx.conf", NGINX.format(port=self.port, sink=self._sink, **words))

    def _with_mode(self, text):
        return re.sub(r"(?m)^spool_receive .*;", f"spool_receive {self._mode};", text)

    # The state of its processes.

    def writes(self):
        """The threads of nginx's worker and of the gateway that write to the disk or sync it now."""
        return self.worker_writes(), self._busy(self._gateway.identity, WRITES | SYNCS)

    def worker_writes(self):
        return self._busy(self.worker, WRITES)

    def _busy(self, process, calls):
        # Reading a link in /proc needs no file system.
        busy = 0
        for thread in glob.glob(f"/proc/{process}/task/*"):
            try:
                with open(f"{thread}/syscall") as file:
                    words = file.read().split()
                if words[0].isdigit() and int(words[0]) in calls:
                    path = os.readlink(f"/proc/{process}/fd/{int(words[1], 16)}")
                    busy += path.startswith(self._mount + "/")
            except OSError:
                # The thread has ended or the descriptor is closed.
                pass
        return busy

    def worker_seconds(self):
        """The processor time of nginx's worker; None if it has ended."""
        try:
            return processor(self.worker)
        except OSError:
            return None

    def terminate(self):
        """Sends TERM to nginx; returns a descriptor that becomes readable when the worker ends."""
        worker = os.pidfd_open(self.worker)
        self._nginx.send(signal.SIGTERM)
        return worker

    def lane_bytes(self):
        """The bytes that nginx wrote into the spool."""
        figures = re.findall(r"(?m)^spoolgate_spool_receive_bytes_total.* (\S+)$", self._gateway.metrics())
        return sum(map(float, figures))

    def digests(self):
        """The SHA-256 of each file that was stored on the disk, sorted."""
        paths = glob.glob(f"{self._mount}/drop/*") + glob.glob(f"{self._mount}/dav/*")
        found = []
        for path in paths:
            if not path.endswith(".json"):
                with open(path, "rb") as file:
                    found.append(hashlib.file_digest(file, "sha256").hexdigest())
        return sorted(found)

    def quit(self):
        """Ends nginx and the gateway as an operator does; returns the names of those that do not end in time."""
        left = []
        gateway = self._gateway.process
        for name, process, number in (("nginx", self._nginx, signal.SIGQUIT), ("the gateway", gateway, signal.SIGTERM)):
            process.send(number)
            if process.wait(30) is None:
                left.append(name)
        return left

    def complaints(self):
        """The lines that nginx and the gateway logged as warnings or errors."""
        with open(f"{self._directory}/error.log", errors="replace") as file:
            lines = file.read().splitlines()
        return lines + self._gateway.complaints()

    def __exit__(self, *_):
        """The disk must not be stalled any more."""
        for process in (self._nginx, self._gateway and self._gateway.process):
            if process:
                for child in process.children if process.status is None else ():
                    os.kill(child, signal.SIGKILL)
                process.kill()
        for name in ("spool", "drop", "dav", "body"):
            shutil.rmtree(f"{self._mount}/{name}", ignore_errors=True)
        shutil.rmtree(self._directory, ignore_errors=True)


def ended_within(descriptor, seconds):
    """Whether the process of a pidfd ends in time."""
    return bool(select.select([descriptor], [], [], seconds)[0])
