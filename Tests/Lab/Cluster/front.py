"""nginx with the shipped files, edited as an operator would for several nodes.

A request with the field X-Node goes to that node, so that a test can choose; other requests follow the shipped file
or, with a shared spool, the upload's identity.
"""

import os
import re

from lab.gateway import ship, ship_module, start_nginx, write
from lab.processes import MODULE, free_ports

FILES = (
    "nginx.conf http.conf spoolgate_nodes.conf location.conf params.conf server.conf"
    " snippets/spoolgate.conf"
).split()

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
        if self.has_module:
            ship_module(self._folder)
        ship(self._folder, FILES, self._filled, self._with_further_nodes)
        write(f"{self._folder}/forced.conf", self._forced())
        self._process = start_nginx(self._folder, self.port)

    @property
    def identity(self):
        return self._process.identity

    def stop(self):
        if self._process:
            self._process.end(10)

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

    def _filled(self, line, mark):
        if mark == "tls-port" or "ssl_certificate" in line:
            return ""
        if "include pass*.conf" in line:
            return "fastcgi_pass $cluster_node; fastcgi_next_upstream error timeout;"
        if "include http*.conf" in line:
            return line + " include spoolgate_nodes.conf; include forced.conf;"
        line = line.replace("worker_processes auto", f"worker_processes {self._workers}")
        line = re.sub(r"worker_connections \d+", f"worker_connections {self._connections}", line)
        files = self._connections + 400
        line = re.sub(r"worker_rlimit_nofile \d+", f"worker_rlimit_nofile {files}", line)
        if mark == "port":
            return line.replace("8080", f"127.0.0.1:{self.port}")
        if mark == "module" and self.has_module:
            return line.replace("#", "", 1)
        if mark and re.fullmatch(r"n\d+", mark):
            # One of the three is never running.
            nobody = "unix:" + os.path.join(self._folder, "nobody.sock")
            return re.sub(r"10\.0\.0\.\d:9000", self._addresses.get(mark, nobody), line)
        return line
