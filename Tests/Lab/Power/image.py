"""The guest's boot files: a kernel from the distribution's package, and an initramfs with the gateway and nginx."""

import os

from lab import guest
from lab.gateway import certify
from lab.guest import Root, Unavailable, run, tool
from lab.processes import MODULE, ROOT

GUEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest")
# The modules that the guest needs, without their dependencies.
MODULES = "virtio_pci virtio_blk virtio_net virtio_rng xfs blake2b_generic xxhash_generic btrfs".split()
TOOLS = "mkfs.ext4 mkfs.xfs mkfs.btrfs openssl".split()
IN_GUEST = "nginx e2fsck xfs_repair btrfs".split()
SHARED = "/usr/share/spoolgate/nginx"
DIRECTORIES = (
    "bin sbin proc sys dev tmp run/spoolgate data other modules etc/nginx var/log/nginx var/lib/nginx www/cgi-bin"
    " usr/lib"
)


def check_tools():
    guest.check_tools(*TOOLS, *IN_GUEST)


def build(out, gateway, previous):
    """Builds `vmlinuz` and `guest.cpio` in `out` with the gateway and a previous build of it (or None)."""
    root = Root(out, DIRECTORIES, MODULES)
    builds = {"spoolgate": gateway, "spoolgate-previous": previous}
    root.put_gateways({name: path for name, path in builds.items() if path})
    root.put_programs({f"/sbin/{name}": tool(name) for name in IN_GUEST})
    # A C library whose syncs can be disabled: a negative control.
    liar = f"{root.path}/usr/lib/liar.so"
    run(tool("gcc"), "-O2", "-shared", "-fPIC", "-o", liar, f"{GUEST}/liar.c", "-ldl")
    run(tool("gcc"), "-O2", "-o", f"{root.path}/bin/witness", f"{GUEST}/witness.c")
    put_nginx(root)
    root.put(f"{GUEST}/init", "/init", 0o755)
    root.put(f"{GUEST}/ask", "/www/cgi-bin/ask", 0o755)
    root.put(f"{GUEST}/spoolgate.yaml", "/etc/spoolgate.yaml")
    root.pack(f"{out}/guest.cpio")


def put_nginx(root):
    """nginx's settings: the shipped files in their places, and a server that includes them."""
    if not os.path.exists(MODULE):
        raise Unavailable("the nginx module for this machine's nginx is missing: run make module")
    root.put(MODULE, "/usr/lib/nginx/modules/ngx_http_interim_module.so")
    for name in ("http", "location", "params", "pass", "server"):
        root.put(f"{ROOT}/nginx/{name}.conf", f"{SHARED}/{name}.conf")
    root.put(f"{ROOT}/nginx/module/interim.conf", f"{SHARED}/modules/interim.conf")
    root.put(f"{ROOT}/nginx/module/keepalive.conf", f"{SHARED}/modules/upstream/keepalive.conf")
    root.put("/etc/nginx/mime.types", "/etc/nginx/mime.types")
    root.put(f"{GUEST}/nginx.conf", "/etc/nginx/nginx.conf")
    certify(f"{root.path}/etc/nginx/guest.key", f"{root.path}/etc/nginx/guest.crt")
