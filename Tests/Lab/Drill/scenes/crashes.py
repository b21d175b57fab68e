"""The daemon is killed, and restarted under load."""

import time

from day import CURL, URL, Scene
from lab.processes import wait


def kill(day):
    size = 30_000_000
    day.arrives("backup.tar", size=size)
    upload = day.machine.start(f"upload send backup.tar {size} --pace 2 --until-done 100")
    killed, last_kill, began = 0, 0.0, time.monotonic()
    seen = set()
    while killed < 6 and time.monotonic() - began < 60:
        # Only a running daemon sends a 104 or an offset.
        is_sending = upload.output.count("\n> PATCH") + upload.output.count("\n< 104 ") > killed
        process = day.main_process() if is_sending else "0"
        if process not in seen | {"0", ""}:
            seen.add(process)
            day.run(f"kill -9 {process}")
            killed, last_kill = killed + 1, time.monotonic()
        time.sleep(0.05)
    day.check(killed == 6, f"the daemon was killed {killed} times, each time during content")
    # By default systemd gives up after five starts within ten seconds.
    day.check(last_kill - began < 30, f"one after the other ({last_kill - began:.1f} s)")
    result = upload.finish(110)
    day.transcript.output(result.output, limit=20)
    day.check(result.ok, "the client resumed each time")
    day.check_answered(result, 201, "and has its response", "backup.tar")
    result = day.run("systemctl is-active spoolgate.service spoolgate.socket")
    day.check(result.output.split() == ["active"] * 2, "service and socket are up without help")


def restart_under_load(day):
    names = [f"parallel-{n}.bin" for n in range(8)]
    for name in names:
        day.arrives(name, size=12_000_000)
    uploads = day.machine.start(
        "for n in $(seq 0 7); do upload send parallel-$n.bin 12000000 --pace 1.5 --until-done 90 "
        "> /root/parallel-$n.log 2>&1 & done; wait"
    )
    count = 80
    for n in range(1, count + 1):
        lines = "".join(f"{i}\n" for i in range(n, 3001))
        day.arrives(f"small-{n}.txt", content=lines.encode())
    small = day.machine.start(
        f"for n in $(seq {count}); do seq $n 3000 > /root/s; "
        f"{CURL} -o /dev/null -w '%{{http_code}}\\n' -T /root/s {URL}small-$n.txt; sleep 0.05; done"
    )
    for _ in range(3):
        answered = small.output.count("201")
        wait(20, lambda: small.output.count("201") > answered + 8)
        day.must("systemctl restart spoolgate", "restarted")
    result = small.finish(90)
    statuses = result.output.split()
    day.check(
        statuses == ["201"] * count,
        f"of {count} ordinary uploads meanwhile, none was retried and none failed",
        " ".join(statuses),
    )
    uploads.finish(100)
    result = day.run("tail -q -n 1 /root/parallel-*.log")
    day.check(
        result.output.count("answered 201") == 8,
        "all eight resumable ones received a response",
        day.value("tail -n 4 /root/parallel-*.log"),
    )
    cuts = result.output.count("after 0 cuts")
    day.check(cuts < 8, "some of them across a restart")
    day.judge_deliveries(names + [f"small-{n}.txt" for n in range(1, count + 1)])


KILLED = (r"Main process exited, code=killed, status=9", r"Failed with result 'signal'")
# It may receive content before the service manager has read that it is ready.
EARLY = (r"Failed to start spoolgate\.service",)

SCENES = [
    Scene("Six crashes in a row", kill, KILLED, EARLY),
    Scene("Restarts under load", restart_under_load),
]
