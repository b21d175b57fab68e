"""A new version is installed, and the operator's changes stay."""

from day import SETTINGS, SNIPPET, Scene

# Above every real version.
VERSION = "99.0"

# A second version: the same program, with other text in its unit and in the templates of the operator's files.
REPACK = """set -e
rm -rf /root/new && dpkg-deb -R /root/{package} /root/new
sed -i 's/^Version: .*/Version: {version}/' /root/new/DEBIAN/control
for file in $(find /root/new/usr/share/spoolgate -name '*.yaml' -o -name '*.conf'); do
    sed -i '1s/^/# A comment that version {version} has.\\n/' $file
done
find /root/new -name spoolgate.service -exec sed -i 's/^Description=.*/& {version}/' {{}} +
dpkg-deb --root-owner-group -Zgzip -b /root/new /root/{name}_{version}_amd64.deb
rm -rf /root/new
"""


def repack(day, version, name="spoolgate"):
    """Builds a later version of a package."""
    made = day.machine.quietly(REPACK.format(package=day.package(name), version=version, name=name))
    day.check(made.ok, f"version {version} of {name}, with other text in its files, is built", made.output)


# Older packages: settings and snippet belonged to them, as conffiles.
AS_CONFFILES = """set -e
rm -rf /root/old && dpkg-deb -R /root/{package} /root/old
sed -i 's/^Version: .*/Version: 0.0.1/' /root/old/DEBIAN/control
install -D -m 644 /root/old/usr/share/spoolgate/spoolgate.yaml /root/old{settings}
install -D -m 644 /root/old/usr/share/spoolgate/nginx/snippets/spoolgate.conf /root/old{snippet}
printf '%s\\n' {settings} {snippet} >> /root/old/DEBIAN/conffiles
dpkg-deb --root-owner-group -Zgzip -b /root/old /root/spoolgate_0.0.1_amd64.deb
rm -rf /root/old
"""


def make_old(day):
    """Builds version 0.0.1 of the gateway with the settings as conffiles."""
    words = {"package": day.package("spoolgate"), "settings": SETTINGS, "snippet": SNIPPET}
    made = day.machine.quietly(AS_CONFFILES.format(**words))
    day.check(made.ok, "an old package with the settings as a conffile is built", made.output)


def upgrade(day):
    repack(day, VERSION)
    day.send("during-upgrade.bin", 10_000_000, "--cut 4000000")
    process = day.main_process()
    listening = day.value("systemctl show -P ActiveEnterTimestampMonotonic spoolgate.socket")
    before = {path: day.machine.read(path) for path in (SETTINGS, SNIPPET)}
    day.apt(f"install -y ./spoolgate_{VERSION}_amd64.deb </dev/null", "apt upgrades without a prompt")
    day.must_show("dpkg-query -W spoolgate", VERSION, "the new version is installed")
    day.run(f"grep SPOOLGATE_OWNER {SNIPPET}")
    kept = day.value("dpkg-query -W -f '${Conffiles}' spoolgate | awk '{ print $1 }'")
    day.check(SETTINGS not in kept and SNIPPET not in kept, "the operator's files belong to no package", kept)
    for path, text in before.items():
        day.check(day.machine.read(path) == text, f"{path} is as the operator left it")
    day.check(day.is_active() and day.main_process() not in ("0", process), "another process serves")
    program = day.run(f"readlink /proc/{day.main_process()}/exe").output.strip()
    day.check(program == "/usr/bin/spoolgate", "and it runs the new program")
    result = day.run("systemctl show -P Description -P NeedDaemonReload spoolgate.service")
    day.check(VERSION in result.output and "yes" not in result.output.split(), "by the new version's unit")
    result = day.run("systemctl show -P ActiveEnterTimestampMonotonic spoolgate.socket").output.strip()
    day.check(day.is_active("spoolgate.socket") and result == listening, "the socket existed all the time")
    day.must("nginx -t", "nginx accepts its configuration")
    result = day.resume("during-upgrade.bin")
    sentence = "an upload that was interrupted before continues for its owner"
    day.check_answered(result, 201, sentence, "during-upgrade.bin")


SCENES = [Scene("Upgrade", upgrade)]
