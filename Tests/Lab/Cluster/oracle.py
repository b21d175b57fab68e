"""Checks that every promise was kept, from the clients' responses and the application's requests."""

import hashlib

from Cluster.client import ANSWERED, GONE, UNKNOWN


class Death:
    """The death of a node: between these instants its acknowledgements may be lost with it."""

    def __init__(self, node, time):
        self.node = node
        self.time = time


def judge(application, clients, deaths=(), was_begun=lambda identity: False):
    """All violations, one line each.

    `was_begun` checks whether the record of a held upload says that its only attempt was begun and that its process
    ended during it.
    """
    faults = []
    for client in clients:
        name = (
            f"upload {client.task.number} ({client.task.method}, {len(client.task.content)} bytes)"
        )
        faults += [f"{name}: {fault}" for fault in client.faults]
        for creation in client.creations:
            faults += [
                f"{name} {creation.target} {creation.identity}: {fault}"
                for fault in _judge(creation, client.task, application, deaths, was_begun)
            ]
    return faults


def _judge(creation, task, application, deaths, was_begun):
    requests = application.requests_for(creation.target)
    whole = [one for one in requests if one.is_whole]
    digest = hashlib.sha256(task.content).hexdigest()
    for one in requests:
        if one.method != task.method:
            yield f"the application received {one.method}"
        if one.is_whole and one.digest != digest:
            yield f"the application received other bytes: {one}"
        if not one.is_whole and one.digest:
            part = hashlib.sha256(task.content[: one.size]).hexdigest()
            if one.digest != part:
                yield f"the application received other bytes: {one}"
    if task.method == "POST" and len(requests) > 1:
        yield f"a POST was sent {len(requests)} times: {[str(one) for one in requests]}"
    for first, second in zip(requests, requests[1:]):
        if not _was_interrupted(first, second, deaths):
            yield f"it was sent again without an interruption: {first}, {second}"
    if creation.end == ANSWERED and not whole:
        yield "a final response, but the application did not receive the upload"
    if creation.end == UNKNOWN:
        if task.method == "PUT":
            yield "held, although it may be retried"
        if not deaths and "break" not in creation.target:
            yield "held without an interruption"
        # The start of an attempt is stored before anything is sent (attempt-once in spoolgate-spool(5)). If a node
        # dies between the two, its attempt cannot be distinguished from one that was sent.
        if not requests and not (_was_cut_short(creation, deaths) and was_begun(creation.identity)):
            yield "held, but the application never received it"
    # A Location without an offset does not promise to survive a node.
    if creation.end == GONE and (creation.is_promised or not deaths):
        offset = creation.told if creation.is_promised else "no offset"
        yield f"gone, although its client had received {offset}"
    if creation.end is None and creation.location:
        yield "no end"


def _was_cut_short(creation, deaths):
    """Whether a node died after its client had begun to send the last of the content."""
    completing = creation.completing
    return completing is not None and any(death.time >= completing for death in deaths)


def _was_interrupted(first, second, deaths):
    """Whether an attempt before another one had no response that reached a running gateway."""
    if not first.answered:
        return True
    return any(first.began <= death.time <= second.began for death in deaths)


def deliveries(application, clients):
    """The number of uploads that the application received completely and exactly once, and the number of requests
    for them.
    """
    once = requests = 0
    for client in clients:
        found = [
            one
            for creation in client.creations
            for one in application.requests_for(creation.target)
        ]
        requests += len(found)
        once += sum(one.is_whole for one in found) == 1
    return once, requests


def check_once(transcript, application, clients):
    """Checks that every upload was delivered once and unchanged, and that no promise was broken."""
    faults = judge(application, clients)
    once, requests = deliveries(application, clients)
    transcript.check(
        not faults and once == requests == len(clients),
        f"{once} of {len(clients)} delivered once and identical, {requests} requests",
        "\n".join(faults),
    )


def ends(clients):
    """The number of uploads by their end."""
    counts = {}
    for client in clients:
        counts[client.end or "none"] = counts.get(client.end or "none", 0) + 1
    return ", ".join(f"{count} {end}" for end, count in sorted(counts.items()))
