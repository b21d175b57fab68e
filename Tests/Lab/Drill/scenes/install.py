"""The packages are installed on a clean machine, and the operator sets the upstream."""

import json
import re

from day import APPLICATION, SETTINGS, SITE, SNIPPET, Scene

# The existing site: its own names for its users, a login and a certificate; after the installation it gets one more
# line.
SERVER = """map $remote_user $uploader {
    ""      "";
    default "$remote_user@uploads.example";
}

server {
    listen 80;
    listen 443 ssl%(http2_listen)s;%(http2_line)s
    server_name uploads.example;
    ssl_certificate     /etc/nginx/uploads.pem;
    ssl_certificate_key /etc/nginx/uploads.pem;
    auth_basic "uploads";
    auth_basic_user_file /etc/nginx/uploads.htpasswd;
}
"""

OPEN_SERVER = """server {
    listen 81;
    include snippets/spoolgate*.conf;
}
"""


def install(day):
    if not day.install_packages("apt installs the packages and their dependencies").ok:
        return
    day.must("nginx -t", "nginx accepts its configuration")
    running = day.run("systemctl is-active spoolgate.service spoolgate.socket").output
    day.check("active" not in running.split(), "no process of the gateway runs yet", running)
    failed = day.value("systemctl list-units --failed --plain --no-legend")
    day.check(failed == "", "and no unit has failed", failed)
    versions = {day.value(f"{name} --version") for name in ("spoolgate-upload", "spoolgate-download")}
    is_same = versions == {day.value("spoolgate --version")}
    day.check(is_same, "the client's command exists under both names", versions)
    result = day.run("spoolgate check")
    day.check(
        not result.ok and "routes.default.upstream" in result.output and SETTINGS in result.output,
        "spoolgate check names the file and its missing setting, the upstream",
    )


def name_upstream(day):
    prepare_site(day)
    day.must("systemctl enable -q --now application", "the application responds on port 3000 as before")
    day.edit_settings(routes__default__upstream=APPLICATION)
    day.machine.edit(SNIPPET, own_owner)
    day.machine.edit(SITE, include_snippet)
    result = day.must("spoolgate check", "the settings can be used")
    day.check(
        "spoolgate: warning: " in result.output and "anonymous" in result.output,
        "with a warning about anonymous uploads",
    )
    day.edit_settings(routes__default__anonymous="refuse")
    result = day.must("spoolgate check", "the settings can be used")
    day.check("warning" not in result.output, "without a warning")
    day.must("systemctl enable -q --now spoolgate", "the service starts")
    day.reload_nginx()
    look_at_units(day)
    look_at_links(day)
    look_at_hardening(day)
    look_at_journal(day)


def own_owner(text):
    """The operator's own expression for the owner, which an upgrade must keep."""
    return re.sub(r"#(fastcgi_param +SPOOLGATE_OWNER )\$remote_user;.*", r"\1$uploader;", text)


def include_snippet(text):
    return text[: text.rindex("}")] + "    include snippets/spoolgate*.conf;\n}\n"


def prepare_site(day):
    day.machine.quietly(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=uploads.example -addext subjectAltName=DNS:uploads.example "
        "-keyout /root/key.pem -out /root/certificate.pem 2>&1 && "
        "cat /root/certificate.pem /root/key.pem > /etc/nginx/uploads.pem && "
        "printf 'alice:%s\\n' $(openssl passwd -apr1 secret) > /etc/nginx/uploads.htpasswd"
    )
    version = re.search(r"nginx/(\d+)\.(\d+)\.(\d+)", day.value("nginx -v")).groups()
    is_new = tuple(map(int, version)) >= (1, 25, 1)
    words = {
        "http2_listen": "" if is_new else " http2",
        "http2_line": "\n    http2 on;" if is_new else "",
    }
    day.machine.write(SITE, SERVER % words)


def forgotten_login(day):
    """A second site without a login: the gateway's settings still refuse its clients."""
    day.machine.edit(SITE, lambda text: text + OPEN_SERVER)
    day.reload_nginx()
    day.machine.quietly("seq 100000 > /root/open.txt")
    upload = "curl -sS -T /root/open.txt -w '\\nstatus %{http_code}\\n' http://127.0.0.1:81/files/open.txt"
    day.must_show(upload, "status 403", "anonymous clients may not upload")
    day.check(day.deliveries("open.txt") == [], "the application received nothing")
    day.machine.edit(SITE, lambda text: text.replace(OPEN_SERVER, ""))
    day.reload_nginx()


