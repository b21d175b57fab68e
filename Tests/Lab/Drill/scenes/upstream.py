"""The application goes down and recovers."""

from day import Scene
from lab.processes import wait


def down(day):
    day.run("systemctl stop application")
    result = day.send("invoice.pdf", 1_000_000)
    day.check_answered(result, 502, "502")
    day.check("upload-complete: ?0" in result.output, "and the upload is kept")
    result = day.run("spoolgate list")
    day.check("invoice.pdf" in result.output and "deferred" in result.output, "it waits")
    day.start_application()
    result = day.resume("invoice.pdf")
    sentence = "its client repeats the request, and receives the application's response"
    day.check_answered(result, 201, sentence, "invoice.pdf")


def accepted(day):
    values = {"routes__default__reply": "accepted", "routes__default__queue__minimum_backoff": "2s"}
    day.reload("clients no longer wait for the application", **values)
    day.run("systemctl stop application")
    day.check_answered(day.send("scan.tiff", 1_000_000), 202, "202, at once")
    result = day.run("spoolgate list")
    day.check("scan.tiff" in result.output and "deferred" in result.output, "it waits in the queue")
    day.run("systemctl start application")
    arrived = wait(60, lambda: day.deliveries("scan.tiff") != [])
    day.check(arrived, "the application is back, and receives it automatically")
    day.check_delivered("scan.tiff")
    day.reload("and back", routes__default__reply="upstream")


DEFERRED = (r'msg="delivery deferred".*connection failed',)

SCENES = [
    Scene("The application is down, and its clients wait", down, DEFERRED),
    Scene("The application is down, and its clients do not wait", accepted, DEFERRED),
]
