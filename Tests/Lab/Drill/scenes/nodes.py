"""Two machines behind one nginx: each is upgraded in turn, during uploads.

The second has its own systemd, package manager, settings and spool, and shares the first one's loopback network, on
which nginx, both nodes and the application communicate.
"""

import re
import shutil

import roots
from .upgrade import VERSION as OLD
from .upgrade import repack
from day import CURL, NODES, SETTINGS, SNIPPET, UNITS, URL, Scene
from lab.processes import wait
from machine import Machine

NEW = "100.0"
PORTS = {"n1": 9001, "n2": 9002}
DROP_IN = "/etc/systemd/system/spoolgate.socket.d/node.conf"
ONE_NODE = "    include /usr/share/spoolgate/nginx/pass*.conf;\n"
NODE_IN_PATH = "    fastcgi_pass $spoolgate_node;\n    fastcgi_next_upstream error timeout;\n"
RESTART = (
    "systemctl daemon-reload && systemctl stop spoolgate && systemctl restart spoolgate.socket"
    " && systemctl start spoolgate"
)
LOGS = "/root/nodes"
SIZE = 3_000_000
CONTENT = "".join(f"{number}\n" for number in range(3000))

# Continuous uploads until the test ends them: twelve resuming clients, which begin half a second apart, so that
# each node always has some in progress, and one client that cannot resume.
LOAD = f"""for w in $(seq 12); do
    (sleep $((w / 2)); n=0; while [ ! -e /root/enough ]; do n=$((n + 1)); name=node-$w-$n.bin
        upload send $name {SIZE} --pace 0.5 --until-done 90 > {LOGS}/$name 2>&1; done) &
done
n=0; while [ ! -e /root/enough ]; do n=$((n + 1)); name=node-ordinary-$n.txt
    {CURL} -o /dev/null -w "$name %{{http_code}}\\n" -T /root/content {URL}$name; sleep 0.05; done; wait"""


def upgrade(day):
    second = Machine(day.machine.root + "-n2", day.transcript, beside=day.machine)
    roots.copy(day.clean_root, second.root)
    try:
        second.boot()
        begin(day, second)
        upgrade_under_load(day, {"n2": second, "n1": day.machine})
        said = second.quietly(f"journalctl -q -p warning {UNITS} -o cat").output
        other = day.unknown(said, MOVED)
        day.check(not other, "the journal of n2 has no other warning", "\n".join(other))
    finally:
        second.power_off()
        end(day)


def begin(day, second):
    repack(day, NEW)
    for version in (OLD, NEW):
        package = f"/root/spoolgate_{version}_amd64.deb"
        shutil.copy(day.machine.path(package), second.path(package))
    install = f"install -y --no-install-recommends ./spoolgate_{OLD}_amd64.deb"
    day.apt(install, f"a second machine has version {OLD}, like this one", second)
    settings = day.machine.read(SETTINGS)
    second.edit(SETTINGS, lambda _: settings)
    for name, machine in (("n1", day.machine), ("n2", second)):
        machine.run(f"echo 'node: {name}' | tee -a {SETTINGS}")
        machine.edit(DROP_IN, lambda _: f"[Socket]\nListenStream=\nListenStream=127.0.0.1:{PORTS[name]}\n")
        day.check(machine.run(RESTART).ok, f"{name} serves")
    day.run(f"cp /usr/share/doc/spoolgate/examples/spoolgate_nodes.conf {NODES}")
    day.machine.edit(NODES, two_nodes)
    day.machine.edit(SNIPPET, lambda text: text.replace(ONE_NODE, NODE_IN_PATH))
    day.reload_nginx()


def two_nodes(text):
    text = re.sub(r"(?m)^upstream spoolgate_n3 \{\n(?:.*\n)*?\}\n", "", text)
    text = "".join(line for line in text.splitlines(keepends=True) if "n3" not in line)
    for number, port in enumerate(PORTS.values(), 1):
        text = text.replace(f"10.0.0.{number}:9000", f"127.0.0.1:{port}")
    return text


def upgrade_under_load(day, machines):
    day.machine.write("/root/content", CONTENT)
    day.machine.quietly(f"mkdir {LOGS}")
    load = day.machine.start(LOAD)
    try:
        upgrade_each(day, machines)
    finally:
        day.machine.write("/root/enough", "")
        said = load.finish(90).output
    judge(day, said.splitlines(), list(machines))


def upgrade_each(day, machines):
    under_load = wait(30, lambda: all(taken(day, node) > 1 for node in machines))
    day.check(under_load, "both nodes have uploads")
    for node, machine in machines.items():
        process = machine.quietly("systemctl show -P MainPID spoolgate").output
        day.apt(f"install -y ./spoolgate_{NEW}_amd64.deb", f"{node} is upgraded", machine)
        now = machine.quietly("systemctl show -P MainPID -P Description spoolgate").output
        day.check(NEW in now and process.strip() not in now.split(), f"another process serves on {node}")
        day.check(takes_more(day, node), "and accepts uploads")


def taken(day, node):
    """The number of resumable uploads that were created on a node."""
    return int(day.value(f"grep -rl upload-resource/{node}/ {LOGS} | wc -l"))


def takes_more(day, node):
    before = taken(day, node)
    return wait(30, lambda: taken(day, node) > before + 2)


def judge(day, said, nodes):
    # curl prints the error of a failed upload before its line.
    ended = re.compile(r"(node-ordinary-\d+\.txt) \d+")
    ordinary = [found[1] for found in map(ended.fullmatch, said) if found]
    failed = [line for line in said if not (ended.fullmatch(line) and line.endswith(" 201"))]
    day.check(
        ordinary and not failed,
        f"of {len(ordinary)} ordinary uploads meanwhile, none was retried and none failed",
        "\n".join(failed),
    )
    # nginx's log about them; if a worker died, it has the reason and the signal.
    log = "/var/log/nginx/error.log"
    died = day.value(f"grep -E '\\[(alert|emerg)\\]|exited on signal' {log}")
    day.check(not died, "nginx has no alert in its log", died)
    logs = {name: day.value(f"cat {LOGS}/{name}") for name in day.value(f"ls {LOGS}").split()}
    failed = [f"{name}: {log[-300:]}" for name, log in logs.items() if "answered 201" not in log]
    day.check(logs and not failed, f"of {len(logs)} resumable ones none failed", "\n".join(failed))
    for node in nodes:
        cut = sum(f"upload-resource/{node}/" in log and "after 0 cuts" not in log for log in logs.values())
        day.check(cut, f"{cut} of them were interrupted by the restart of {node}, and continued")
    for name in ordinary:
        day.arrives(name, content=CONTENT.encode())
    for name in logs:
        day.arrives(name, size=SIZE)
    day.judge_deliveries([*ordinary, *logs])


def end(day):
    """Returns to one node."""
    day.run(f"rm -f {NODES} {DROP_IN}")
    day.machine.edit(SNIPPET, lambda text: text.replace(NODE_IN_PATH, ONE_NODE))
    day.run(f"sed -i '/^node: n1/d' {SETTINGS}")
    day.must(RESTART, "one node serves, on its own socket again")
    day.reload_nginx()


# The message after each change of the socket's address, until it is restarted.
MOVED = (r"spoolgate\.socket: Socket unit configuration has changed",)

SCENES = [Scene("Two nodes, upgraded one after the other under load", upgrade, (), MOVED)]
