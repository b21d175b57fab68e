"""A private nginx: configuration, start, graceful shutdown and checks of its error log.

The tests create the listening sockets and nginx inherits them (as in a binary upgrade), so no port
is guessed and an early connection waits instead of failing. Root is not needed.
"""

import ctypes
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import options
from lab import http1, http2, processes

PLAIN, TLS, H2C, H2 = "h1", "h1s", "h2c", "h2"

CONFIGURATION = """
%(user)s
load_module %(module)s;
worker_processes 1;
daemon off;
pid nginx.pid;
error_log error.log %(level)s;
%(main)s
events { worker_connections 1024; }
http {
    log_format tests '$request_method $uri $server_protocol $status $body_bytes_sent';
    access_log access.log tests;
    client_body_temp_path temp_body;
    fastcgi_temp_path temp_fastcgi;
    proxy_temp_path temp_proxy;
    scgi_temp_path temp_scgi;
    uwsgi_temp_path temp_uwsgi;
    ssl_certificate %(certificate)s/cert.pem;
    ssl_certificate_key %(certificate)s/key.pem;
    client_max_body_size 0;
    keepalive_requests 100000;
    fastcgi_request_buffering off;
    fastcgi_buffering off;
    fastcgi_param REQUEST_METHOD $request_method;
    fastcgi_param REQUEST_URI $request_uri;
    fastcgi_param CONTENT_LENGTH $content_length;
    %(http)s
    server {
        %(listen)s
        server_name localhost;
        root html;
        location = /static { alias html/static; }
        location / { fastcgi_pass %%%%UPSTREAM%%%%; }
        %(server)s
    }
}
"""

TROUBLE = re.compile(r"\[(alert|crit|emerg)\]|open socket|exited on signal|Sanitizer|runtime error")

# Every dynamic module defines ngx_modules again, and nginx never frees memory that it uses until exit.
ASAN_OPTIONS = "detect_odr_violation=0:detect_leaks=0"

_libc = ctypes.CDLL(None)


