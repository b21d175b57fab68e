"""Options of the test run.

`run` sets them before it loads the tests; its worker processes inherit them by fork.
"""

import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE = os.path.normpath(
    os.path.join(HERE, "../../../.build/nginx-module/ngx_http_interim_module.so"))

nginx = None        # path of the binary under test
module = None       # path of the .so that every configuration loads
valgrind = False
scratch = None      # directory for all files of the run, including cert.pem and key.pem
scale = 1.0         # factor for all deadlines

_facts = {}


def patience(seconds):
    return seconds * scale


def facts():
    """The version (a tuple) and the output of nginx -V, with its configure arguments."""
    if nginx not in _facts:
        shown = subprocess.run([nginx, "-V"], stderr=subprocess.PIPE, text=True, check=True).stderr
        version = re.search(r"nginx version: \S+?/(\d+)\.(\d+)\.(\d+)", shown)
        if version is None:
            raise RuntimeError("nginx -V reports no version of nginx: " + shown)
        _facts[nginx] = tuple(map(int, version.groups())), shown
    return _facts[nginx]


def version():
    return facts()[0]


def has(argument):
    return argument in facts()[1]


def sanitized():
    with open(nginx, "rb") as binary:
        return b"__asan_init" in binary.read()
