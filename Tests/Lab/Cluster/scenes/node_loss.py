"""One spool: a node's machine stops responding and is fenced; the other continues its uploads; then it wakes.

While the mount is stopped, no process that has a file of it open starts another one; this program has none open.
"""

import threading
import time

from Cluster.client import ANSWERED, UNKNOWN
from Cluster.gateway import FENCED
from Cluster.oracle import Death, deliveries, ends, judge
from Cluster.scenes.boots import waiting_upload
from Cluster.scenes.dead_node import heard, is_resolved, sending
from Cluster.wire import Closed, begin
from lab.processes import must, wait

RUNNING, WAITING = 8, 8

# Statuses that a fenced node must not send for an upload that another node has continued.
LIES = {200, 201, 202, 204, 404}


def play(world, transcript, draw):
    application = world.application
    application.hold_back()
    one, two = world.gateways["n1"], world.gateways["n2"]
    mount = world.mounts["n1"]
    running = [running_upload(world, draw, number) for number in range(RUNNING)]
    waiting = [waiting_upload(world, draw, f"-lost{number}")[0] for number in range(WAITING)]
    sent = [sending(world, draw, f"lost-{method}", method) for method in ("POST", "PUT")]
    must(20, "the application receives both", lambda: all(heard(world, c) for c, _ in sent))
    since = len(one.log())

    mount.freeze()
    death = Death("n1", time.monotonic())
    asked = [begin(world.front.port, "HEAD", client.current.location, {"X-Node": "n1"}) for client in waiting]
    for number, (client, exchange) in enumerate(running):
        # Every other request is sent completely.
        part = client.task.content[client.half :]
        exchange.send(part if number % 2 else part[: len(part) // 2])
        client.current.sent = len(client.task.content)
    world.ceph.evict(mount.sessions())
    evicted = time.monotonic() - death.time
    clients = [client for client, _ in running] + waiting
    for client in clients:
        client._route = lambda request: "n2"
    kept, rest = waiting[:2], [client for client, _ in running] + waiting[2:]
    world.run(rest, 90)
    transcript.check(
        all(client.end == ANSWERED for client in rest),
        f"n1 is stopped and fenced ({evicted:.1f} s): {len(rest)} of its uploads continue on n2 at the offset"
        f" that was acknowledged or beyond, and end; {time.monotonic() - death.time:.1f} s after the stop",
        f"{ends(rest)} {[client.faults for client in rest]}",
    )
    for client in kept:
        client.note(client.head().offset)
    application.release()
    both = [client for client, _ in sent]
    resolved = wait(90 * world.slowness, lambda: is_resolved(two, both))
    seconds = time.monotonic() - death.time
    transcript.check(resolved, f"its deliveries are resolved on n2 {seconds:.1f} s after the stop")
    # A queue run repairs the uploads of n1; after that the spool does not change.
    runs = two.queue_runs()
    # One of them is in progress.
    must(120 * world.slowness, "two queue runs", lambda: two.queue_runs() >= runs + 3)
    before = two.digests()

    answers, ended = [], threading.Event()
    asking = threading.Thread(target=ask_on, args=(clients, answers, ended), daemon=True)
    asking.start()
    mount.thaw()
    status = one.wait(60)
    ended.set()
    asking.join(60)
    answers += [final(exchange) for _, exchange in [*running, *sent]] + [final(e) for e in asked]
    told = [answer for answer in answers if answer is not None]
    transcript.check(
        status == FENCED and one.log()[since:].count('msg="node fenced"') == 1,
        f"n1 wakes and ends at once with {status}, and logs the reason in one line",
        one.log()[since:][-1500:],
    )
    transcript.check(
        not {answer.status for answer in told} & LIES,
        f"it sent none of {sorted(LIES)} for {len(answers)} requests in progress or new;"
        f" {len(told)} received a response",
        "\n".join(str(answer) for answer in told),
    )
    after = two.digests()
    changed = sorted(set(before.items()) ^ set(after.items()))
    transcript.check(not changed, f"it changed nothing: {len(before)} files of uploads are as before", changed)

    mount.stop()
    mount.start()
    one.start()
    for client in [*kept, *both]:
        client._route = lambda request: "n1"
    world.run(kept + both, 60)
    for client in [one for one in clients if one.end == ANSWERED]:
        client.check_replay("n1")
    everybody = clients + both
    faults = judge(application, everybody, [death])
    once, requests = deliveries(application, clients)
    transcript.check(
        not faults and once == requests == len(clients),
        f"n1 is back: {ends(everybody)}; {once} of {len(clients)} delivered once and identical,"
        f" {sum(client.replays for client in clients)} responses replayed by n1",
        "\n".join(faults) + f"\n{once} once, {requests} requests",
    )
    transcript.check(
        [client.end for client in both]
        == [UNKNOWN if c.task.method == "POST" else ANSWERED for c in both],
        "of its deliveries, the PUT is delivered and the POST held",
        ends(both),
    )


def running_upload(world, draw, number):
    """An upload in the middle of a request to n1, with an acknowledged part before it."""
    content = draw.randbytes(draw.randrange(200_000, 2_000_000))
    client = world.begin(draw, f"lost{number}", lambda request: "n1", content=content)
    client.append(0, len(content) // 4)
    client.half = len(content) // 2
    exchange = client.begin_rest(client.half)
    # A later acknowledgement counts as well.
    exchange.listen(1)
    return client, exchange


def ask_on(clients, answers, ended):
    """Requests offsets from n1 until it has ended."""
    while not ended.is_set():
        for client in clients:
            try:
                answers.append(client.ask_node("n1"))
            except Closed:
                answers.append(None)
            if ended.wait(0.005):
                return


def final(exchange):
    """Its final response; None if its connection was closed."""
    try:
        return exchange.final()
    except Closed:
        return None
