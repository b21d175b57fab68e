"""The hosts' boot files: a kernel from the distribution's cloud package, and an initramfs with the gateway,
ceph-fuse and DRBD's tools.
"""

import glob
import os
import shutil

import guest
from guest import Root, Unavailable, libraries, run, tool

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = "virtio_pci virtio_blk virtio_net virtio_rng fuse ceph drbd".split()
PROGRAMS = "ceph-fuse mkfs.ext4 e2fsck".split()
# Libraries that ceph-fuse loads at run time to resolve host names.
LOADED = ("/lib/x86_64-linux-gnu/libnss_files.so.2", "/lib/x86_64-linux-gnu/libgcc_s.so.1")


def missing():
    """The reason why the image cannot be built here; None if it can."""
    try:
        if os.uname().machine != "x86_64":
            return f"the hosts are x86-64 machines, and this one is {os.uname().machine}"
        for name in ("qemu-system-x86_64", "cpio", "strip", "ldd", "gcc", *PROGRAMS):
            tool(name)
        if not os.path.exists(guest.BUSYBOX) or libraries(guest.BUSYBOX):
            return "busybox-static is not installed"
    except Unavailable as reason:
        return str(reason)
    return None


def build(out, programs):
    """Builds `vmlinuz` and `hosts.cpio` in `out`, unless they are up to date; `programs` maps names in the image to
    paths of the gateway.
    """
    os.makedirs(out, exist_ok=True)
    parts = [*programs.values(), *glob.glob(f"{HERE}/guest/*"), os.path.abspath(__file__), guest.__file__]
    stamp = " ".join(map(guest.digest, sorted(parts)))
    if _read(f"{out}/stamp") == stamp and os.path.exists(f"{out}/hosts.cpio"):
        return
    _write(f"{out}/stamp", "")
    unpacked = guest.kernel(out)
    shutil.copy(glob.glob(f"{unpacked}/boot/vmlinuz-*")[0], f"{out}/vmlinuz")
    root = Root(f"{out}/root")
    root.directories(
        *"bin sbin proc sys dev tmp run data spool modules etc/ceph var/lib/drbd var/run/drbd".split(),
        *"var/lib/ceph var/log/ceph var/lock www/cgi-bin usr/share/spoolgate lib/drbd".split(),
    )
    root.put(guest.BUSYBOX, "/bin/busybox", 0o755)
    needed = set(filter(os.path.exists, LOADED))
    for name, path in programs.items():
        run(tool("strip"), "-o", f"{root.path}/bin/{name}", path)
        needed |= set(libraries(path))
    tools = {f"/sbin/{name}": os.path.realpath(tool(name)) for name in PROGRAMS}
    tools |= replication(out)
    for place, path in tools.items():
        root.put(path, place, 0o755)
        needed |= set(libraries(path))
    for library in needed:
        root.put(os.path.realpath(library), library, 0o755)
    run(tool("gcc"), "-O2", "-static", "-o", f"{root.path}/bin/relay", f"{HERE}/guest/relay.c")
    release = glob.glob(f"{unpacked}/lib/modules/*")[0]
    for number, (name, content) in enumerate(guest.in_order(release, MODULES)):
        root.write(f"/modules/{number:02}-{name}.ko", content)
    root.put(f"{HERE}/guest/init", "/init", 0o755)
    root.put(f"{HERE}/guest/run", "/www/cgi-bin/run", 0o755)
    root.write("/etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
    root.write("/etc/group", "root:x:0:\n")
    root.write("/etc/hosts", "127.0.0.1 localhost\n")
    root.write("/etc/nsswitch.conf", "hosts: files\n")
    root.pack(f"{out}/hosts.cpio")
    _write(f"{out}/stamp", stamp)


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


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
