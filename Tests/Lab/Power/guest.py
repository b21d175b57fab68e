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
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))

# The modules that the guest needs; build() adds their dependencies.
MODULES = (
    "virtio_pci virtio_blk virtio_net virtio_rng xfs blake2b_generic xxhash_generic btrfs".split()
)
# Packages that depend on the newest kernel: Debian's, Ubuntu's.
KERNELS = ("linux-image-cloud-amd64", "linux-image-virtual")
TOOLS = "qemu-system-x86_64 cpio gcc ldd strip mkfs.ext4 mkfs.xfs mkfs.btrfs openssl".split()
IN_GUEST = "nginx e2fsck xfs_repair btrfs".split()
BUSYBOX = "/bin/busybox"
MODULE = os.path.join(ROOT, ".build/nginx-module/ngx_http_interim_module.so")
SHARED = "/usr/share/spoolgate/nginx"
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
INSTALL = "deploy/install-dependencies.sh power"


class Unavailable(Exception):
    """This machine cannot run the test."""


def run(*words, **more):
    """The output of a program, which must succeed."""
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def tool(name):
    found = shutil.which(name, path=PATH)
    if not found:
        raise Unavailable(f"{name} is not installed ({INSTALL})")
    # Not its real path: mke2fs and others depend on the name that they are called by.
    return found


def check_tools():
    """Raises an exception if this machine lacks a tool that must be installed."""
    if os.uname().machine != "x86_64":
        raise Unavailable(f"the guest is an x86-64 machine, and this one is {os.uname().machine}")
    for name in (*TOOLS, *IN_GUEST):
        tool(name)
    if not os.path.exists(BUSYBOX) or libraries(BUSYBOX):
        raise Unavailable(f"busybox-static is not installed ({INSTALL})")


def program():
    """The path of the gateway's program."""
    path = os.environ.get("SPOOLGATE") or os.path.join(ROOT, ".build/release/spoolgate")
    if not os.access(path, os.X_OK):
        raise Unavailable(f"{path} is missing: run make build, or set SPOOLGATE=path")
    return path


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
        return subprocess.run(
            [tool("zstd"), "-dc", path], check=True, stdout=subprocess.PIPE
        ).stdout
    with open(path, "rb") as file:
        return file.read()


def in_order(directory, names=MODULES):
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
    said = subprocess.run(
        [tool("ldd"), path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout
    return re.findall(r"(/[^ ]+\.so[^ ]*) \(0x", said)


class Root:
    """The root directory of the initramfs."""

    def __init__(self, path):
        self.path = path
        shutil.rmtree(path, ignore_errors=True)

    def directories(self, *names):
        for name in names:
            os.makedirs(f"{self.path}/{name}")

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


def build(out, gateway, previous):
    """Builds `vmlinuz` and `guest.cpio` in `out` with the gateway and a previous build of it (or None)."""
    os.makedirs(out, exist_ok=True)
    unpacked = kernel(out)
    shutil.copy(glob.glob(f"{unpacked}/boot/vmlinuz-*")[0], f"{out}/vmlinuz")
    root = Root(f"{out}/root")
    root.directories(
        "bin",
        "sbin",
        "proc",
        "sys",
        "dev",
        "tmp",
        "run/spoolgate",
        "data",
        "other",
        "modules",
        "etc",
        "var/log/nginx",
        "var/lib/nginx",
        "www/cgi-bin",
        SHARED[1:] + "/modules/upstream",
    )
    root.put(BUSYBOX, "/bin/busybox", 0o755)
    needed = set()
    for name, path in (("spoolgate", gateway), ("spoolgate-previous", previous)):
        if path:
            run(tool("strip"), "-o", f"{root.path}/bin/{name}", path)
            needed |= set(libraries(path))
    for name in IN_GUEST:
        root.put(os.path.realpath(tool(name)), f"/sbin/{name}", 0o755)
        needed |= set(libraries(tool(name)))
    for library in needed:
        root.put(os.path.realpath(library), library, 0o755)
    # A C library whose syncs can be disabled: a negative control.
    os.makedirs(f"{root.path}/usr/lib", exist_ok=True)
    run(
        tool("gcc"),
        "-O2",
        "-shared",
        "-fPIC",
        "-o",
        f"{root.path}/usr/lib/liar.so",
        f"{HERE}/guest/liar.c",
        "-ldl",
    )
    run(tool("gcc"), "-O2", "-o", f"{root.path}/bin/witness", f"{HERE}/guest/witness.c")
    for number, (name, content) in enumerate(in_order(glob.glob(f"{unpacked}/lib/modules/*")[0])):
        root.write(f"/modules/{number:02}-{name}.ko", content)
    put_nginx(root)
    for name, path, mode in (
        ("init", "/init", 0o755),
        ("ask", "/www/cgi-bin/ask", 0o755),
        ("spoolgate.yaml", "/etc/spoolgate.yaml", None),
    ):
        root.put(f"{HERE}/guest/{name}", path, mode)
    root.write("/etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
    root.write("/etc/group", "root:x:0:\n")
    root.write("/etc/hosts", "127.0.0.1 localhost\n")
    root.write("/etc/nsswitch.conf", "hosts: files\n")
    root.pack(f"{out}/guest.cpio")


def put_nginx(root):
    """nginx's settings: the shipped files in their places, and a server that includes them."""
    if not os.path.exists(MODULE):
        raise Unavailable(
            "the nginx module for this machine's nginx is missing: run make module"
        )
    root.put(MODULE, "/usr/lib/nginx/modules/ngx_http_interim_module.so")
    for name in ("http", "location", "params", "pass", "server"):
        root.put(f"{ROOT}/nginx/{name}.conf", f"{SHARED}/{name}.conf")
    root.put(f"{ROOT}/nginx/module/interim.conf", f"{SHARED}/modules/interim.conf")
    root.put(f"{ROOT}/nginx/module/keepalive.conf", f"{SHARED}/modules/upstream/keepalive.conf")
    root.put("/etc/nginx/mime.types", "/etc/nginx/mime.types")
    root.put(f"{HERE}/guest/nginx.conf", "/etc/nginx/nginx.conf")
    run(
        tool("openssl"),
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        f"{root.path}/etc/nginx/guest.key",
        "-out",
        f"{root.path}/etc/nginx/guest.crt",
        "-days",
        "3650",
        "-subj",
        "/CN=localhost",
        stderr=subprocess.DEVNULL,
    )



def accelerator(out, initramfs="guest.cpio", word="POW "):
    """`kvm` if the guest's kernel, whose init prints `word`, runs with it here, else `tcg`, which emulates every
    instruction.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    console = f"{out}/console-of-kvm"
    with open(console, "w") as output:
        process = subprocess.Popen(
            [
                tool("qemu-system-x86_64"),
                "-accel",
                "kvm",
                "-cpu",
                "host",
                "-m",
                "1024",
                "-nodefaults",
                "-no-reboot",
                "-display",
                "none",
                "-kernel",
                f"{out}/vmlinuz",
                "-initrd",
                f"{out}/{initramfs}",
                "-append",
                "console=ttyS0 quiet panic=-1",
                "-serial",
                "stdio",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and process.poll() is None:
            with open(console, errors="replace") as said:
                if word in said.read():
                    return "kvm"
            time.sleep(0.1)
        return "tcg"
    finally:
        process.kill()
        process.wait()
