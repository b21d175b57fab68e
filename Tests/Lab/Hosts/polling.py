"""One spool: the cost for the metadata server of polling for other nodes' requests, and the delay until one is
detected.
"""

import time

SECONDS = 20
LOCKS = 20


def play(world, transcript, draw):
    idle = rate(world)
    clients = [receiving(world, draw, number) for number in range(8)]
    busy = rate(world)
    for _, exchange in clients:
        exchange.close()
    waits, told = [], 0
    for number in range(LOCKS):
        client, exchange = receiving(world, draw, f"-wanted{number}")
        began = time.monotonic()
        told += client.ask_node("n2").status == 204
        waits.append(time.monotonic() - began)
        exchange.close()
    waits.sort()
    transcript.say(
        f"  requests to the metadata server per second: {idle:.1f} while both nodes are idle, {busy:.1f}"
        f" while n1 receives 8 uploads without content"
    )
    transcript.say(
        f"  an offset requested from n2 while n1 receives the upload: median {waits[LOCKS // 2]:.3f} s, longest"
        f" {waits[-1]:.3f} s of {LOCKS}"
    )
    transcript.check(told == LOCKS, f"n2 returned {told} of {LOCKS} offsets of uploads that n1 received")


def rate(world):
    """Client requests per second."""
    before, began = count(world), time.monotonic()
    time.sleep(SECONDS)
    return (count(world) - before) / (time.monotonic() - began)


def count(world):
    counters = world.ceph.command("tell", "mds.a", "perf", "dump")
    return counters["mds_server"]["handle_client_request"]


def receiving(world, draw, number):
    """An upload that n1 receives, without further content."""
    content = draw.randbytes(100_000)
    client = world.begin(draw, f"poll{number}", lambda request: "n1", content=content)
    exchange = client.begin_rest(50_000)
    exchange.listen(0.5)
    return client, exchange