def die_with_parent():
    """Receive SIGTERM when the parent ends, so that no process outlives the tests."""
    _libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Nginx:
    def __init__(self, server, http="", main="", upstreams=(), listen="", level="info"):
        self.prefix = tempfile.mkdtemp(prefix="nginx-", dir=options.scratch)
        os.chmod(self.prefix, 0o755)
        os.mkdir(os.path.join(self.prefix, "html"))
        with open(os.path.join(self.prefix, "html/static"), "w") as static:
            static.write("a static file\n")
        self.process = None
        self.ports = {}
        self._listeners = []
        self._checked = 0
        self._text = self._configuration(server, http, main, upstreams, listen, level)
        with open(os.path.join(self.prefix, "nginx.conf"), "w") as file:
            file.write(self._text)

    def _configuration(self, server, http, main, upstreams, listen, level):
        old = options.version() < (1, 25, 1)
        lines = [] if old else ["http2 on;"]
        for name, words in ((PLAIN, ""), (TLS, " ssl"), (H2C, " http2"), (H2, " ssl http2")):
            if not old:
                words = words.replace(" http2", "")
            listener = socket.socket()
            listener.bind(("127.0.0.1", 0))
            listener.listen(511)
            self._listeners.append(listener)
            self.ports[name] = listener.getsockname()[1]
            lines.append("listen 127.0.0.1:%d%s;" % (self.ports[name], words))
        text = CONFIGURATION % dict(
            user="user root root;" if os.geteuid() == 0 else "", level=level, main=main, http=http,
            module=options.module, certificate=options.scratch, server=server,
            listen=" ".join(lines) + listen)
        if options.module is None:
            text = re.sub(r"load_module.*", "", text)
        for number, upstream in enumerate(upstreams, 1):
            text = text.replace("%%%%UPSTREAM%d%%%%" % number, upstream)
        text = text.replace("%%UPSTREAM%%", upstreams[0] if upstreams else "127.0.0.1:1")
        # The server block's own `location /` replaces the default one.
        if "location / {" in server:
            text = re.sub(r"location / \{ fastcgi_pass \S+ \}\n", "\n", text, count=1)
        return text

    def limit_send_buffer(self, size):
        """Set SO_SNDBUF; connections inherit it from the listening sockets."""
        for listener in self._listeners:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    def _command(self):
        command = [options.nginx, "-p", self.prefix, "-c", "nginx.conf", "-e", "error.log"]
        if options.valgrind:
            command = ["valgrind", "--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite",
                       "--show-leak-kinds=definite", "--error-exitcode=99", "--num-callers=30",
                       "--suppressions=" + os.path.join(options.HERE, "valgrind.supp"),
                       "--log-file=%s/valgrind.%%p" % self.prefix, *command]
        return command

    def start(self, environment={}):
        fds = [listener.fileno() for listener in self._listeners]
        environment = dict(os.environ, **environment, NGINX="".join("%d;" % fd for fd in fds))
        environment.setdefault("ASAN_OPTIONS", ASAN_OPTIONS)
        self.output = open(os.path.join(self.prefix, "output"), "wb")
        self.process = subprocess.Popen(
            self._command(), pass_fds=fds, env=environment, cwd=self.prefix, stdin=subprocess.DEVNULL,
            stdout=self.output, stderr=subprocess.STDOUT, preexec_fn=die_with_parent)
        deadline = time.monotonic() + options.patience(20)
        while not (self.read("nginx.pid").endswith("\n") and self.workers()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                log = self.read("error.log") + self.read("output")
                self.kill()
                raise AssertionError("nginx did not start:\n" + log)
            time.sleep(0.005)
        for listener in self._listeners:
            listener.close()
        return self

    def test(self):
        """Run nginx -t; returns (whether it succeeded, its output)."""
        done = subprocess.run(
            [options.nginx, "-t", "-p", self.prefix, "-c", "nginx.conf", "-e", "error.log"],
            cwd=self.prefix, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=dict(os.environ, ASAN_OPTIONS=ASAN_OPTIONS))
        return done.returncode == 0, done.stdout

    def read(self, name):
        try:
            with open(os.path.join(self.prefix, name), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def connect(self, protocol, **more):
        """A client of a protocol; `more` as for its Client."""
        kind = http1 if protocol in (PLAIN, TLS) else http2
        return kind.Client(self.ports[protocol], protocol in (TLS, H2), **more)

    def workers(self):
        return processes.children(self.process.pid)

    def resident(self):
        """The worker's resident memory in kilobytes."""
        return processes.memory(self.workers()[0])

    def trouble(self):
        """Lines of the error log that report a problem, since the last call."""
        log = self.read("error.log")
        new, self._checked = log[self._checked:], len(log)
        return [line for line in new.splitlines() if TROUBLE.search(line)]

    def quit(self):
        """Shut down gracefully; returns all problems of this run."""
        wrong = []
        self.process.send_signal(signal.SIGQUIT)
        try:
            code = self.process.wait(options.patience(10))
            if code != 0:
                wrong.append("nginx exited with code %d" % code)
        except subprocess.TimeoutExpired:
            wrong.append("nginx did not quit: a request or connection hangs")
        self.kill()
        wrong += self.trouble()
        output = self.read("output")
        if "Sanitizer" in output or "runtime error" in output:
            wrong.append(output)
        for log in glob.glob(os.path.join(self.prefix, "valgrind.*")):
            wrong += filter(None, [self.read(os.path.basename(log))])
        return wrong

    def kill(self):
        """Kill nginx and its workers if they still run."""
        if self.process and self.process.poll() is None:
            for pid in [*self.workers(), self.process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.wait()

    def remove(self):
        self.kill()
        for listener in self._listeners:
            listener.close()
        if self.process:
            self.output.close()
        shutil.rmtree(self.prefix, ignore_errors=True)
