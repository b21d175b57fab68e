"""The timer's service removes abandoned uploads."""

import json
import re

from day import Scene


def purge(day):
    result = day.run("systemctl list-timers --no-pager spoolgate-purge.timer")
    day.check(
        "spoolgate-purge.service" in result.output
        and not re.search(r"(?m)^(n/a|-) ", result.output),
        "the timer has its next time",
    )
    for name in ("abandoned.bin", "young.bin"):
        day.send(name, 3_000_000, "--cut 1000000")
    # The first upload is abandoned.
    del day.expected["abandoned.bin"]
    url = json.loads(day.machine.read("/root/uploads/abandoned.bin.json"))["url"]
    identity = url.rsplit("/", 1)[1]
    day.run(f"find /var/spool/spoolgate -name '*{identity}*' -exec touch -d '10 days ago' {{}} +")
    since = day.now()
    day.must("systemctl start spoolgate-purge.service", "the purge succeeds")
    day.transcript.output(day.journal(since, unit="spoolgate-purge"))
    result = day.run("spoolgate list")
    day.check(identity not in result.output, "an upload without activity for ten days is removed")
    day.check("young.bin" in result.output, "a recently interrupted one is kept")
    day.must_show("upload resume abandoned.bin", "404", "the client of the old one receives 404")
    result = day.run(
        "unshare --mount sh -c 'mount --bind /etc/machine-id /proc/sys/kernel/random/boot_id "
        "&& spoolgate purge'"
    )
    day.check(
        not result.ok and "sees the boot identity" in result.output,
        "a command that sees another boot of the machine than the daemon is refused",
    )
    day.resume("young.bin")
    day.check_delivered("young.bin")


SCENES = [Scene("The purge timer", purge)]
