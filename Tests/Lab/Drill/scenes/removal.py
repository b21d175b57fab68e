"""The packages are removed, and nginx keeps running."""

from .upgrade import make_old
from day import APPLICATION, CURL, MODULE, SETTINGS, SITE, SNIPPET, URL, Scene


def without_module(day):
    day.apt(f"remove -y {MODULE}", "the module's package is removed")
    day.reload_nginx()
    result = day.send("without-104.bin", 2_000_000)
    day.check("< 104" not in result.output, "uploads continue, without 104")
    day.check_answered(result, 201, "and succeed", "without-104.bin")
    day.apt(f"install -y ./{day.package(MODULE)}", "the package is installed again")
    day.reload_nginx()
    result = day.send("with-104.bin", 2_000_000)
    day.check("< 104" in result.output, "and the client receives 104 again")
    day.check_answered(result, 201, "and the application's response", "with-104.bin")


def remove(day):
    day.send("left-behind.bin", 2_000_000, "--cut 1000000")
    # Its client gets no response any more.
    del day.expected["left-behind.bin"]
    day.apt("remove -y spoolgate", "the gateway's package is removed")
    processes = day.run("grep -slx spoolgate /proc/[0-9]*/comm")
    day.check(processes.output.strip() == "", "none of its processes runs")
    day.must("nginx -t && systemctl restart nginx", "nginx accepts its configuration, and restarts")
    result = day.run(f"{CURL} -o /dev/null -w 'status %{{http_code}}\\n' {URL}")
    day.check("status" in result.output and "status 000" not in result.output, "and answers")


def purge(day):
    result = day.apt("purge -y spoolgate", "the package is purged")
    reports = "/var/spool/spoolgate" in result.output
    day.check(reports, "it reports that the spool stays, because it is not empty")
    result = day.run("find /var/spool/spoolgate -type f | head -n 3")
    day.check(result.output.strip() != "", "and it exists")
    day.must("getent passwd spoolgate", "its user stays as well, so that its id is not reused")
    result = day.run("ls -d /etc/spoolgate /etc/nginx/snippets/spoolgate.conf")
    day.check(result.output.count("No such file") == 2, "the settings are gone")
    result = day.run(
        "systemctl list-units --all --plain --no-legend 'spoolgate*'; "
        "systemctl list-unit-files --no-legend 'spoolgate*'"
    )
    day.check(result.output.strip() == "", "no unit is left")
    day.run(f"grep spoolgate {SITE}")
    day.must("nginx -t && systemctl restart nginx", "nginx starts with the include line still in its site")


def purge_empty(day):
    """The spool is empty: the package removes its user and directories."""
    day.must(
        "rm -r /var/spool/spoolgate && userdel spoolgate",
        "the operator removes the rest, as the package advised",
    )
    make_old(day)
    day.apt("install -y ./spoolgate_0.0.1_amd64.deb", "it is installed")
    # The snippet is the shipped one again, which sets no owner.
    day.edit_settings(routes__default__upstream=APPLICATION, routes__default__anonymous="allow")
    before = {path: day.machine.read(path) for path in (SETTINGS, SNIPPET)}
    day.apt(f"install -y ./{day.package('spoolgate')} </dev/null", "it is upgraded without a prompt")
    for path, text in before.items():
        day.check(day.machine.read(path) == text, f"{path} is as the operator left it")
    day.must("systemctl enable -q --now spoolgate", "the service starts")
    day.reload_nginx()
    day.check_answered(day.put("last.bin", 50_000), 201, "an upload succeeds", "last.bin")
    day.must_show("spoolgate list", "No uploads", "and leaves nothing in the spool")
    day.run("find /var/spool/spoolgate -type f")
    result = day.apt("purge -y spoolgate", "the package is purged")
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
