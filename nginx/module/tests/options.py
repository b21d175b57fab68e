"""What the tests were asked to run: which nginx, which module, under what, and how patient to be.

`run` fills this in before the tests are loaded; worker processes inherit it by fork.
"""

import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE = os.path.normpath(
    os.path.join(HERE, "../../../.build/nginx-module/ngx_http_interim_module.so"))

nginx = None        # path of the binary under test
module = None       # path of the .so, loaded by every configuration
valgrind = False
scratch = None      # directory of everything that is written; cert.pem and key.pem are there
scale = 1.0         # deadlines are multiplied by this

_facts = {}


def patience(seconds):
    return seconds * scale


def facts():
    """Version (tuple) and configure arguments of the nginx under test."""
    if nginx not in _facts:
        shown = subprocess.run([nginx, "-V"], stderr=subprocess.PIPE, text=True, check=True).stderr
        version = re.search(r"nginx version: \S+?/(\d+)\.(\d+)\.(\d+)", shown)
        if version is None:
            raise RuntimeError("not an nginx: " + shown)
        _facts[nginx] = tuple(map(int, version.groups())), shown
    return _facts[nginx]


def version():
    return facts()[0]


def has(argument):
    return argument in facts()[1]


def sanitized():
    with open(nginx, "rb") as binary:
        return b"__asan_init" in binary.read()
