"""The installation ends with a probe, and the gateway is monitored: by a person, by nginx, by Prometheus."""

import json

from day import ADMIN, CURL, Scene
from lab.processes import wait

PROMETHEUS = """global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [/usr/share/spoolgate/prometheus/spoolgate.rules.yml]
scrape_configs:
  - job_name: spoolgate
    metrics_path: /-/spoolgate/metrics
    basic_auth: {username: alice, password: secret}
    static_configs: [{targets: ["uploads.example:80"]}]
"""


def probe(day):
    heard = day.deliveries("spoolgate-probe")
    for url in ("http://uploads.example/files/", "https://uploads.example/files/"):
        result = day.run(
            f"spoolgate probe {url} --cacert /root/certificate.pem --local "
            "-H 'Authorization: Basic YWxpY2U6c2VjcmV0'",
            limit=60,
        )
        day.check(
            result.status in (0, 1) and "FAIL" not in result.output,
            "the probe finds no problem",
            f"exit {result.status}",
        )
    day.check(day.deliveries("spoolgate-probe") == heard, "the application received nothing")
    result = day.run("spoolgate list")
    day.check("probe" not in result.output, "and leaves nothing in the spool")
    result = day.must("spoolgate check --live", "the running system is ok")


def watch(day):
    day.must("spoolgate status", "one screen has the state")
    day.must("spoolgate status --check", "and one line for monitoring")
    day.must_show("systemctl status --no-pager -n 0 spoolgate | grep Status:", "free", "systemd shows it too")
    day.open_admin()
    day.reload_nginx()
    day.check_status(f"{ADMIN}/ready", 200, "nginx can query its readiness")
    day.check_status(f"{ADMIN}/ready", 403, "nobody else can", "--interface 127.0.0.2")
    day.must_show(f"{CURL} {ADMIN}/ | head -n 5", "<!DOCTYPE html>", "the status page is served")


def prometheus(day):
    if not day.apt("install -y --no-install-recommends prometheus", "Prometheus is installed").ok:
        return
    day.must("promtool check rules /usr/share/spoolgate/prometheus/spoolgate.rules.yml", "it accepts the alert rules")
    day.must(f"{CURL} {ADMIN}/metrics | promtool check metrics", "and finds the metrics valid")
    day.machine.write("/etc/prometheus/prometheus.yml", PROMETHEUS)
    day.run("systemctl restart prometheus")
    day.put("watched.bin", 400_000)

    def asked(query):
        answer = day.value(f"curl -sS 'http://127.0.0.1:9090/api/v1/query?query={query}'")
        try:
            return [float(r["value"][1]) for r in json.loads(answer)["data"]["result"]]
        except ValueError:
            return []

    wait(60, lambda: asked("spoolgate_ready") == [1.0])
    day.check(asked("spoolgate_ready") == [1.0], "a real Prometheus scrapes it, and it is ready")
    query = "sum(spoolgate_requests_total)"
    wait(20, lambda: asked(query) and asked(query)[0] > 0)
    day.check(asked(query)[0] > 0, "it counts requests")
    groups = json.loads(day.value("curl -sS http://127.0.0.1:9090/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    wrong = [rule["name"] for rule in rules if rule["health"] == "err"]
    day.check(len(rules) >= 6 and not wrong, "every alert rule can be evaluated", f"{wrong}")
    firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
    day.check(not firing, "and none fires", f"{firing}")
    day.run("systemctl disable -q --now prometheus")


SCENES = [
    Scene("The probe at the end of the installation", probe),
    Scene("How it is", watch),
    Scene("Watched by Prometheus", prometheus),
]
