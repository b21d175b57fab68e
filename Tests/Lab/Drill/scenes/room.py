"""A file system that is too small for the uploads."""

import re

from day import Scene

DROP_IN = "/etc/systemd/system/spoolgate.service.d/small.conf"


def fill(day):
    day.run(
        "mkdir -p /srv/small && mount -t tmpfs "
        "-o size=64m,mode=0700,uid=$(id -u spoolgate),gid=$(id -g spoolgate) small /srv/small"
    )
    day.machine.edit(DROP_IN, lambda _: "[Service]\nReadWritePaths=/srv/small\n")
    day.edit_settings(spool__directory="/srv/small/spool", spool__reserve="8MiB")
    day.must("systemctl daemon-reload && systemctl restart spoolgate", "the gateway runs with a spool on 64 MiB")
    result = day.send("archive.iso", 30_000_000, "--cut 12000000")
    day.check("cut by the client" in result.output, "an upload is interrupted")
    day.must("head -c 35M /dev/zero > /srv/small/somebody-elses", "another program takes the space")
    day.run("df -h /srv/small")
    since = day.now()
    day.check_answered(day.resume("archive.iso"), 507, "the rest is refused with 507")
    said = day.journal(since)
    day.transcript.command(f"journalctl -u spoolgate -o cat --since=@{since}")
    day.transcript.output(said)
    sizes = re.findall(r"\d+(?:\.\d+)? ?(?:[KMGT]i?)?B", said)
    day.check("/srv/small/spool" in said, "the log names the directory")
    day.check(
        len(set(sizes)) >= 3 and "free" in said,
        "with the needed, free and reserved space",
        f"sizes: {sizes}",
    )
    day.must_show("spoolgate list", "archive.iso", "received content is kept")
    day.run("rm /srv/small/somebody-elses")
    result = day.resume("archive.iso")
    day.check_answered(result, 201, "with space again, it continues at its offset", "archive.iso")
    day.edit_settings(spool__directory="/var/spool/spoolgate", spool__reserve="64MiB")
    day.run(f"rm -r {DROP_IN.rsplit('/', 1)[0]}")
    day.must(
        "systemctl daemon-reload && systemctl restart spoolgate && umount /srv/small",
        "and back to the large file system",
    )


SCENES = [Scene("The file system is full", fill, (r'msg="spool error".* free, .* must stay free',))]
