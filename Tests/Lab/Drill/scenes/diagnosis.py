"""The operator's commands diagnose faults of the machine, and their advice works."""

import json
import re

from day import ADMIN, URL, Scene
from lab.processes import wait

LIVE = "spoolgate check --live"
DROP_IN = "/etc/systemd/system/spoolgate.service.d/nowhere.conf"
SOCKET_DROP_IN = "/etc/systemd/system/spoolgate.socket.d/override.conf"
RESTARTS = "systemctl show -P NRestarts spoolgate.service"
# Uploads of earlier scenes may need attention.
WELL = (["ok"], ["warn"])


def look(day, *names):
    """Runs the check; returns its exit status and its findings by these names."""
    result = day.run(f"{LIVE} --json | grep -E '^.{{7}}\"check\":\"({'|'.join(names)})\"'", limit=20)
    status = day.machine.quietly(LIVE).status
    found = [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]
    return status, found


def levels(found, name):
    return [line["level"] for line in found if line["check"] == name]


def said(found):
    return "\n".join([line["text"] + "\n" + "\n".join(line["fix"]) for line in found])


def follow(day, command, sentence):
    """Runs the command that a finding advises."""
    # In advice, words in parentheses after two spaces explain a command.
    return day.must(re.sub(r"  \(.*\)$", "", command), sentence)


def crash_loop(day):
    """A crash loop while systemd holds the socket, so that connections prove nothing."""
    day.must("systemctl restart spoolgate", "after a manual start, earlier restarts do not count")
    status, found = look(day, "units", "daemon")
    day.check(levels(found, "units") == ["ok"], "the units run", said(found))
    day.check(levels(found, "daemon") in WELL, "and the daemon reports its state", said(found))
    day.machine.edit(DROP_IN, lambda _: "[Service]\nReadWritePaths=/srv/nowhere\n")
    result = day.run("systemctl daemon-reload && systemctl restart spoolgate")
    day.check(not result.ok, "the service does not start")
    wait(30, lambda: int(day.value(RESTARTS)) >= 3)
    day.run("systemctl is-active spoolgate.socket spoolgate.service")
    # At any point of the loop.
    seen = []
    for _ in range(6):
        status, found = look(day, "units", "daemon", "socket")
        seen.append((status, levels(found, "units"), levels(found, "daemon")))
    always = all(one == (69, ["fail"], ["fail"]) for one in seen)
    day.check(always, "at any time, units and daemon fail, while the socket listens", seen)
    is_told = "does not stay up" in said(found) and "ReadWritePaths=" in said(found)
    day.check(is_told, "the report has the number of restarts and the advice", said(found))
    day.run(f"rm -r {DROP_IN.rsplit('/', 1)[0]} && systemctl daemon-reload")
    wait(20, day.is_active)
    day.must("systemctl restart spoolgate", "after a manual start, the count begins anew")
    status, found = look(day, "units", "daemon")
    day.check(levels(found, "units") == ["ok"], "and all is ok", said(found))


def other_user(day):
    """nginx's workers run as another user than Debian's, as with packages from nginx.org."""
    day.machine.quietly("useradd --system --user-group --no-create-home nginx")
    day.open_admin()
    day.machine.edit("/etc/nginx/nginx.conf", lambda text: text.replace("user www-data;", "user nginx;"))
    day.must("systemctl restart nginx", "nginx runs as user nginx")
    status, found = look(day, "socket", "admin")
    fail = (levels(found, "socket"), levels(found, "admin")) == (["fail"], ["fail"])
    day.check(fail, "both sockets that its workers cannot open are named", said(found))
    day.check("SocketGroup=nginx" in said(found), "and the group that fixes it", said(found))
    day.check("the status page and the metrics return 502" in said(found), "and what fails", said(found))
    day.check_status(f"{ADMIN}/live", 502, "as the page does")
    day.machine.edit(SOCKET_DROP_IN, lambda _: "[Socket]\nSocketGroup=nginx\nSocketMode=0660\n")
    day.run("systemctl daemon-reload")
    fix = next(m for line in found for m in line["fix"] if "systemctl edit spoolgate.socket" in m)
    follow(day, fix.split("; then ")[1], "restarted as it says")
    day.run("stat -c '%U:%G %a %n' /run/spoolgate/*.sock")
    status, found = look(day, "socket", "admin")
    follows = [line["level"] for line in found] == ["ok", "ok"]
    day.check(follows, "admin.sock has followed the group of spoolgate.socket", said(found))
    day.check_status(f"{ADMIN}/live", 200, "and the page is served")
    day.run(f"rm -r {SOCKET_DROP_IN.rsplit('/', 1)[0]} && systemctl daemon-reload")
    day.machine.edit("/etc/nginx/nginx.conf", lambda text: text.replace("user nginx;", "user www-data;"))
    day.run(fix.split("; then ")[1] + " && systemctl restart nginx")
    status, found = look(day, "socket", "admin")
    day.check([line["level"] for line in found] == ["ok", "ok"], "and back", said(found))


def login(day):
    """The password file is removed, unreadable, and restored."""
    path = "/etc/nginx/uploads.htpasswd"
    day.run(f"mv {path} {path}.away")
    status, found = look(day, "login")
    day.check("does not exist" in said(found) and "403" in said(found), "a missing file is named", said(found))
    day.check_status(f"{ADMIN}/live", 403, "and nginx responds as reported")
    day.run(f"mv {path}.away {path} && chmod 600 {path}")
    status, found = look(day, "login")
    day.check("may not read" in said(found), "a closed one is named", said(found))
    fix = next(fix for line in found for fix in line["fix"] if fix.startswith("chgrp "))
    follow(day, fix, "its advice works")
    status, found = look(day, "login")
    day.check("fail" not in levels(found, "login"), "and the login is ok", said(found))
    wrong = "Authorization: Basic $(printf alice:wrong | base64)"
    probe = f'spoolgate probe {URL} --local -H "{wrong}"'
    day.must_show(probe, "'alice' and its password in -H are refused", "a wrong password is named", limit=20)


LOOP = (
    r"Failed with result",
    r"Main process exited",
    r"Failed to set up mount namespacing",
    r"Failed at step NAMESPACE",
    r"nowhere",
    r"Failed to start",
    r"took too long",
)

SCENES = [
    Scene("A crash loop behind a listening socket", crash_loop, (), LOOP),
    Scene("nginx as another user", other_user),
    Scene("Mistakes with the login", login),
]
