"""The application goes down and recovers."""

from day import Scene
from lab.processes import wait


def down(day):
    day.run("systemctl stop application")
    result = day.send("invoice.pdf", 1_000_000)
    day.check(
        "answered 502" in result.output and "upload-complete: ?0" in result.output,
        "502, and the upload is kept",
    )
    result = day.run("spoolgate list")
    day.check("invoice.pdf" in result.output and "deferred" in result.output, "it waits")
    day.run("systemctl start application")
    await_application(day)
    result = day.resume("invoice.pdf")
    day.check(
        "answered 201" in result.output, "its client repeats the request, and receives the application's response"
    )
    day.check_delivered("invoice.pdf")


def accepted(day):
    day.edit_settings(
        routes__default__reply="accepted", routes__default__queue__minimum_backoff="2s"
    )
    day.must("systemctl reload spoolgate", "clients no longer wait for the application")
    day.run("systemctl stop application")
    result = day.send("scan.tiff", 1_000_000)
    day.check("answered 202" in result.output, "202, at once")
    result = day.run("spoolgate list")
    day.check("scan.tiff" in result.output and "deferred" in result.output, "it waits in the queue")
    day.run("systemctl start application")
    arrived = wait(60, lambda: day.deliveries("scan.tiff") != [])
    day.check(arrived, "the application is back, and receives it automatically")
    day.check_delivered("scan.tiff")
    day.edit_settings(routes__default__reply="upstream")
    day.must("systemctl reload spoolgate", "and back")


def await_application(day):
    up = wait(
        20, lambda: day.value("curl -s http://127.0.0.1:3000/") == "the application is up"
    )
    day.check(up, "the application is back")


DEFERRED = (r'msg="delivery deferred".*connection failed',)

SCENES = [
    Scene("The application is down, and its clients wait", down, DEFERRED),
    Scene("The application is down, and its clients do not wait", accepted, DEFERRED),
]
