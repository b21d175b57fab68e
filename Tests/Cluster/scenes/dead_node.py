"""One spool: a node dies while it sends, and nobody asks; the other one puts it right."""

import time

from client import Task
from gateway import QUEUE_RUN
from oracle import Death, judge
from processes import must, wait
from wire import STEP

EACH = 5


def play(world, transcript, draw):
    application = world.application
    application.hold_back()
    one, two = world.gateways["n1"], world.gateways["n2"]
    began = [sending(world, draw, number) for number in range(2 * EACH)]
    clients = [client for client, _ in began]
    must(20, "the application hears of all", lambda: all(heard(world, c) for c in clients))
    starts = two.starts
    one.kill()
    death = Death("n1", time.monotonic())
    application.release()
    resolved = wait(30, lambda: is_resolved(two, clients))
    seconds = time.monotonic() - death.time
    found = list(zip((client.task.method for client in clients), states(two, clients)))
    attempts = {(client.task.method, heard(world, client)) for client in clients}
    transcript.check(
        resolved and seconds <= 2 * QUEUE_RUN + 1,
        f"n1 died with {len(clients)} being sent: n2 has put all right after {seconds:.1f} s,"
        f" queue runs {QUEUE_RUN} s apart",
        found,
    )
    transcript.check(
        set(found) == {("PUT", "delivered"), ("POST", "indeterminate")}
        and attempts == {("PUT", 2), ("POST", 1)},
        f"{EACH} PUT sent once more and delivered, {EACH} POST held and sent once",
        f"{found} {attempts}",
    )
    transcript.check(two.starts == starts and two.status() is None, "and n2 was not started again")
    for client, exchange in began:
        exchange.close()
    for client in clients:
        client.run(time.monotonic() + 30)
    faults = judge(application, clients, [death])
    transcript.check(
        not faults, "their clients, back on n2, hear what became of them", "\n".join(faults)
    )
    one.start()
    same = wait(10, lambda: one.uploads().keys() == two.uploads().keys())
    transcript.check(same, "n1 is back, and lists what n2 lists")


def sending(world, draw, number):
    """An upload that n1 sends to the application, which does not answer."""
    task = Task(f"{draw.random()}", largest=1 << 18)
    task.number, task.orders = f"dead{number}", "?wait=1"
    task.method = "PUT" if number % 2 else "POST"
    task.breaks, task.pieces, task.is_careful = [], 0, True
    client = world.client(task, lambda request: "n2" if client.is_back else "n1")
    client.is_back = False
    client.create()
    size = len(task.content)
    fields = {"Upload-Offset": 0, "Upload-Complete": "?1", "Content-Length": size}
    fields["Content-Type"] = "application/partial-upload"
    exchange = client.open("PATCH", client.current.location, fields)
    client.current.sent = size
    for position in range(0, size, STEP):
        exchange.send(task.content[position : position + STEP])
    client.is_back = True
    return client, exchange


def heard(world, client):
    found = world.application.requests_for(client.current.target)
    return sum(one.is_whole for one in found)


def states(gateway, clients):
    listed = gateway.uploads()
    return [listed.get(one.current.identity, {"state": "gone"})["state"] for one in clients]


def is_resolved(gateway, clients):
    return not {"delivering", "receiving", "deferred", "partial"} & set(states(gateway, clients))
