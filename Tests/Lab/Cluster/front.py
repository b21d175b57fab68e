"""nginx with the shipped files, edited as an operator would for several nodes.

A request with the field X-Node goes to that node, so that a test can choose; other requests follow the shipped file
or, with a shared spool, the upload's identity.
"""

import os
import re
import shutil
import signal
import socket

from gateway import ROOT
from processes import Process, free_ports, must

FILES = (
    "nginx.conf http.conf spoolgate_nodes.conf location.conf params.conf server.conf"
    " snippets/spoolgate.conf"
).split()
MODULE = os.path.join(ROOT, ".build/nginx-module/ngx_http_interim_module.so")

FORCED = """
map $http_x_node $cluster_node {{
    default {otherwise};
    n1      spoolgate_n1;
    n2      spoolgate_n2;
}}
"""

# Affinity, only for speed: any node can serve a request for an upload.
BY_UPLOAD = """
map $uri $cluster_upload {{
    default $request_id;
    "~/upload-resource/(?<cluster_identity>[0-9a-v]+)" $cluster_identity;
}}
upstream cluster_by_upload {{
    hash $cluster_upload consistent;
{servers}
    include modules/upstream/*.conf;
}}
"""


class Front:
    def __init__(self, directory, gateways, is_shared, workers="auto", connections=8192):
        self.port = free_ports(1)[0]
        self.has_module = os.path.exists(MODULE)
        self._folder = os.path.join(directory, "nginx")
        self._addresses = {gateway.name: gateway.address for gateway in gateways}
        self._is_shared = is_shared
        self._connections = connections
        self._workers = workers
        self._process = None

    def start(self):
        for name in ("log", "snippets", "modules/upstream"):
            os.makedirs(os.path.join(self._folder, name))
        if self.has_module:
            shutil.copy(MODULE, os.path.join(self._folder, "modules"))
            for source, target in (("interim", ""), ("keepalive", "upstream/")):
                shutil.copy(
                    os.path.join(ROOT, f"nginx/module/{source}.conf"),
                    os.path.join(self._folder, f"modules/{target}{source}.conf"),
                )
        for name in FILES:
            with open(os.path.join(ROOT, "nginx", name)) as file:
                text = self._with_further_nodes(file.read())
            lines = [self._filled(line) for line in text.splitlines()]
            with open(os.path.join(self._folder, name), "w") as file:
                file.write("\n".join(lines) + "\n")
        with open(os.path.join(self._folder, "forced.conf"), "w") as file:
            file.write(self._forced())
        self._process = Process(
            ["nginx", "-p", self._folder, "-c", "nginx.conf", "-g", "daemon off;"],
            os.path.join(self._folder, "log/start.log"),
            {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"},
        )
        must(20, "nginx listens: " + self._process.said(), self._listens)

    @property
    def identity(self):
        return self._process.identity

    def stop(self):
        if self._process:
            self._process.send(signal.SIGTERM)
            self._process.wait(10)
            self._process.kill()

    def _listens(self):
        if self._process.status is not None:
            raise RuntimeError("nginx ended: " + self._process.said()[-500:])
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def _forced(self):
        if not self._is_shared:
            return FORCED.format(otherwise="$spoolgate_node")
        servers = "\n".join(
            f"    server {address} max_fails=0;"
            for address in self._addresses.values()
        )
        return BY_UPLOAD.format(servers=servers) + FORCED.format(otherwise="cluster_by_upload")

    def _with_further_nodes(self, text):
        """The shipped text, with the lines for the third node repeated for further nodes."""
        further = [name for name in self._addresses if name not in ("n1", "n2", "n3")]
        for part in (
            r"    server \S+ max_fails.*# run: n3\n",
            r"upstream spoolgate_n3 \{\n(?:.+\n)*?\}\n",
            r"    \"~/upload-resource/n3/.*\n",
        ):
            text = re.sub(
                part,
                lambda found: "".join(found[0].replace("n3", name) for name in ("n3", *further)),
                text,
            )
        return text

    def _filled(self, line):
        line = line.replace("/usr/share/spoolgate/nginx/", "")
        line = line.replace("/etc/nginx/conf.d/spoolgate*", "http*")
        if "[::]:" in line or "# run: tls-port" in line or "ssl_certificate" in line:
            return ""
        if "include pass*.conf" in line:
            return "fastcgi_pass $cluster_node; fastcgi_next_upstream error timeout;"
        if "include http*.conf" in line:
            return line + " include spoolgate_nodes.conf; include forced.conf;"
        line = line.replace("worker_processes auto", f"worker_processes {self._workers}")
        line = re.sub(r"worker_connections \d+", f"worker_connections {self._connections}", line)
        files = self._connections + 400
        line = re.sub(r"worker_rlimit_nofile \d+", f"worker_rlimit_nofile {files}", line)
        marked = re.search(r"# run: ([a-z0-9-]+)", line)
        if marked is None:
            return line
        mark = marked.group(1)
        if mark == "port":
            return line.replace("8080", f"127.0.0.1:{self.port}")
        if mark == "module" and self.has_module:
            return line.replace("#", "", 1)
        if re.fullmatch(r"n\d", mark):
            # One of the three is never running.
            nobody = "unix:" + os.path.join(self._folder, "nobody.sock")
            return re.sub(r"10\.0\.0\.\d:9000", self._addresses.get(mark, nobody), line)
        return line