def look_at_units(day):
    result = day.run("systemctl is-active spoolgate.service spoolgate.socket spoolgate-purge.timer")
    day.check(result.output.split() == ["active"] * 3, "service, socket and timer are active")
    result = day.run("stat -c '%U:%G %a %F' /run/spoolgate/spoolgate.sock /var/spool/spoolgate")
    lines = result.output.splitlines()
    day.check(lines[:1] == ["spoolgate:www-data 660 socket"], "only nginx's workers can connect to the socket")
    day.check(lines[1:] == ["spoolgate:spoolgate 700 directory"], "only the gateway can read the spool")


def look_at_links(day):
    """An upload is stored in a directory by a hard link, so that it is on the disk once."""
    first, second = (f"/var/spool/spoolgate{name}/.linked" for name in ("", "-delivered"))
    result = day.machine.quietly(
        "nsenter -t $(systemctl show -P MainPID spoolgate) -m "
        f"sh -c 'touch {first} && ln {first} {second}; state=$?; rm -f {first} {second}; exit $state'"
    )
    day.check(result.ok, "the daemon can link a file of the spool elsewhere in /var/spool", result.output)


def look_at_hardening(day):
    wanted = {
        "NoNewPrivileges": "yes",
        "PrivateUsers": "yes",
        "PrivateDevices": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "MemoryDenyWriteExecute": "yes",
        "RestrictNamespaces": "yes",
        "User": "spoolgate",
    }
    result = day.run(f"systemctl show spoolgate -p {','.join(wanted)}")
    shown = dict(line.split("=", 1) for line in result.output.splitlines() if "=" in line)
    day.check(shown == wanted, "the unit has these settings", f"wanted {wanted}")
    process = day.main_process()
    result = day.run(f"grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp|Seccomp_filters):' /proc/{process}/status")
    status = dict(re.findall(r"(\w+):\s*(\w+)", result.output))
    is_filtered = status.get("Seccomp") == "2" and int(status.get("Seccomp_filters", 0)) > 0
    day.check(is_filtered, "a system call filter is in force")
    day.check(status.get("NoNewPrivs") == "1", "it cannot gain privileges")
    day.check(
        int(status.get("CapEff", "1"), 16) == int(status.get("CapBnd", "1"), 16) == 0,
        "it has no capability, and cannot gain one",
    )
    spaces = day.run(f"readlink /proc/1/ns/user /proc/{process}/ns/user").output.split()
    day.check(len(set(spaces)) == 2, "it has its own user namespace")
    for place in ("/usr/bin", "/etc/spoolgate"):
        touch = f"nsenter -t {process} -m touch {place}/x"
        day.must_show(touch, "Read-only file system", f"it sees {place} as read-only, even as root")
    result = day.run("systemd-analyze security --no-pager spoolgate.service | tail -n 1")
    score = re.search(r"(\d+\.\d+)", result.output)
    day.check(score and float(score.group()) <= 1.5, "systemd rates its exposure at 1.5 or less")


def look_at_journal(day):
    day.machine.quietly("journalctl --sync")
    result = day.run("journalctl -q -u spoolgate -o cat --no-pager", limit=6)
    is_marked = re.search(r"(?m)^(<\d>|\d{4}-\d\d-\d\dT)", result.output)
    day.check(not is_marked, "no line has a second timestamp or a priority left in its text")
    command = "journalctl -q -o json --no-pager _SYSTEMD_UNIT=spoolgate.service"
    entries = map(json.loads, day.value(command).splitlines())
    started = [entry["PRIORITY"] for entry in entries if "daemon started" in str(entry.get("MESSAGE"))]
    day.transcript.command(f"{command} | grep 'daemon started' | jq .PRIORITY")
    day.transcript.output("\n".join(started))
    day.check(started == ["5"], "a line of level notice has the journal's priority 5")


SCENES = [
    Scene("Install the packages on a clean machine", install),
    Scene("Name the upstream, and start", name_upstream),
    Scene("A site without a login", forgotten_login),
]
