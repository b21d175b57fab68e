"""The base of all test classes: each class has its own nginx and responders.

    class Example(case.NginxTestCase):
        server = "location / { fastcgi_pass %%UPSTREAM%%; interim_responses 104; }"

        @case.over(*case.PROTOCOLS)         # becomes test_it_h1, test_it_h1s, test_it_h2c, ...
        def test_it(self, protocol):
            message = self.connect(protocol).start("POST", "/", length=5)
            exchange = self.upstream.accept()
            exchange.interim(104, "Location: /1")
            self.assertEqual(message.next()["Location"], "/1")
"""

import os
import re
import signal
import time
import unittest

import options
from lab.processes import facts
from responder import Responder
from server import H2, H2C, PLAIN, TLS, Nginx

PROTOCOLS = (PLAIN, TLS, H2C, H2)
HTTP1 = (PLAIN, TLS)
HTTP2 = (H2C, H2)


def over(*values):
    """Run the test once for each value, passed as its argument."""
    def mark(function):
        function.over = values
        return function
    return mark


class NginxTestCase(unittest.TestCase):
    http = ""           # configuration of the http block
    server = ""         # configuration of the server block
    listen = ""         # more `listen` directives of the server block
    main = ""           # configuration of the main context
    upstreams = 1       # number of responders: %%UPSTREAM1%% (or %%UPSTREAM%%), %%UPSTREAM2%%
    unix = False        # responders listen on Unix sockets
    send_buffer = None  # SO_SNDBUF of nginx's client connections
    environment = {}    # variables added to nginx's environment
    maxDiff = 4000

    def __init_subclass__(cls):
        super().__init_subclass__()
        for name in dir(cls):
            function = getattr(cls, name)
            for value in getattr(function, "over", ()):
                def test(self, function=function, value=value):
                    function(self, value)
                setattr(cls, "%s_%s" % (name, re.sub(r"\W+", "_", value).strip("_")), test)
            if hasattr(function, "over"):
                setattr(cls, name, None)

    @classmethod
    def configuration(cls):
        """The configuration of the server block; subclasses may override this."""
        return cls.server

    @classmethod
    def setUpClass(cls):
        cls.responders = []
        cls.nginx = None
        cls.addClassCleanup(cls._remove)
        for number in range(cls.upstreams):
            path = None
            if cls.unix:
                name = "%d.%s.%s.%d" % (os.getpid(), cls.__module__, cls.__name__, number)
                path = os.path.join(options.scratch, name)
            cls.responders.append(Responder(path))
        cls.nginx = Nginx(cls.configuration(), cls.http, cls.main, listen=cls.listen,
                          upstreams=[responder.address for responder in cls.responders])
        if cls.send_buffer:
            cls.nginx.limit_send_buffer(cls.send_buffer)
        cls.nginx.start(cls.environment)

    @classmethod
    def tearDownClass(cls):
        for responder in cls.responders:
            responder.reset()
        wrong = cls.nginx.quit()
        if wrong:
            raise AssertionError("after nginx quit:\n" + "\n".join(wrong))

    @classmethod
    def _remove(cls):
        for responder in cls.responders:
            responder.close()
        if cls.nginx:
            cls.nginx.remove()

    def setUp(self):
        self.upstream = self.responders[0]
        self.mark = len(self.nginx.read("error.log"))

    def tearDown(self):
        errors = [error for responder in self.responders for error in responder.reset()]
        trouble = self.nginx.trouble()
        if trouble:
            self.fail("problems in error.log:\n" + "\n".join(trouble))
        for error in errors:
            raise AssertionError("the responder's script failed") from error

    def connect(self, protocol=PLAIN, **more):
        client = self.nginx.connect(protocol, **more)
        self.addCleanup(client.close)
        return client

    def stopped_worker(self):
        """Stop nginx's worker until SIGCONT or the end of the test; returns its process ID."""
        worker = self.nginx.workers()[0]
        os.kill(worker, signal.SIGSTOP)
        self.addCleanup(os.kill, worker, signal.SIGCONT)
        self.until(lambda: self.state(worker) == "T", 5, "the worker did not stop")
        return worker

    def until(self, is_true, seconds=20, why=None):
        """Wait until a condition holds."""
        deadline = time.monotonic() + options.patience(seconds)
        while not is_true():
            self.assertLess(time.monotonic(), deadline, why)
            time.sleep(0.002)

    def state(self, process):
        """The state of a process: a letter, see proc_pid_stat(5)."""
        return facts(process)[0]

    def logged(self):
        """The text in error.log since the start of this test."""
        return self.nginx.read("error.log")[self.mark:]

    def assertStatuses(self, message, interims, final):
        """Check the status of each response; returns the final response."""
        early, response = message.finish()
        self.assertEqual(([one.status for one in early], response.status), (interims, final))
        return response
