"""Separate spools: a node dies with uploads open, and is restarted."""

import time

from Cluster.client import ANSWERED
from Cluster.oracle import check_once, judge
from Cluster.wire import Closed, ask
from lab.processes import wait

OPEN = 20


def play(world, transcript, draw):
    one = world.gateways["n1"]
    before = [begin(world, draw, 100 + number) for number in range(2 * OPEN)]
    on_one = [client for client in before if "/upload-resource/n1/" in client.current.location]
    while len(on_one) < OPEN:
        client = begin(world, draw, 100 + len(before))
        before.append(client)
        if "/upload-resource/n1/" in client.current.location:
            on_one.append(client)
    told = {client: client.current.told for client in on_one}

    one.kill()
    failed, meanwhile = 0, []
    for number in range(2 * OPEN):
        try:
            meanwhile.append(begin(world, draw, 500 + number))
        except Closed:
            failed += 1
    elsewhere = [c for c in meanwhile if "/upload-resource/n2/" in c.current.location]
    transcript.check(
        failed == 0 and len(elsewhere) == len(meanwhile) == 2 * OPEN,
        f"n1 is dead with {len(on_one)} uploads open: {len(meanwhile)} creations, all accepted by n2",
        f"{failed} failed, {len(elsewhere)} on n2",
    )
    transcript.check(
        all(is_broken_off(world, client) for client in on_one),
        "requests for its uploads are aborted: HEAD and PATCH, without a response",
    )
    began = time.monotonic()
    one.start()
    back = wait(10, lambda: all(tells(client, told[client]) for client in on_one))
    transcript.check(
        back,
        f"n1 is back: its {len(on_one)} uploads have the same offsets as before"
        f" ({time.monotonic() - began:.1f} s)",
    )
    clients = before + meanwhile
    world.run(clients, 120)
    check_once(transcript, world.application, clients)
    misrouted(world, transcript, draw)
    if world.front.has_module:
        taken_over(world, transcript, draw)


def begin(world, draw, number):
    """An upload with some of its content acknowledged."""
    client = world.begin(draw, number)
    client.append(0, draw.randrange(len(client.task.content)))
    return client


def is_broken_off(world, client):
    target, offset = client.current.location, client.current.told
    content = {"Upload-Offset": offset, "Upload-Complete": "?0", "Content-Length": 1}
    for method, fields, part in (("HEAD", {}, b""), ("PATCH", content, b"x")):
        try:
            ask(world.front.port, method, target, fields, part)
            return False
        except Closed:
            pass
    return True


def tells(client, offset):
    try:
        return client.ask_node(None).offset == offset
    except Closed:
        return False


def misrouted(world, transcript, draw):
    """Sends requests for one node's upload to the other node."""
    client = begin(world, draw, 900)
    creation = client.current
    node = "n1" if "/n1/" in creation.location else "n2"
    heard, answers = len(world.application.requests), []
    for method in ("HEAD", "PATCH", "DELETE"):
        fields = {"X-Node": world.other(node)}
        part = b""
        if method == "PATCH":
            part = client.task.content[creation.told :]
            fields |= {"Upload-Offset": creation.told, "Upload-Complete": "?1"}
        try:
            answers.append(str(ask(world.front.port, method, creation.location, fields, part)))
        except Closed:
            pass
    transcript.check(
        not answers and len(world.application.requests) == heard,
        "requests to the wrong node are aborted (HEAD, PATCH, DELETE), the application receives nothing",
        "\n".join(answers),
    )
    client.run(time.monotonic() + 30)
    transcript.check(
        client.end == ANSWERED and not judge(world.application, [client]),
        "and that upload is intact: it completes on its own node",
        client.faults,
    )


def taken_over(world, transcript, draw):
    """Requests whose clients continue on another connection, so that the nodes abort them: no other client is
    affected.
    """
    broken = 0
    for number in range(OPEN):
        client, exchange = world.begin_whole(draw, 910 + number)
        client.head()
        try:
            exchange.final()
        except Closed:
            broken += 1
    failed = 0
    for number in range(OPEN):
        try:
            begin(world, draw, 950 + number)
        except Closed:
            failed += 1
    transcript.check(
        broken == OPEN and failed == 0,
        f"{OPEN} requests were aborted for a newer one of the same client; other clients are not affected",
        f"{broken} were aborted, {failed} of {OPEN} creations by others failed",
    )
