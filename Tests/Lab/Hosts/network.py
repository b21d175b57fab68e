"""The hosts' two networks in this process's network namespace: one for requests, one for the storage.

Each host has a tap device on both. A device that is down loses every packet, like an unplugged cable.
"""

from lab.processes import run

SERVICE, STORAGE = "10.77.0", "10.78.0"


def start():
    run(["ip", "link", "set", "lo", "up"])
    for name, network in (("service", SERVICE), ("storage", STORAGE)):
        run(["ip", "link", "add", name, "type", "bridge"])
        run(["ip", "address", "add", f"{network}.1/24", "dev", name])
        run(["ip", "link", "set", name, "up"])


def plug(host):
    """Creates a host's devices; returns their names."""
    devices = [f"{host}-{bridge}" for bridge in ("service", "storage")]
    for device in devices:
        run(["ip", "tuntap", "add", device, "mode", "tap"])
        run(["ip", "link", "set", device, "master", device.rpartition("-")[2], "up"])
    return devices


def unplug(host):
    for bridge in ("service", "storage"):
        run(["ip", "link", "delete", f"{host}-{bridge}"])


def cut_storage(host):
    run(["ip", "link", "set", f"{host}-storage", "down"])


def restore_storage(host):
    run(["ip", "link", "set", f"{host}-storage", "up"])
