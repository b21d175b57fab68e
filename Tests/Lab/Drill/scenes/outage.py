"""The upstream is reachable but wrong: it leads back to the gateway, or responds for an application that is down."""

import base64
import json

from day import APPLICATION, Scene
from lab.processes import wait

# Another nginx in front of the application, as with PHP-FPM: while the application is down, nginx responds with
# 502.
FRONT = "/etc/nginx/sites-enabled/application"
FRONT_PORT = 3080
FRONT_SITE = f"""server {{
    listen 127.0.0.1:{FRONT_PORT};
    client_max_body_size 0;
    location / {{ proxy_pass {APPLICATION}; }}
}}
"""
USERS = ("alice", "bob")
SIZE = 400_000
WAITING = 60


def upstream(day, value):
    day.reload("the settings are accepted", routes__default__upstream=value)


def states(day):
    """The number of uploads in the spool by state."""
    listed = day.value("spoolgate list --json").splitlines()
    found = {}
    for line in listed:
        state = json.loads(line).get("state")
        found[state] = found.get(state, 0) + 1
    return found


def post(day, name, user):
    """Sends an upload with the client's command, as a POST, which must not be sent twice automatically."""
    day.make(name, SIZE)
    login = base64.b64encode(f"{user}:secret".encode()).decode()
    return day.run(
        f"spoolgate-upload -X POST -H 'Authorization: Basic {login}' --creation careful --progress none "
        f"--retry-for 1s /root/{name} http://uploads.example/files/{name}",
        limit=4,
    )


def loop(day):
    upstream(day, "http://uploads.example")
    result = day.run("spoolgate check --live")
    day.check(
        not result.ok and "passes requests back to the gateway" in result.output,
        "check --live names the location that leads back",
    )
    since = day.now()
    result = day.send("loop.bin", SIZE)
    day.check_answered(result, 508, "the client is told about the loop")
    said = day.journal(since)
    day.transcript.output(said)
    day.check("request loop detected" in said, "the log reports it")
    day.check(said.count("request loop detected") < 5, "and not once for each pass", said)
    day.check(day.deliveries("loop.bin") == [], "the application received nothing")
    upstream(day, APPLICATION)
    result = day.send("loop.bin", SIZE)
    day.check_answered(result, 201, "with the right upstream an upload succeeds", "loop.bin")


def dead_application(day):
    day.machine.quietly("printf 'bob:%s\\n' $(openssl passwd -apr1 secret) >> /etc/nginx/uploads.htpasswd")
    day.machine.write(FRONT, FRONT_SITE)
    day.reload_nginx()
    upstream(day, f"http://127.0.0.1:{FRONT_PORT}")
    day.run("systemctl stop application")
    names = [(f"order-{number}.pdf", USERS[number % 2]) for number in range(6)]
    for name, user in names:
        post(day, name, user)
    day.run("spoolgate list")
    found = states(day)
    day.check(found.get("indeterminate") == len(names), "each is held, and none is lost", found)
    result = day.run("spoolgate status")
    day.check("is failing" in result.output and "default" in result.output, "status names the route that is failing")
    result = day.run("spoolgate status --check")
    day.check(result.status == 1, "and so does the line for the monitoring system", f"exit {result.status}")
    day.start_application(f"http://127.0.0.1:{FRONT_PORT}")
    result = day.run("spoolgate requeue --all")
    is_refused = not result.ok and "--indeterminate" in result.output
    day.check(is_refused, "no upload that may have arrived is sent again")
    day.must("spoolgate requeue --all --indeterminate", "the operator knows that nothing arrived, and confirms it")
    arrived = wait(60, lambda: all(day.deliveries(name) for name, _ in names))
    day.check(arrived, "and each is delivered")
    day.judge_deliveries([name for name, _ in names])
    day.check(wait(20, lambda: day.run("spoolgate status --check").ok), "status is ok again")
    upstream(day, APPLICATION)
    day.run(f"rm {FRONT}")
    day.reload_nginx()


def recovery(day):
    values = {"routes__default__reply": "accepted", "routes__default__queue__minimum_backoff": "5m"}
    day.reload("clients do not wait for the application", **values)
    day.run("systemctl stop application")
    names = [f"backlog-{number}.bin" for number in range(WAITING)]
    for name in names:
        day.arrives(name, size=SIZE)
    result = day.machine.start(
        f"for n in $(seq 0 {WAITING - 1}); do upload send backlog-$n.bin {SIZE}; done"
    ).finish(120)
    day.check(result.output.count("answered 202") == WAITING, f"{WAITING} uploads are accepted while it is down")
    day.must("spoolgate list --shape", "they wait for minutes")
    found = states(day)
    day.check(found.get("deferred", 0) + found.get("queued", 0) == WAITING, "all of them", found)
    day.must("systemctl restart spoolgate", "the gateway itself is restarted meanwhile")
    day.start_application()
    day.must("spoolgate requeue --all", "the operator requeues them at once")
    arrived = wait(60, lambda: all(day.deliveries(name) for name in names))
    day.check(arrived, "all are delivered within a minute")
    day.judge_deliveries(names)
    values = {"routes__default__reply": "upstream", "routes__default__queue__minimum_backoff": "2s"}
    day.reload("and back", **values)


NOT_REACHED = (r'msg="delivery deferred".*connection failed',)

SCENES = [
    Scene("An upstream that leads back to the gateway", loop, (r"request loop detected", r"status=508")),
    Scene(
        "A dead application behind its own nginx",
        dead_application,
        (r"502",),
        (r"outcome unknown|delivery failed|route is failing|uploads .*fail",),
    ),
    Scene("Recovery after an outage", recovery, NOT_REACHED),
]
