"""The operator's day: a machine with the application, and the functions that scenes share.

Invariant: the deliveries are checked against the application's own log at the end of the day. A scene only declares
which of its uploads must arrive (`arrives`).
"""

import hashlib
import json
import os
import random
import re
import shutil
import typing

import lab
from lab.processes import wait

SETTINGS = "/etc/spoolgate/spoolgate.yaml"
SNIPPET = "/etc/nginx/snippets/spoolgate.conf"
SITE = "/etc/nginx/sites-enabled/uploads"
NODES = "/etc/nginx/conf.d/spoolgate_nodes.conf"
APPLICATION_LOG = "/srv/application/requests.log"
STORED = "/srv/application/stored"
URL = "http://uploads.example/files/"
UNITS = "-u spoolgate.service -u spoolgate.socket -u spoolgate-purge.service"
CURL = "curl -sS -u alice:secret"
ADMIN = "http://uploads.example/-/spoolgate"
APPLICATION = "http://127.0.0.1:3000"
MODULE = "libnginx-mod-http-interim"

APPLICATION_UNIT = f"""[Unit]
Description=The application that gets the uploads
[Service]
ExecStart=/usr/local/lib/application.py {STORED} {APPLICATION_LOG} 3000
Restart=on-failure
[Install]
WantedBy=multi-user.target
"""


class Scene(typing.NamedTuple):
    """A part of the day, and its effect on the journal at level warning and above.

    `warnings` are patterns of lines that must occur, `allowed` of lines that may occur; no other line may.
    """

    title: str
    play: typing.Callable
    warnings: tuple = ()
    allowed: tuple = ()


