"""Settings change during uploads: accepted, refused, and preventing a start."""

import re
import time

from day import CURL, SETTINGS, URL, Scene
from lab.processes import wait


def reload_good(day):
    process = day.main_process()
    day.reload("the reload succeeds", routes__default__limits__max_size="1MiB")
    day.machine.quietly("head -c 2000000 /dev/zero > /root/too-large.bin")
    day.check_status(f"{URL}too-large.bin", 413, "the new limit applies", "-T /root/too-large.bin")
    day.reload("and back", routes__default__limits__max_size="1GiB")
    result = day.put("after-reload.bin", 2_000_000)
    day.check_answered(result, 201, "the upload succeeds", "after-reload.bin")
    day.check(day.main_process() == process, "it is still the same process")


def reload_bad(day):
    process, since = day.main_process(), day.now()
    day.edit_settings(routes__default__limits__max_size="1MiB", routes__default__limits__min_sise="128KiB")
    result = day.run("systemctl reload spoolgate")
    day.check(not result.ok, "the reload fails and reports it")
    said = day.journal(since)
    day.run("systemctl status --no-pager -n 5 spoolgate | tail -n 6")
    day.check(SETTINGS in said and "min-sise" in said, "the journal names the file and the mistake", said)
    day.check(day.is_active() and day.main_process() == process, "the service keeps running")
    result = day.run("spoolgate status --check")
    warns = result.status == 1 and "min-sise" in result.output
    day.check(warns, "monitoring warns, but does not report it as down")
    result = day.put("after-bad-reload.bin", 2_000_000)
    sentence = "with its previous settings: the next upload succeeds"
    day.check_answered(result, 201, sentence, "after-bad-reload.bin")


def restart_bad(day):
    """The mistake is still in the file, and clients connect all the time."""
    knock = f"for n in $(seq 60); do {CURL} --max-time 0.5 -o /dev/null {URL}knock; sleep 0.2; done"
    knocking = day.machine.start(knock)
    since = day.now()
    result = day.run("systemctl restart spoolgate", timeout=60)
    day.check(not result.ok, "the restart fails and reports it")
    day.arrives("patient.bin", size=200_000)
    patient = day.machine.start("upload send patient.bin 200000 --until-done 100")
    began = time.monotonic()
    while time.monotonic() - began < 30:
        if not knocking.is_running:
            knocking = day.machine.start(knock)
        time.sleep(0.5)
    socket, *service = day.run("systemctl is-active spoolgate.socket spoolgate.service").output.split()
    day.check(socket == "active", "after 30 seconds of connections the socket is still up")
    day.check("active" not in service, "the service is not, as long as the file is invalid")
    said = day.journal(since)
    day.check("min-sise" in said, "the journal has the reason", said)
    day.check(not re.search("(start|trigger)-limit-hit", said), "no start limit was hit", said)
    day.edit_settings(routes__default__limits__max_size="1GiB")
    day.machine.edit(SETTINGS, lambda text: text.replace("min-sise", "min-size"))
    day.check(wait(20, day.is_active), "after the fix, the service is back by itself within 20 seconds")
    day.run("systemctl is-active spoolgate.socket spoolgate.service")
    result = patient.finish(60)
    day.transcript.output(result.output)
    day.check(result.ok, "a client that began meanwhile receives its response")
    day.check_delivered("patient.bin")
    knocking.finish(60)


SCENES = [
    Scene("Reload changed settings", reload_good),
    Scene("Reload wrong settings", reload_bad, (r"min-sise", r"Reload failed")),
    Scene(
        "Restart with wrong settings, under traffic",
        restart_bad,
        (r"min-sise", r"Failed to start"),
        (r"Failed with result", r"Main process exited"),
    ),
]
