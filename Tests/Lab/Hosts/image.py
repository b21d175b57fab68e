"""The hosts' boot files: a kernel from the distribution's cloud package, and an initramfs with the gateway,
ceph-fuse and DRBD's tools.
"""

import glob
import os
import pathlib
import shutil

from lab import guest
from lab.guest import Root, run, tool

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = "virtio_pci virtio_blk virtio_net virtio_rng fuse ceph drbd".split()
DIRECTORIES = (
    "bin sbin proc sys dev tmp run data spool modules etc/ceph var/lib/drbd var/run/drbd var/lib/ceph var/log/ceph"
    " var/lock www/cgi-bin usr/share/spoolgate lib/drbd"
)
PROGRAMS = "ceph-fuse mkfs.ext4 e2fsck".split()
# Libraries that ceph-fuse loads at run time to resolve host names.
LOADED = ("/lib/x86_64-linux-gnu/libnss_files.so.2", "/lib/x86_64-linux-gnu/libgcc_s.so.1")


def build(out, programs):
    """Builds `vmlinuz` and `hosts.cpio` in `out`, unless they are up to date; `programs` maps names in the image to
    paths of the gateway.
    """
    parts = [*programs.values(), *glob.glob(f"{HERE}/guest/*"), os.path.abspath(__file__), guest.__file__]
    stamp = " ".join(map(guest.digest, sorted(parts)))
    stamp_file = pathlib.Path(f"{out}/stamp")
    is_built = os.path.exists(f"{out}/hosts.cpio") and stamp_file.exists()
    if is_built and stamp_file.read_text() == stamp:
        return
    stamp_file.unlink(missing_ok=True)
    root = Root(out, DIRECTORIES, MODULES)
    root.put_gateways(programs)
    root.put_programs({f"/sbin/{name}": tool(name) for name in PROGRAMS}, LOADED)
    root.put_programs(replication(out))
    run(tool("gcc"), "-O2", "-static", "-o", f"{root.path}/bin/relay", f"{HERE}/guest/relay.c")
    root.put(f"{HERE}/guest/init", "/init", 0o755)
    root.put(f"{HERE}/guest/run", "/www/cgi-bin/run", 0o755)
    root.pack(f"{out}/hosts.cpio")
    stamp_file.write_text(stamp)


def replication(out):
    """DRBD's tools, unpacked from their package: their paths in the image and here."""
    unpacked = f"{out}/drbd"
    if not glob.glob(f"{unpacked}/*/drbdadm") and not glob.glob(f"{unpacked}/usr/sbin/drbdadm"):
        shutil.rmtree(unpacked, ignore_errors=True)
        packages = f"{out}/packages"
        os.makedirs(packages, exist_ok=True)
        run("apt-get", "download", "drbd-utils", cwd=packages)
        run("dpkg", "-x", glob.glob(f"{packages}/drbd-utils*.deb")[0], unpacked)
    found = glob.glob(f"{unpacked}/usr/sbin/drbd*") + glob.glob(f"{unpacked}/sbin/drbd*")
    found += glob.glob(f"{unpacked}/lib/drbd/drbd*") + glob.glob(f"{unpacked}/usr/lib/drbd/drbd*")
    return {
        path.removeprefix(unpacked).replace("/usr/sbin", "/sbin").replace("/usr/lib/", "/lib/"): path
        for path in found
        if not os.path.islink(path) and os.access(path, os.X_OK)
    }
