"""The packages are removed, and nginx keeps running."""

from .upgrade import make_old
from day import CURL, SETTINGS, SITE, SNIPPET, URL, Scene

MODULE = "libnginx-mod-http-interim"


def without_module(day):
    day.must(f"apt remove -y {MODULE}", "the module's package is removed", network=True)
    day.reload_nginx()
    result = day.send("without-104.bin", 2_000_000)
    day.check(
        "answered 201" in result.output and "< 104" not in result.output,
        "uploads continue, without 104",
    )
    day.check_delivered("without-104.bin")
    package = next(name for name in day.packages if name.startswith(MODULE))
    result = day.run(f"cd /root && apt install -y ./{package}", network=True)
    day.check(result.ok, "the package is installed again", result.output[-2000:])
    day.reload_nginx()
    result = day.send("with-104.bin", 2_000_000)
    day.check("answered 201" in result.output and "< 104" in result.output, "and the client receives 104 again")
    day.check_delivered("with-104.bin")


def remove(day):
    day.send("left-behind.bin", 2_000_000, "--cut 1000000")
    # Its client gets no response any more.
    del day.expected["left-behind.bin"]
    day.must("apt remove -y spoolgate", "the gateway's package is removed", network=True)
    processes = day.run("grep -slx spoolgate /proc/[0-9]*/comm")
    day.check(processes.output.strip() == "", "none of its processes runs")
    day.must("nginx -t && systemctl restart nginx", "nginx accepts its configuration, and restarts")
    result = day.run(f"{CURL} -o /dev/null -w 'status %{{http_code}}\\n' {URL}")
    day.check("status" in result.output and "status 000" not in result.output, "and answers")


def purge(day):
    result = day.run("apt purge -y spoolgate", network=True)
    day.check(result.ok, "the package is purged", result.output[-2000:])
    day.check(
        "/var/spool/spoolgate" in result.output, "it reports that the spool stays, because it is not empty"
    )
    result = day.run("find /var/spool/spoolgate -type f | head -n 3")
    day.check(result.output.strip() != "", "and it exists")
    result = day.run("getent passwd spoolgate")
    day.check(result.ok, "its user stays as well, so that its id is not reused")
    result = day.run("ls -d /etc/spoolgate /etc/nginx/snippets/spoolgate.conf")
    day.check(
        "No such file" in result.output and result.output.count("No such file") == 2,
        "the settings are gone",
    )
    result = day.run(
        "systemctl list-units --all --plain --no-legend 'spoolgate*'; "
        "systemctl list-unit-files --no-legend 'spoolgate*'"
    )
    day.check(result.output.strip() == "", "no unit is left")
    day.run(f"grep spoolgate {SITE}")
    day.must(
        "nginx -t && systemctl restart nginx",
        "nginx starts with the include line still in its site",
    )


def purge_empty(day):
    """The spool is empty: the package removes its user and directories."""
    day.must(
        "rm -r /var/spool/spoolgate && userdel spoolgate",
        "the operator removes the rest, as the package advised",
    )
    made = make_old(day)
    day.check(made.ok, "an old package with the settings as a conffile is built", made.output)
    result = day.run("cd /root && apt install -y ./spoolgate_0.0.1_amd64.deb", network=True)
    day.check(result.ok, "it is installed", result.output[-2000:])
    day.edit_settings(routes__default__upstream="http://127.0.0.1:3000")
    # The snippet is the shipped one again, which sets no owner.
    day.edit_settings(routes__default__anonymous="allow")
    before = {path: day.machine.read(path) for path in (SETTINGS, SNIPPET)}
    package = next(name for name in day.packages if name.startswith("spoolgate_"))
    result = day.run(f"cd /root && apt install -y ./{package} </dev/null", network=True)
    day.check(result.ok, "it is upgraded without a prompt", result.output[-2000:])
    for path, text in before.items():
        day.check(day.machine.read(path) == text, f"{path} is as the operator left it")
    day.must("systemctl enable -q --now spoolgate", "the service starts")
    day.reload_nginx()
    result = day.put("last.bin", 50_000)
    day.check("status 201" in result.output, "an upload succeeds", result.output)
    day.check_delivered("last.bin")
    result = day.run("spoolgate list")
    day.check("No uploads" in result.output, "and leaves nothing in the spool")
    day.run("find /var/spool/spoolgate -type f")
    result = day.run("apt purge -y spoolgate", network=True)
    day.check(result.ok, "the package is purged", result.output[-2000:])
    day.check("kept the uploads" not in result.output, "it reports no kept uploads")
    result = day.run(f"ls {SETTINGS} {SNIPPET}")
    day.check(result.output.count("No such file") == 2, "the settings are gone")
    result = day.run("ls -d /var/spool/spoolgate /var/spool/spoolgate-delivered")
    day.check(result.output.count("No such file") == 2, "the spool is gone")
    result = day.run("getent passwd spoolgate; getent group spoolgate")
    day.check(result.output.strip() == "", "and so are the user and its group")
    day.must("nginx -t && systemctl restart nginx", "nginx still runs")


SCENES = [
    Scene("Without the nginx module, and with it again", without_module),
    Scene("Remove the gateway", remove),
    Scene("Purge it", purge),
    Scene("Purge it with an empty spool", purge_empty),
]
