"""A new version comes, and the operator's words stay."""

from day import SETTINGS, SNIPPET, Scene

# Above every version there will be.
VERSION = "99.0"

# A second version: the same program, with other words in its unit and in what operators edit.
REPACK = f"""set -e
rm -rf /root/new && dpkg-deb -R /root/{{package}} /root/new
sed -i 's/^Version: .*/Version: {{version}}/' /root/new/DEBIAN/control
for file in {SETTINGS} {SNIPPET}; do
    sed -i '1s/^/# A comment that version {{version}} has.\\n/' /root/new$file
done
sed -i 's/^Description=.*/& {{version}}/' $(find /root/new -name spoolgate.service)
dpkg-deb --root-owner-group -Zgzip -b /root/new /root/spoolgate_{{version}}_amd64.deb
rm -rf /root/new
"""


def repack(day, version):
    package = next(name for name in day.packages if name.startswith("spoolgate_"))
    return day.machine.quietly(REPACK.format(package=package, version=version))


def upgrade(day):
    made = repack(day, VERSION)
    day.check(
        made.ok,
        f"there is a version {VERSION}, with other words in its configuration files",
        made.output,
    )
    day.send("during-upgrade.bin", 10_000_000, "--cut 4000000")
    process = day.main_process()
    listening = day.value("systemctl show -P ActiveEnterTimestampMonotonic spoolgate.socket")
    before = {path: day.machine.read(path) for path in (SETTINGS, SNIPPET)}
    result = day.run(
        "cd /root && apt install -y -o Dpkg::Options::=--force-confold "
        f"./spoolgate_{VERSION}_amd64.deb",
        timeout=200,
        network=True,
    )
    day.check(result.ok, "apt upgrades without a question", result.output[-2000:])
    result = day.run("dpkg-query -W spoolgate")
    day.check(VERSION in result.output, "the new version is installed")
    day.run(f"grep SPOOLGATE_OWNER {SNIPPET}")
    for path, text in before.items():
        day.check(day.machine.read(path) == text, f"{path} is as the operator left it")
    day.check(
        day.is_active() and day.main_process() not in ("0", process), "another process serves"
    )
    program = day.run(f"readlink /proc/{day.main_process()}/exe").output.strip()
    day.check(program == "/usr/bin/spoolgate", "and it runs the new program")
    result = day.run("systemctl show -P Description -P NeedDaemonReload spoolgate.service")
    day.check(
        VERSION in result.output and "yes" not in result.output.split(), "by the new version's unit"
    )
    result = day.run(
        "systemctl show -P ActiveEnterTimestampMonotonic spoolgate.socket"
    ).output.strip()
    day.check(
        day.is_active("spoolgate.socket") and result == listening,
        "the socket was there all the time",
    )
    day.must("nginx -t", "nginx takes its configuration")
    result = day.resume("during-upgrade.bin")
    day.check(
        "answered 201" in result.output, "an upload that was cut before goes on, as its owner's"
    )
    day.check_delivered("during-upgrade.bin")


SCENES = [Scene("Upgrade", upgrade)]
