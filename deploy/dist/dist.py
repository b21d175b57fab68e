#!/usr/bin/env python3
"""Builds the files of a release, below .build/dist: `make dist`.

These are Debian packages for each suite, a tarball of the programs with their licences, and SHA256SUMS. The tarball has
the oldest suite's programs, which run if glibc is as new as that suite's, or newer. Only root can build for a suite
other than this host's. Environment: DIST_SUITES (default: bookworm and trixie, the oldest first), MAINTAINER, and the
variables of roots.py.
"""

import gzip
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile

sys.dont_write_bytecode = True

import packages
from packages import REPOSITORY
from roots import Unavailable

SUITES = "bookworm trixie"
OUTPUT = os.path.join(REPOSITORY, ".build/dist")
IN_NAMESPACE = "--in-namespace"
PROGRAMS = ("spoolgate", "spoolgate-upload")
# Files of the source, unchanged.
SOURCES = ("README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "docs", "nginx", "deploy/man", "deploy/prometheus")
SOURCES += tuple(f"deploy/spoolgate{kind}" for kind in (".service", ".socket", ".sysusers", ".tmpfiles", ".yaml"))
SOURCES += tuple(f"deploy/spoolgate{kind}" for kind in (".logrotate", "-purge.service", "-purge.timer"))
INSTALL = """spoolgate {version} for Linux on {machine}: programs, and files to install by hand

The programs need glibc as new as that of Debian {suite}, and libcurl 4, OpenSSL 3, libfcgi and libyaml as shared
libraries: libcurl4, libssl3, libfcgi0ldbl and libyaml-0-2 on Debian 12; libcurl4t64, libssl3t64, libfcgi0t64 and
libyaml-0-2 on Debian 13. Prefer a Debian package if one fits: it sets up the user, the units and nginx.

  bin/               to /usr/bin
  deploy/            systemd units, the user (sysusers), the spool (tmpfiles), man pages, all settings
  nginx/             files for nginx; nginx/module is the module's source; its README says how to build it
  licenses/          the licences of the libraries in the programs
"""


def main():
    suites = (os.environ.get("DIST_SUITES") or SUITES).split()
    if sys.argv[1:] != [IN_NAMESPACE] and suites != [packages.own_suite()]:
        enter_namespace()
    try:
        made = {suite: packages.make(suite) for suite in suites}
    except (Unavailable, packages.BuildFailed) as reason:
        sys.exit(f"make dist: {reason}")
    shutil.rmtree(OUTPUT, ignore_errors=True)
    os.makedirs(OUTPUT)
    for debs, _ in made.values():
        for deb in debs:
            shutil.copy(deb, OUTPUT)
    oldest = suites[0]
    write_tarball(oldest, made[oldest][1], version(made[oldest][0][0], oldest))
    write_sums()
    print("\n".join(os.path.join(OUTPUT, name) for name in sorted(os.listdir(OUTPUT))))


def enter_namespace():
    """Restarts this program in its own mount namespace, for the mounts in roots of other suites."""
    if os.geteuid() != 0:
        sys.exit("make dist: only root can build for other suites: use sudo, or set DIST_SUITES to this host's suite")
    os.execvp(
        "unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, IN_NAMESPACE]
    )


def version(deb, suite):
    """The version of a suite's package, without the suite's suffix."""
    said = subprocess.run(["dpkg-deb", "-f", deb, "Version"], check=True, capture_output=True, text=True)
    return said.stdout.strip().removesuffix(packages.SUFFIXES.get(suite, ""))


def licences(source):
    """The licences of the libraries in the programs, by file name."""
    found = {}
    checkouts = os.path.join(source, ".build/checkouts")
    for package in sorted(os.listdir(checkouts)):
        for name in sorted(os.listdir(os.path.join(checkouts, package))):
            if name.startswith(("LICENSE", "NOTICE")):
                found[f"{package}-{name}"] = os.path.join(checkouts, package, name)
        if not any(name.startswith(f"{package}-LICENSE") for name in found):
            sys.exit(f"make dist: {package} has no licence in {checkouts}/{package}")
    swift = os.path.join(packages.toolchain(), "usr/share/swift/LICENSE.txt")
    if not os.path.exists(swift):
        sys.exit(f"make dist: Swift's licence is missing: {swift}")
    found["swift-LICENSE.txt"] = swift
    return found


def write_tarball(suite, source, version):
    machine = platform.machine()
    top = f"spoolgate-{version}-linux-{machine}"
    files = {f"bin/{name}": os.path.join(source, ".build/release", name) for name in PROGRAMS}
    files |= {f"licenses/{name}": path for name, path in licences(source).items()}
    listed = subprocess.run(
        ["git", "-C", REPOSITORY, "ls-files", "-z", "--", *SOURCES], check=True, capture_output=True, text=True
    ).stdout
    files |= {name: os.path.join(REPOSITORY, name) for name in listed.split("\0") if name}
    date = int(subprocess.run(
        ["git", "-C", REPOSITORY, "log", "-1", "--format=%ct"], check=True, capture_output=True, text=True
    ).stdout)

    def member(name, size, mode):
        entry = tarfile.TarInfo(f"{top}/{name}")
        entry.size, entry.mode, entry.mtime = size, mode, date
        return entry

    # The same files give the same bytes: no names, not today's date.
    with open(os.path.join(OUTPUT, f"{top}.tar.gz"), "wb") as raw, gzip.GzipFile(
        fileobj=raw, mode="wb", filename="", mtime=date
    ) as packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        text = INSTALL.format(version=version, machine=machine, suite=suite).encode()
        tar.addfile(member("INSTALL", len(text), 0o644), io.BytesIO(text))
        link = member("bin/spoolgate-download", 0, 0o777)
        link.type, link.linkname = tarfile.SYMTYPE, "spoolgate-upload"
        tar.addfile(link)
        for name, path in sorted(files.items()):
            mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with open(path, "rb") as file:
                tar.addfile(member(name, os.fstat(file.fileno()).st_size, mode), file)


def write_sums():
    lines = []
    for name in sorted(os.listdir(OUTPUT)):
        with open(os.path.join(OUTPUT, name), "rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n")
    with open(os.path.join(OUTPUT, "SHA256SUMS"), "w") as file:
        file.writelines(lines)


main()
