"""The Debian packages under test: those of `make deb` for this host's suite."""

import glob
import os

from roots import Unavailable

NAMES = ("spoolgate", "libnginx-mod-http-interim")


def built(directory):
    """The paths of both packages in a directory, the newest of each."""
    found = []
    for name in NAMES:
        files = sorted(glob.glob(os.path.join(directory, f"{name}_*.deb")), key=os.path.getmtime)
        if not files:
            raise Unavailable(f"no package {name} in {directory} (make deb)")
        found.append(files[-1])
    return found
