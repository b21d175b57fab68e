"""One spool: a node is killed at every moment of an upload's life, in many rounds."""

import os
import time

from Cluster.client import ANSWERED, UNKNOWN, Task
from Cluster.moments import ALL
from Cluster.oracle import Death, ends, judge
from Cluster.world import NODES

CLIENTS = 6

# The recorded reason of an attempt during which its process ended.
INTERRUPTED = "spoolgate stopped during the delivery attempt; check whether the application received the upload"


def play(world, transcript, draw):
    rounds = int(os.environ.get("CLUSTER_ROUNDS") or 100)
    since = world.log_sizes()
    faults, everybody, deaths, missed, replays = [], [], [], 0, 0
    moments = {}
    for number in range(rounds):
        moment = ALL[number % len(ALL)]
        clients = [client_of(world, draw, number, index) for index in range(CLIENTS)]
        killed = []
        world.moments.look_out(moment, draw.randrange(1, 8))

        def trouble(draw=draw, killed=killed, clients=clients):
            came, node = world.moments.wait(8)
            time.sleep(draw.uniform(0, 0.01))
            victims = list(NODES) if draw.random() < 0.1 else [node or draw.choice(NODES)]
            for name in victims:
                world.gateways[name].kill()
                killed.append(Death(name, time.monotonic()))
            world.moments.go_on()
            if not came:
                killed.clear()
            time.sleep(draw.uniform(0, 0.3))
            for name in victims:
                world.gateways[name].start()

        world.run(clients, 60, at_a_time=CLIENTS, beside=trouble)
        if killed:
            moments[moment] = moments.get(moment, 0) + 1
        else:
            missed += 1
        deaths += killed
        for client in clients:
            if client.end == ANSWERED:
                client.check_replay(world.replaying(draw))
                replays += client.replays
        found = judge(world.application, clients, deaths, lambda one: was_begun(world, one))
        faults += [f"round {number}, {moment}: {fault}" for fault in found]
        everybody += clients
    repeated = sum(
        max(0, len(world.application.requests_for(creation.target)) - 1)
        for client in everybody
        for creation in client.creations
    )
    transcript.say(f"  kills at: {', '.join(f'{m} {n}' for m, n in moments.items())}; {missed} missed")
    unsent = sum(
        client.end == UNKNOWN and not world.application.requests_for(client.current.target)
        for client in everybody
    )
    transcript.say(f"  {unsent} held, whose node died between the start of the attempt and its request")
    transcript.check(
        not faults,
        f"{rounds} rounds, {len(deaths)} deaths, {len(everybody)} uploads: {ends(everybody)};"
        f" {repeated} PUT repeated, {replays} replays; no acknowledged byte lost, no POST twice",
        "\n".join(faults),
    )
    transcript.check(len(moments) == len(ALL) or rounds < 3 * len(ALL), "every moment was reached", moments)
    transcript.check(all(world.gateways[name].status() is None for name in NODES), "both nodes run at the end")
    allowed = (r'msg="delivery outcome unknown"|spoolgate stopped during',)
    world.check_logs(transcript, since, "the nodes log no other warning", allowed)
    held_as_told(world, transcript, everybody)


def client_of(world, draw, number, index):
    task = Task(f"{draw.random()}", largest=1 << 20)
    task.number = f"kill{number}.{index}"
    if index % 3 == 0:
        task.orders = "?pace=2"
    return world.client(task, lambda request: draw.choice(NODES))


def was_begun(world, identity, nodes=NODES):
    """Returns whether the nodes read in a record that its only attempt was begun and never ended."""
    records = [world.gateways[name].uploads()[identity] for name in nodes]
    begun = ("indeterminate", 1, INTERRUPTED)
    return all((one["state"], one["attempts"], one["reason"]) == begun for one in records)


def held_as_told(world, transcript, clients):
    """Checks that both nodes hold exactly the uploads whose clients received that the outcome is unknown."""
    told = {client.current.identity for client in clients if client.end == UNKNOWN}
    lists = [world.gateways[name].uploads() for name in NODES]
    ours = {creation.identity for client in clients for creation in client.creations}
    held = {
        identity
        for identity, upload in lists[0].items()
        if upload["state"] == "indeterminate" and identity in ours
    }
    transcript.check(
        told == held,
        f"{len(held)} are held, exactly those that the clients expect",
        f"only expected {sorted(told - held)}, only held {sorted(held - told)}",
    )
    corrupt = [one for one in lists[0].values() if one["state"] == "corrupt"]
    transcript.check(not corrupt, "no upload is corrupt", corrupt)
    states = [{identity: one["state"] for identity, one in each.items()} for each in lists]
    transcript.check(states[0] == states[1], f"both nodes list the same {len(states[0])} uploads")
