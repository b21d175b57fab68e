"""The values of spool_receive that nginx -t accepts or refuses, and the threads that nginx starts for them."""

import os
import unittest

import case
import options
from lab.processes import wait
from server import Nginx


def needs_threads(function):
    def test(self):
        if not options.has("--with-threads"):
            self.skipTest("this nginx was built without threads")
        function(self)
    return test


class Directive(unittest.TestCase):
    def check(self, directive, main="", after=""):
        """Run nginx -t; returns whether it succeeded, and its output."""
        nginx = Nginx("location / { %s }" % directive, main=main)
        try:
            with open(os.path.join(nginx.prefix, "nginx.conf"), "a") as file:
                file.write(after)
            return nginx.test()
        finally:
            nginx.remove()

    def assertRefused(self, text, *arguments):
        accepted, output = self.check(*arguments)
        self.assertFalse(accepted, arguments)
        self.assertIn(text, output)

    def assertAccepted(self, *arguments):
        accepted, output = self.check(*arguments)
        self.assertTrue(accepted, output)
        return output

    def test_invalid_values(self):
        for value in "maybe", "threads=", "Threads", "threadsx", "thread", "worker=2", "on=1", '""':
            self.assertRefused('of "spool_receive", it must be "on", "off", "worker" or "threads[=pool]"',
                               "spool_receive %s;" % value)

    def test_number_of_values(self):
        for words in "", "on on", "threads worker":
            self.assertRefused('invalid number of arguments in "spool_receive"', "spool_receive %s;" % words)

    def test_valid_values(self):
        for value in "off", "OFF", "worker":
            self.assertAccepted("spool_receive %s;" % value)

    def test_twice(self):
        for first in "off", "worker":
            for second in "off", "worker":
                self.assertAccepted("spool_receive %s; spool_receive %s;" % (first, second))

    @needs_threads
    def test_threads(self):
        for value in "on", "On", "threads", "threads=default":
            self.assertNotIn("warn", self.assertAccepted("spool_receive %s;" % value))
        self.assertAccepted("spool_receive threads=named;", "thread_pool named threads=2;")
        self.assertAccepted("spool_receive threads=named;", "", "thread_pool named threads=2;")

    @needs_threads
    def test_unknown_pool(self):
        self.assertRefused('unknown thread pool "named"', "spool_receive threads=named;")
        self.assertRefused('unknown thread pool "named"', "spool_receive threads=named;",
                           "thread_pool other threads=2;")

    @needs_threads
    def test_own_pool(self):
        """The pool's size can be set only before the http block."""
        pool = "thread_pool spool_receive threads=2;"
        self.assertAccepted("spool_receive on;", pool)
        self.assertAccepted("spool_receive on; spool_receive on;", pool)
        self.assertRefused('duplicate thread pool "spool_receive"', "spool_receive on;", "", pool)

    def test_without_threads(self):
        if options.has("--with-threads"):
            self.skipTest("this nginx was built with threads")
        for value in "threads", "threads=default":
            self.assertRefused('"spool_receive %s" needs an nginx that was built --with-threads' % value,
                               "spool_receive %s;" % value)
        output = self.assertAccepted("spool_receive on;")
        self.assertIn('[warn]', output)
        self.assertIn('"spool_receive on" is ignored: nginx was built without --with-threads', output)

    @needs_threads
    def test_number_of_threads(self):
        for directive, main, threads in (
                ("", "", 0), ("spool_receive off;", "", 0), ("spool_receive worker;", "", 0),
                ("spool_receive on;", "", 16), ("spool_receive threads;", "", 32),
                ("spool_receive on;", "thread_pool spool_receive threads=3;", 3),
                ("spool_receive threads=named;", "thread_pool named threads=2;", 2)):
            nginx = Nginx("location / { %s }" % directive, main=main).start()
            try:
                worker, = nginx.workers()
                self.assertTrue(wait(
                    options.patience(10), lambda: len(os.listdir("/proc/%d/task" % worker)) == threads + 1), directive)
            finally:
                self.assertEqual(nginx.quit(), [])
                nginx.remove()


class WithoutThreads(case.NginxTestCase):
    """If nginx was built without threads, "on" has no effect."""

    unix = True
    server = "location / { fastcgi_pass %%UPSTREAM%%; spool_receive on; }"

    def test_not_offered(self):
        if options.has("--with-threads"):
            self.skipTest("this nginx was built with threads")
        message = self.connect().start("PUT", "/a", content=b"abc", chunked=True)
        exchange = self.upstream.accept()
        self.assertEqual(exchange.content(), b"abc")
        exchange.final(201)
        self.assertStatuses(message, [], 201)
