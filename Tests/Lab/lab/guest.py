"""The guest: a Linux kernel from a distribution's cloud package, and an initramfs from files of this machine.

Everything is below one directory: the kernel's package (kept), `vmlinuz` and `guest.cpio`. Nothing is installed.
"""

import glob
import hashlib
import lzma
import os
import re
import shutil
import subprocess

from lab.processes import Unavailable
from lab.processes import tool as find

# Packages that depend on the newest kernel: Debian's, Ubuntu's.
KERNELS = ("linux-image-cloud-amd64", "linux-image-virtual")
TOOLS = ("qemu-system-x86_64", "cpio", "gcc", "ldd", "strip")
BUSYBOX = "/bin/busybox"


def tool(name):
    return find(name, "power")


def run(*words, **more):
    """The output of a program, which must succeed."""
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def check_tools(*more):
    """Raises an exception if this machine cannot build or run a guest, or lacks one of `more` programs."""
    if os.uname().machine != "x86_64":
        raise Unavailable(f"the guest is an x86-64 machine, and this one is {os.uname().machine}")
    for name in (*TOOLS, *more):
        tool(name)
    if not os.path.exists(BUSYBOX) or libraries(BUSYBOX):
        raise Unavailable("busybox-static is not installed (deploy/install-dependencies.sh power)")


def digest(path):
    """The first digits of a file's SHA-256, which identify a program in the results."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def kernel(out):
    """Fetches and unpacks the kernel's packages if they are missing; returns the unpacked directory."""
    given = os.environ.get("POWER_KERNEL")
    if given:
        return given
    unpacked = f"{out}/kernel"
    if glob.glob(f"{unpacked}/boot/vmlinuz-*") and glob.glob(f"{unpacked}/lib/modules/*/kernel"):
        return unpacked
    shutil.rmtree(unpacked, ignore_errors=True)
    packages = f"{out}/packages"
    os.makedirs(packages, exist_ok=True)
    try:
        for name in wanted_packages():
            run("apt-get", "download", name, cwd=packages, stderr=subprocess.DEVNULL)
        for package in glob.glob(f"{packages}/*.deb"):
            run("dpkg", "-x", package, unpacked)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(packages, ignore_errors=True)
        shutil.rmtree(unpacked, ignore_errors=True)
        raise Unavailable(f"no kernel package can be fetched ({error}); set POWER_KERNEL") from None
    return unpacked


def wanted_packages():
    """The kernel that the newest of KERNELS depends on, and its modules if they are a separate package."""
    for name in KERNELS:
        found = subprocess.run(
            ["apt-cache", "depends", "--recurse", "--important", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ).stdout
        versions = re.findall(r"^(linux-(?:image|modules)-\d\S*)$", found, re.MULTILINE)
        if versions:
            return sorted(set(versions))
    raise Unavailable(f"no package {' or '.join(KERNELS)} was found; set POWER_KERNEL")


def module_bytes(path):
    """A module's file, decompressed."""
    if path.endswith(".xz"):
        with lzma.open(path) as file:
            return file.read()
    if path.endswith(".zst"):
        return subprocess.run([tool("zstd"), "-dc", path], check=True, stdout=subprocess.PIPE).stdout
    with open(path, "rb") as file:
        return file.read()


def in_order(directory, names):
    """These modules as (name, bytes), each after its dependencies."""
    files = {}
    for path in glob.glob(f"{directory}/kernel/**/*.ko*", recursive=True):
        files[os.path.basename(path).split(".ko")[0].replace("-", "_")] = path
    order = {}

    def add(name):
        # A module without a file is built into the kernel.
        if name not in files or name in order:
            return
        content = module_bytes(files[name])
        depends = re.search(rb"\0?depends=([^\0]*)\0", content)[1].decode()
        for other in filter(None, depends.split(",")):
            add(other.replace("-", "_"))
        order[name] = content

    for name in names:
        add(name)
    return list(order.items())


def libraries(path):
    said = subprocess.run([tool("ldd"), path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return re.findall(r"(/[^ ]+\.so[^ ]*) \(0x", said)


class Root:
    """The root directory of the initramfs, with some directories and the kernel's modules; `vmlinuz` is next to it."""

    def __init__(self, out, directories, modules):
        os.makedirs(out, exist_ok=True)
        unpacked = kernel(out)
        shutil.copy(glob.glob(f"{unpacked}/boot/vmlinuz-*")[0], f"{out}/vmlinuz")
        self.path = f"{out}/root"
        shutil.rmtree(self.path, ignore_errors=True)
        for name in directories.split():
            os.makedirs(f"{self.path}/{name}", exist_ok=True)
        self.put(BUSYBOX, "/bin/busybox", 0o755)
        self.put_modules(unpacked, modules)
        self.write("/etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
        self.write("/etc/group", "root:x:0:\n")
        self.write("/etc/hosts", "127.0.0.1 localhost\n")
        self.write("/etc/nsswitch.conf", "hosts: files\n")

    def put(self, source, path, mode=None):
        target = self.path + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(source, target)
        if mode is not None:
            os.chmod(target, mode)

    def write(self, path, content):
        os.makedirs(os.path.dirname(self.path + path), exist_ok=True)
        with open(self.path + path, "wb" if isinstance(content, bytes) else "w") as file:
            file.write(content)

    def put_programs(self, programs, loaded=()):
        """Copies programs, by their paths in the guest, with all their libraries and those that they load later."""
        needed = set(filter(os.path.exists, loaded))
        for path, source in programs.items():
            self.put(os.path.realpath(source), path, 0o755)
            needed |= set(libraries(source))
        for library in needed:
            self.put(os.path.realpath(library), library, 0o755)

    def put_gateways(self, programs):
        """Copies builds of the gateway to /bin, by their names there, without debugging information."""
        self.put_programs({f"/bin/{name}": path for name, path in programs.items()})
        for name in programs:
            run(tool("strip"), f"{self.path}/bin/{name}")

    def put_modules(self, unpacked, names):
        """Copies modules of the unpacked kernel, numbered in their order."""
        release = glob.glob(f"{unpacked}/lib/modules/*")[0]
        for number, (name, content) in enumerate(in_order(release, names)):
            self.write(f"/modules/{number:02}-{name}.ko", content)

    def pack(self, target):
        names = run("find", ".", cwd=self.path)
        with open(target, "wb") as file:
            subprocess.run(
                [tool("cpio"), "-o", "-H", "newc", "-R", "0:0", "--quiet"],
                check=True,
                input=names.encode(),
                stdout=file,
                cwd=self.path,
            )
