"""The scenes: each performs actions on the containers and asserts the results."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess

import manifest
from images import SOURCE, TARGETS, commit, name
from lab.processes import must, wait

NETWORK = "spoolgate-test"
ORIGIN = "https://uploads.example.org"
# User ids unknown to the images: as in OpenShift, and different for the two that share the socket.
GATEWAY_USER, NGINX_USER = "1000680000:0", "12345:0"
PORT = 18080
URL = f"http://127.0.0.1:{PORT}/files/"
MANAGEMENT_PORT = 18081
MANAGEMENT = f"http://127.0.0.1:{MANAGEMENT_PORT}"
CONFINED = [
    *("--read-only", "--read-only-tmpfs=false", "--passwd=false"),
    *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
]
NGINX = [*CONFINED, "--user", NGINX_USER, "--tmpfs", "/tmp"]
INTEROP = "Upload-Draft-Interop-Version: 10"
# `timeouts.drain` (30s), plus an allowance for slow machines.
GRACE = "45"


class Answer:
    """A response: its interim responses, status, fields and content."""

    def __init__(self, status, head, content):
        self.status = status
        self.head = head
        self.content = content

    def field(self, wanted):
        found = re.findall(rf"^{wanted}: *([^\r\n]*)", self.head, re.IGNORECASE | re.MULTILINE)
        return found[-1] if found else None

    def __str__(self):
        return f"{self.status}\n{self.head}\n{self.content[:500]!r}"


class Scenes:
    def __init__(self, podman, scratch, transcript):
        self.podman = podman
        self.scratch = scratch
        self.transcript = transcript
        self.check = transcript.check
        self.file = f"{scratch}/content"
        content = os.urandom(24 << 20)
        with open(self.file, "wb") as file:
            file.write(content)
        self.digest = hashlib.sha256(content).hexdigest()
        self.size = len(content)

    def play(self):
        self.podman("network", "create", NETWORK)
        for volume in ("socket", "spool"):
            self.podman("volume", "create", volume)
        try:
            self.images()
            self.settings_of_nginx()
            self.start()
            self.confinement()
            self.upload()
            self.resume()
            self.health()
            self.termination()
            self.death()
            self.other_group()
        finally:
            for one in ("gateway", "nginx", "application"):
                self.podman("rm", "--force", "--time", "0", one, check=False)
        self.compose()
        self.pod()

    def images(self):
        self.transcript.scene("Configuration of the images")
        for target in ("gateway", "nginx", "application"):
            image = self.podman.inspect("image", name(target))
            user = image["Config"].get("User", "")
            is_number = re.fullmatch(r"[1-9][0-9]*:0", user)
            self.check(is_number, f"{target} runs as a numeric user other than root, in group 0", user)
        for target in ("gateway", "nginx"):
            image = self.podman.inspect("image", name(target))
            self.check(image.get("HealthCheck") or image.get("Healthcheck"), f"{target} has a health check")
        signal_of_nginx = self.podman.inspect("image", name("nginx"))["Config"].get("StopSignal")
        self.check(signal_of_nginx == "SIGQUIT", "nginx stops on SIGQUIT, which lets requests complete")
        said = self.podman.once(name("gateway"), "--version").stdout
        self.check(commit() in said, "spoolgate --version names the commit", said)

    def settings_of_nginx(self):
        self.transcript.scene("nginx's settings come from the environment")
        refused = self._nginx()
        self.check(
            refused.returncode == 78 and "SPOOLGATE_ORIGIN is not set" in refused.stderr,
            "without SPOOLGATE_ORIGIN nginx does not start, and reports why",
            refused.stderr,
        )
        for variable, value in (
            ("SPOOLGATE_ORIGIN", "https://example.org; evil"),
            ("SPOOLGATE_PATH", "/files"),
            ("SPOOLGATE_PATH", "/a b/"),
            ("SPOOLGATE_ROUTE", "a;b"),
            ("SPOOLGATE_PROXIES", "10.0.0.0/8;"),
            ("SPOOLGATE_INTERIM", "yes"),
            ("SPOOLGATE_LOGIN", "/not/there"),
        ):
            refused = self._nginx(**{"SPOOLGATE_ORIGIN": ORIGIN, variable: value})
            self.check(
                refused.returncode == 78 and variable in refused.stderr,
                f"{variable}={value} is refused, and the error names it",
                refused.stderr,
            )
        text = self._configuration(SPOOLGATE_ORIGIN=ORIGIN)
        self.check(f"SPOOLGATE_ORIGIN  {ORIGIN};" in text, "the origin is in the location", text)
        self.check("interim_responses" in text, "interim responses are on", text)
        self.check("\n    auth_basic" not in text, "login is off", text)
        text = self._configuration(
            SPOOLGATE_ORIGIN=ORIGIN,
            SPOOLGATE_PATH="/api/uploads/",
            SPOOLGATE_ROUTE="films",
            SPOOLGATE_LOGIN="/etc/hostname",
            SPOOLGATE_PROXIES="10.0.0.0/8 fd00::/8",
            SPOOLGATE_INTERIM="off",
        )
        for line in (
            "location ^~ /api/uploads/ {",
            "location = /api/uploads {",
            "SPOOLGATE_ROUTE   films;",
            "auth_basic_user_file /etc/hostname;",
            "SPOOLGATE_OWNER $remote_user;",
            "set_real_ip_from 10.0.0.0/8;",
            "set_real_ip_from fd00::/8;",
            "real_ip_header X-Forwarded-For;",
        ):
            self.check(line in text, f"{line.strip()} is set from the environment", text)
        self.check("interim_responses" not in text, "with SPOOLGATE_INTERIM=off no 104 is sent", text)
        text = self._configuration(SPOOLGATE_ORIGIN=ORIGIN, SPOOLGATE_PATH="/")
        self.check("location ^~ / {" in text, "the location may be the whole site", text)

    def _nginx(self, *arguments, **environment):
        variables = [f"--env={key}={value}" for key, value in environment.items()]
        return self.podman.once(name("nginx"), *arguments, options=[*NGINX, *variables])

    def _configuration(self, **environment):
        """nginx's whole configuration, which it accepted."""
        done = self._nginx("-T", **environment)
        described = " ".join(f"{key}={value}" for key, value in environment.items())
        self.check(done.returncode == 0, f"nginx accepts {described}", done.stderr)
        return done.stdout

    # The containers.

    def start(self):
        self.transcript.scene("Gateway, nginx and application start: any user, read-only, no capability")
        confined = [*CONFINED, "--network", NETWORK]
        self.podman.run("application", name("application"), options=[*confined, "--user", GATEWAY_USER])
        self._start_gateway()
        self._start_nginx()
        is_ready = wait(60, self._is_ready, 0.5)
        self.check(is_ready, "nginx reports that the gateway is ready", self._logs())

    def _start_gateway(self, *options):
        self.podman.run(
            "gateway",
            name("gateway"),
            options=[
                *(*CONFINED, "--network", NETWORK, "--user", GATEWAY_USER),
                *("--volume", "socket:/run/spoolgate", "--volume", "spool:/var/spool"),
                *("--restart", "unless-stopped", "--stop-timeout", GRACE),
                *("--env", "SPOOLGATE_UPSTREAM=http://application:3000"),
                *("--env", "SPOOLGATE_ANONYMOUS=allow", "--env", "SPOOLGATE_THREADS_MAXIMUM=64"),
                *options,
            ],
        )

    def _start_nginx(self, user=NGINX_USER):
        self.podman.run(
            "nginx",
            name("nginx"),
            options=[
                *(*CONFINED, "--network", NETWORK, "--user", user, "--tmpfs", "/tmp"),
                *("--volume", "socket:/run/spoolgate", "--env", f"SPOOLGATE_ORIGIN={ORIGIN}"),
                *("--publish", f"127.0.0.1:{PORT}:8080"),
                *("--publish", f"127.0.0.1:{MANAGEMENT_PORT}:8081"),
            ],
        )

    def confinement(self):
        self.transcript.scene("Rights of the containers")
        for one, user in (("gateway", GATEWAY_USER), ("nginx", NGINX_USER)):
            seen = self.podman("exec", one, "cat", "/proc/1/status").stdout
            number = user.split(":")[0]
            self.check(re.search(rf"^Uid:\t{number}\t", seen, re.M), f"{one} runs as {number}", seen)
            self.check(re.search(r"^CapBnd:\t0+$", seen, re.M), f"{one} has no capability", seen)
            known = self.podman("exec", one, "getent", "passwd", number, check=False)
            self.check(known.returncode == 2, f"{one} has no name for its user", known.stdout)
            touched = self.podman("exec", one, "touch", "/etc/x", check=False).stderr
            self.check("Read-only file system" in touched, f"{one} has a read-only root", touched)
        sockets = self.podman("exec", "gateway", "stat", "-c", "%a %g", "/run/spoolgate/spoolgate.sock")
        self.check(sockets.stdout.split() == ["660", "0"], "the socket belongs to the group", sockets.stdout)

    def upload(self):
        self.transcript.scene("An ordinary upload")
        answer = self._ask(f"{URL}whole.bin", "-T", self.file)
        self.check(answer.status == 201, "curl -T ends with the application's 201", answer)
        self._check_content(answer)
        status = self._ask(f"{MANAGEMENT}/metrics")
        self.check("spoolgate_ready 1" in status.content, "nginx serves the gateway's metrics", status)
        for path in ("/", "/-/spoolgate/", "/status.txt"):
            answer = self._ask(MANAGEMENT + path)
            self.check(answer.status == 404, f"nginx serves no {path} there", answer)
        answer = self._ask(f"http://127.0.0.1:{PORT}/")
        self.check(answer.status == 404, "nginx serves nothing else", answer)

    def resume(self):
        self.transcript.scene("An interrupted and resumed upload")
        url = self._begin("cut.bin")
        answer = self._finish(url)
        self.check(answer.status == 201, "the rest ends with the application's 201", answer)
        self._check_content(answer)

    def health(self):
        self.transcript.scene("Health checks")
        for one in ("gateway", "nginx"):
            self._check_healthy(one, f"{one} is healthy")
        check = self.podman("exec", "gateway", "sh", "-c", "spoolgate status --check; [ $? -ne 2 ]", check=False)
        self.check(check.returncode == 0, "the readiness probe of the manifest succeeds", check.stdout)
        self.podman("kill", "--signal", "STOP", "gateway")
        done = self.podman("healthcheck", "run", "gateway", check=False)
        self.check(done.returncode != 0, "a stopped gateway is not healthy", done.stdout)
        self._check_healthy("nginx", "nginx in front of it is healthy")
        self.podman("kill", "--signal", "CONT", "gateway")
        is_healthy = wait(30, lambda: not self.podman("healthcheck", "run", "gateway", check=False).returncode)
        self.check(is_healthy, "the gateway is healthy again once it continues")
        done = self.podman.once("--entrypoint", "spoolgate-nginx", name("nginx"), "health")
        self.check(done.returncode != 0, "a container without nginx is not healthy", done.stderr)

    def _check_healthy(self, container, sentence):
        self._check_success(self.podman("healthcheck", "run", container, check=False), sentence)

    def _check_success(self, done, sentence):
        self.check(done.returncode == 0, sentence, done.stdout + done.stderr)

    def termination(self):
        self.transcript.scene("SIGTERM, and a restart on the same spool")
        url = self._begin("stopped.bin")
        offset = self._offset(url)
        self._check_restart("gateway")
        self._check_kept(url, offset)
        self._check_restart("nginx")

    def _check_restart(self, container):
        self.podman("stop", "--time", GRACE, container)
        code = self.podman.state(container)["ExitCode"]
        self.check(code == 0, f"{container} exits with status 0", f"{code}\n{self.podman.log(container)}")
        self.podman("start", container)
        self._await_ready()

    def _check_kept(self, url, offset):
        """Checks that an upload has kept an offset, and can be finished."""
        after = self._offset(url)
        self.check(after is not None and after >= offset, "the upload is there, with all it had", (offset, after))
        self._check_content(self._finish(url))

    def death(self):
        self.transcript.scene("kill -9 in the middle of an upload: the restart policy")
        url = self._begin("killed.bin")
        offset = self._offset(url)
        state = self.podman.state("gateway")
        os.kill(state["Pid"], signal.SIGKILL)
        is_back = wait(60, lambda: self.podman.state("gateway")["Pid"] not in (0, state["Pid"]))
        self.check(is_back, "podman restarts the gateway", self._logs())
        self._await_ready()
        self._check_kept(url, offset)
        listed = self.podman("exec", "gateway", "spoolgate", "list")
        self.check("killed.bin" in listed.stdout, "spoolgate list works in the container", listed.stdout)

    def other_group(self):
        self.transcript.scene("nginx in another group: SPOOLGATE_SOCKET_MODE")
        self.podman("rm", "--force", "gateway")
        self.podman("rm", "--force", "nginx")
        self._start_gateway()
        self._start_nginx("12345:12345")
        must(60, "the gateway's socket", self._has_socket)
        answer = self._ask(f"{URL}other.bin", "-T", self.file)
        said = self.podman.log("nginx")
        self.check(
            answer.status != 201 and "spoolgate.sock failed (13: Permission denied)" in said,
            "without it nginx may not connect to the gateway",
            f"{answer}\n{said}",
        )
        self.podman("rm", "--force", "gateway")
        self._start_gateway("--env", "SPOOLGATE_SOCKET_MODE=0666")
        self._await_ready()
        answer = self._ask(f"{URL}other.bin", "-T", self.file)
        self.check(answer.status == 201, "with 0666 it does", f"{answer}\n{self._logs()}")

    def _has_socket(self):
        test = "test -S /run/spoolgate/admin.sock && spoolgate status"
        return not self.podman("exec", "gateway", "sh", "-c", test, check=False).returncode

    def compose(self):
        self.transcript.scene("deploy/container/compose.yaml")
        if not shutil.which("podman-compose"):
            self.transcript.say("SKIPPED podman-compose is not installed (deploy/install-dependencies.sh container)")
            return
        for target in TARGETS:
            self.podman("tag", name(target), f"localhost/container_{target}")
        try:
            self._compose("up", "--detach", "--no-build")
            url = "http://127.0.0.1:8080/files/composed.bin"
            # podman-compose starts all of them at once.
            wait(60, lambda: self._ask(url, "-I").status not in (0, 502), 0.5)
            answer = self._ask(url, "-T", self.file)
            self.check(answer.status == 201, "curl -T ends with the application's 201", answer)
            self._check_content(answer)
            for one in ("gateway", "nginx"):
                self._check_healthy(f"container_{one}_1", f"{one} is healthy")
                policy = self.podman.inspect("container", f"container_{one}_1")["HostConfig"]["RestartPolicy"]
                self.check(policy["Name"] == "unless-stopped", f"{one} is restarted if it exits", policy)
        finally:
            self._compose("down", "--volumes")

    def _compose(self, *arguments):
        done = subprocess.run(
            ["podman-compose", "-f", f"{SOURCE}/deploy/container/compose.yaml", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PATH": f"{self.podman.directory_of_program()}:{os.environ['PATH']}"},
        )
        self._check_success(done, f"podman-compose {' '.join(arguments)}")

    def pod(self):
        self.transcript.scene("The pod of the Kubernetes manifest")
        if manifest.yaml is None:
            self.transcript.say("SKIPPED python3-yaml is not installed (deploy/install-dependencies.sh container)")
            return
        made = manifest.Manifest(ORIGIN, {8080: PORT, 8081: MANAGEMENT_PORT})
        path = made.write(f"{self.scratch}/pod.yaml")
        try:
            self.podman("play", "kube", "--network", NETWORK, path)
            is_ready = wait(60, self._is_ready, 0.5)
            self.check(is_ready, "its gateway is ready", self.podman.log(f"{manifest.POD}-gateway"))
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                command = made.container("gateway")[kind]["exec"]["command"]
                done = self.podman("exec", f"{manifest.POD}-gateway", *command, check=False)
                self._check_success(done, f"its {kind} succeeds")
                if kind != "startupProbe":
                    probe = made.container("nginx")[kind]["httpGet"]["path"]
                    answer = self._ask(MANAGEMENT + probe)
                    self.check(answer.status == 200, f"nginx's {kind} succeeds", answer)
            url = self._begin("pod.bin")
            self.check("/n0/" in url, "the upload's URL names the pod", url)
            self._check_content(self._finish(url))
        finally:
            self.podman("play", "kube", "--down", path, check=False)
            for volume in made.volumes:
                self.podman("volume", "rm", "--force", volume, check=False)

    def _begin(self, path):
        """Sends the first part of an upload and aborts; returns the upload's URL on this machine."""
        answer = self._ask(
            URL + path,
            *("-T", self.file, "--limit-rate", "4M", "--max-time", "2"),
            *("-H", INTEROP, "-H", "Upload-Complete: ?1"),
        )
        location = answer.field("location") or ""
        self.check(
            " 104 " in answer.head and location.startswith(f"{ORIGIN}/files/{path}/"),
            "a 104 names the upload's URL by the public origin",
            answer,
        )
        url = location.replace(ORIGIN, f"http://127.0.0.1:{PORT}")
        must(30, "the offset of an upload", lambda: self._offset(url) is not None)
        return url

    def _offset(self, url):
        answer = self._ask(url, "-I", "-H", INTEROP)
        text = answer.field("upload-offset")
        return int(text) if answer.status in (200, 204) and text else None

    def _finish(self, url):
        offset = self._offset(url)
        self.check(offset and 0 < offset < self.size, "the offset is in the middle of the content", offset)
        with open(self.file, "rb") as file, open(f"{self.scratch}/rest", "wb") as rest:
            file.seek(offset or 0)
            rest.write(file.read())
        answer = self._append(url, offset, f"{self.scratch}/rest")
        # If the application is unreachable, an empty append delivers the upload again. For some seconds after a
        # restart podman's bridge may send packets to the container that had the address before.
        open(f"{self.scratch}/rest", "wb").close()
        for _ in range(6):
            if answer.status < 500:
                break
            answer = self._append(url, self.size, f"{self.scratch}/rest")
        return answer

    def _append(self, url, offset, file):
        return self._ask(
            url,
            *("-X", "PATCH", "-T", file, "-H", INTEROP, "-H", f"Upload-Offset: {offset}"),
            *("-H", "Upload-Complete: ?1", "-H", "Content-Type: application/partial-upload"),
        )

    def _check_content(self, answer):
        try:
            told = json.loads(answer.content)
        except ValueError:
            told = {}
        is_whole = (told.get("length"), told.get("sha256")) == (self.size, self.digest)
        self.check(is_whole, "the application has the whole content", answer)

    def _ask(self, url, *arguments):
        done = subprocess.run(
            ["curl", "-sS", "--http1.1", "--noproxy", "*", "--max-time", "60", *arguments]
            + ["-D", f"{self.scratch}/head", "-o", f"{self.scratch}/answer", "-w", "%{http_code}", url],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        head, content = (self._take(f"{self.scratch}/{one}") for one in ("head", "answer"))
        return Answer(int(done.stdout or 0), head or done.stderr, content)

    def _take(self, path):
        """A file's text; the file is removed."""
        try:
            with open(path, errors="replace") as file:
                text = file.read()
            os.unlink(path)
            return text
        except FileNotFoundError:
            return ""

    def _await_ready(self):
        must(60, "the gateway is ready", self._is_ready)

    def _is_ready(self):
        return self._ask(f"{MANAGEMENT}/ready").status == 200

    def _logs(self):
        return self.podman.log("gateway") + self.podman.log("nginx")
