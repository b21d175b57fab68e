"""A gateway, and nginx with the shipped files, in a directory of a test."""

import os
import re
import shutil
import subprocess

from lab import fastcgi, processes
from lab.processes import MODULE, ROOT, NeverHappened, Process, must, tool


class Gateway:
    """A daemon that `start` starts; after it has ended for any reason, it may be started again."""

    def __init__(self, directory, settings, program=None, prefix=()):
        """`settings` are those after `listen`; `prefix` is a command that runs the program."""
        self.directory = str(directory)
        self.socket = f"{self.directory}/spoolgate.sock"
        self.settings = f"{self.directory}/spoolgate.yaml"
        self.program = program or processes.gateway()
        self.process = None
        self._prefix = prefix
        os.makedirs(self.directory, exist_ok=True)
        with open(self.settings, "w") as file:
            file.write(f'listen: "unix:{self.socket}"\n{settings}')

    def launch(self, **more):
        """Starts it without waiting; `more` as for Process."""
        command = [*self._prefix, self.program, "serve", "--config", self.settings]
        self.process = Process(command, f"{self.directory}/spoolgate.log", **more)

    def start(self, seconds=30, **more):
        self.launch(**more)
        try:
            must(seconds, "the gateway serves", lambda: self.process.listens(self.socket))
        except NeverHappened as never:
            raise NeverHappened(f"{never}: {self.process.calls} {self.process.files}") from None

    def kill(self):
        if self.process:
            self.process.kill()

    @property
    def identity(self):
        return self.process.identity

    def status(self):
        """Its exit status; None while it runs."""
        return self.process.status if self.process else None

    def wait(self, seconds):
        return self.process.wait(seconds)

    def log(self):
        return self.process.said() if self.process else ""

    def metrics(self):
        """The page of its metrics."""
        return fastcgi.ask(f"{self.directory}/admin.sock", fastcgi.METRICS).decode()

    def complaints(self, since=0, allowed=()):
        """The log lines at level warning or above that match none of the patterns."""
        return [
            line
            for line in self.log()[since:].splitlines()
            if re.search(r" level=(warning|error|critical) |Fatal error|Crash", line)
            and not any(re.search(pattern, line) for pattern in allowed)
        ]


def ship(folder, names, change=lambda line, mark: line, edit=lambda text: text):
    """Writes shipped files for nginx into a folder.

    `edit` changes a file's text; `change` changes a line, given the word after its `# run:` or None.
    """
    for name in names:
        with open(f"{ROOT}/nginx/{name}") as file:
            text = file.read().replace("/usr/share/spoolgate/nginx/", "")
        text = edit(text.replace("/etc/nginx/conf.d/spoolgate*", "http*"))
        lines = []
        for line in text.splitlines():
            mark = re.search(r"# run: ([a-z0-9-]+)", line)
            lines.append(change(line, mark and mark[1]))
        write(f"{folder}/{name}", "\n".join(line for line in lines if "[::]:" not in line) + "\n")


def ship_module(folder, change=lambda text: text):
    """Copies the nginx module and writes its shipped files into `modules` of a folder."""
    os.makedirs(f"{folder}/modules/upstream")
    shutil.copy(MODULE, f"{folder}/modules")
    for source, target in (("interim", ""), ("keepalive", "upstream/")):
        with open(f"{ROOT}/nginx/module/{source}.conf") as file:
            write(f"{folder}/modules/{target}{source}.conf", change(file.read()))


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def certify(key, certificate):
    """Makes a key and its self-signed certificate for localhost."""
    subprocess.run(
        [tool("openssl", "test"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        + ["-days", "3650", "-subj", "/CN=localhost", "-keyout", key, "-out", certificate],
        check=True,
        stderr=subprocess.DEVNULL,
    )


def start_nginx(folder, port):
    """Starts nginx in the foreground, with nginx.conf in a folder; returns the process once it listens on the port."""
    os.makedirs(f"{folder}/log", exist_ok=True)
    command = ["nginx", "-p", folder, "-e", f"{folder}/log/error.log", "-c", "nginx.conf", "-g", "daemon off;"]
    nginx = Process(command, f"{folder}/log/start.log")
    must(20, "nginx listens", lambda: nginx.listens(port))
    return nginx