class Day:
    def __init__(self, machine, packages, programs, clean_root):
        self.machine = machine
        self.clean_root = clean_root
        self.transcript = machine.transcript
        self.packages = packages
        self.expected = {}
        self._is_short = None
        shutil.copy(f"{programs}/upload.py", machine.path("/usr/local/bin/upload"))
        shutil.copy(f"{programs}/application.py", machine.path("/usr/local/lib/application.py"))
        shutil.copytree(os.path.dirname(lab.__file__), machine.path("/usr/local/lib/lab"))
        machine.quietly("chmod 755 /usr/local/bin/upload /usr/local/lib/application.py")
        machine.write("/etc/systemd/system/application.service", APPLICATION_UNIT)

    def play(self, scene):
        """Plays a scene; an exception counts as a failure, and the day continues."""
        self.transcript.scene(scene.title)
        failed = self.transcript.failed
        self.transcript.attempt(scene.play, self)
        self._judge_journal(scene)
        if self.transcript.failed > failed:
            self.run(f"systemctl status --no-pager -n 0 {UNITS.replace('-u ', '')}", limit=30)
            self.run("journalctl -q -u spoolgate.service -n 25 --no-pager", limit=25)

    def check(self, holds, sentence, detail=""):
        return self.transcript.check(holds, sentence, detail)

    def _judge_journal(self, scene):
        self.machine.quietly("journalctl --sync")
        command = (
            f"journalctl -q -p warning {UNITS} -o cat --cursor-file=/root/read | sort | uniq -c"
        )
        said = self.machine.quietly(command).output
        self.transcript.command(command)
        self.transcript.output(said)
        for pattern in scene.warnings:
            if not re.search(pattern, said):
                self.check(False, f"the journal has the warning: {pattern}")
        known = [*scene.warnings, *scene.allowed]
        other = self.unknown(said, known)
        sentence = (
            "the journal has the warnings of this scene and no other"
            if known or self._lacks_descriptors()
            else "the journal has no warning"
        )
        self.check(not other, sentence, "\n".join(other))

    def unknown(self, said, known):
        """The lines of a journal that match neither the patterns nor this machine's usual warnings."""
        if self._lacks_descriptors():
            known = [*known, r"threads\.maximum lowered"]
        return [line for line in said.splitlines() if not any(re.search(p, line) for p in known)]

    def _lacks_descriptors(self):
        """Whether the machine gives the daemon fewer descriptors than its unit requests.

        A container has at most as many as its host allows, and the daemon logs that. The result, which is read
        while the unit exists, is valid for the whole day.
        """
        if self._is_short is None:
            wanted = self.value("systemctl show -P LimitNOFILE spoolgate.service")
            most = self.value("awk '/^Max open files/ { print $5 }' /proc/1/limits")
            self._is_short = int(most) < int(wanted)
            if self._is_short:
                self.transcript.say(f"  (this machine allows {most} descriptors, not {wanted})")
        return self._is_short

    def run(self, command, **options):
        return self.machine.run(command, **options)

    def must(self, command, sentence, **options):
        """Runs a command that must succeed."""
        result = self.machine.run(command, **options)
        self.check(result.ok, sentence, f"exit {result.status}")
        return result

    def must_show(self, command, text, sentence, **options):
        """Runs a command whose output must contain a text."""
        result = self.machine.run(command, **options)
        self.check(text in result.output, sentence, f"exit {result.status}\n{result.output}")

    def apt(self, words, sentence, machine=None):
        """Runs apt in /root, with the host's network; it must succeed."""
        result = (machine or self.machine).run(f"cd /root && apt {words}", timeout=300, network=True)
        self.check(result.ok, sentence, result.output[-3000:])
        return result

    def install_packages(self, sentence):
        return self.apt("install -y " + " ".join(f"./{name}" for name in self.packages), sentence)

    def package(self, name):
        """The file of a package."""
        return next(package for package in self.packages if package.startswith(f"{name}_"))

    def value(self, command):
        return self.machine.quietly(command).output.strip()

    def main_process(self):
        return self.value("systemctl show -P MainPID spoolgate.service")

    def is_active(self, unit="spoolgate.service"):
        return self.value(f"systemctl is-active {unit}") == "active"

    def journal(self, since, *, unit="spoolgate"):
        """The messages of a unit since a time from `now`."""
        self.machine.quietly("journalctl --sync")
        return self.value(f"journalctl -q -u {unit} -o cat --no-pager --since=@{since}")

    def now(self):
        return self.value("date +%s.%N")

    def reload_nginx(self):
        """Reloads nginx and waits until processes with the old configuration accept no requests."""
        workers = "grep -slza '^nginx: worker process *$' /proc/[0-9]*/cmdline"
        before = set(self.value(workers).split())
        self.must("nginx -t && systemctl reload nginx", "nginx accepts its configuration")
        wait(20, lambda: not before & set(self.value(workers).split()))

    def open_admin(self):
        """Includes the status page and the metrics in the site."""
        include = "include /usr/share/spoolgate/nginx/admin"
        self.machine.edit(SNIPPET, lambda text: text.replace(f"#{include}", include))

    def start_application(self, url=APPLICATION):
        self.run("systemctl start application")
        is_up = wait(20, lambda: self.value(f"curl -s {url}/") == "the application is up")
        self.check(is_up, "the application is back")

    def set_value(self, text, path, value):
        """The settings with a value, in place of the line that sets or suggests it, or on a new line."""
        keys, depth, lines = path.split("."), 0, text.rstrip("\n").split("\n")
        parent = len(lines) - 1
        for number, line in enumerate(lines):
            is_leaf = depth == len(keys) - 1
            mark = "#?" if is_leaf else ""
            if re.match(rf"^{'  ' * depth}{mark}{re.escape(keys[depth])}:", line):
                if is_leaf:
                    lines[number] = "  " * depth + f"{keys[depth]}: {value}"
                    return "\n".join(lines) + "\n"
                parent, depth = number, depth + 1
        new = [f"{'  ' * n}{keys[n]}:" for n in range(depth, len(keys))]
        new[-1] += f" {value}"
        lines[parent + 1 : parent + 1] = new
        return "\n".join(lines) + "\n"

    def edit_settings(self, **values):
        """Edits values of the settings; `__` separates keys, `_` stands for a hyphen."""

        def change(text):
            for name, value in values.items():
                path = name.replace("__", ".").replace("_", "-")
                text = self.set_value(text, path, value)
            return text

        self.machine.edit(SETTINGS, change)

    def reload(self, sentence, **values):
        """Edits values of the settings, and has the daemon read them."""
        self.edit_settings(**values)
        self.must("systemctl reload spoolgate", sentence)

    def arrives(self, name, content=None, size=None):
        """Declares that an upload must reach the application once, with this content or that of `upload`."""
        if content is None:
            content = random.Random(name).randbytes(size)
        self.expected[name] = hashlib.sha256(content).hexdigest()

    def send(self, name, size, options="", **run):
        """Sends an upload with the resuming client; it must arrive, in this scene or a later one."""
        self.arrives(name, size=size)
        return self.machine.run(f"upload send {name} {size} {options}".strip(), **run)

    def resume(self, name, options="", **run):
        return self.machine.run(f"upload resume {name} {options}".strip(), **run)

    def make(self, name, size):
        """Writes the file of an upload that must arrive."""
        self.arrives(name, size=size)
        with open(self.machine.path(f"/root/{name}"), "wb") as file:
            file.write(random.Random(name).randbytes(size))

    def put(self, name, size):
        """Sends an upload with curl, which does not resume."""
        self.make(name, size)
        return self.machine.run(f"{CURL} -w 'status %{{http_code}}\\n' -T /root/{name} {URL}{name}")

    def check_answered(self, result, status, sentence, delivered=None):
        """Checks the final status that a client printed, and the delivery of the upload `delivered`."""
        self.check(re.search(rf"(answered|status) {status}\b", result.output), sentence, result.output)
        if delivered:
            self.check_delivered(delivered)

    def check_status(self, url, status, sentence, options=""):
        """Requests a page with the login."""
        result = self.machine.run(f"{CURL} {options} -o /dev/null -w '%{{http_code}}\\n' {url}")
        # curl may add an error, as for a response during the content.
        self.check(str(status) in result.output.split(), sentence)

    def deliveries(self, name):
        """The digests of one upload in the application's log, one for each delivery."""
        return self._deliveries_by_name().get(name, [])

    def _deliveries_by_name(self):
        log = self.machine.quietly(f"cat {APPLICATION_LOG} 2>/dev/null").output
        seen = {}
        for line in log.splitlines():
            if not line.startswith("{"):
                continue
            line = json.loads(line)
            if line["method"] != "GET":
                name = line["target"].split("?")[0].rsplit("/", 1)[-1]
                seen.setdefault(name, []).append(line["sha256"] if line["whole"] else "cut off")
        return seen

    def check_delivered(self, name, sentence=None):
        """Checks that the application received the upload exactly once, with the bytes that were sent."""
        seen = self.deliveries(name)
        return self.check(
            seen == [self.expected[name]],
            sentence or f"the application received {name} once, unchanged",
            f"wanted {self.expected[name]}, its log has {seen}",
        )

    def judge_deliveries(self, names=None):
        """Checks that the application received each of these uploads, or of all uploads of the day, exactly once
        and unchanged.
        """
        seen = self._deliveries_by_name()
        names = list(self.expected) if names is None else names
        wrong = [name for name in names if seen.get(name) != [self.expected[name]]]
        self.check(
            not wrong,
            f"the application's log has each of {len(names)} uploads exactly once, unchanged",
            "\n".join(f"{name}: {seen.get(name)}" for name in wrong),
        )
