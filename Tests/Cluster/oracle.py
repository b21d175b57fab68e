"""Whether every promise was kept: by what clients were told, and what the application got."""

import hashlib

from client import ANSWERED, GONE, UNKNOWN


class Death:
    """A node that was killed: between these instants nothing that it was told is surely stored."""

    def __init__(self, node, time):
        self.node = node
        self.time = time


def judge(application, clients, deaths=(), was_begun=lambda identity: False):
    """Everything that is wrong, a line each.

    `was_begun` looks whether the record of a held upload says that its one attempt was begun and that its process
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
            yield f"the application got {one.method}"
        if one.is_whole and one.digest != digest:
            yield f"the application got other bytes: {one}"
        if not one.is_whole and one.digest:
            part = hashlib.sha256(task.content[: one.size]).hexdigest()
            if one.digest != part:
                yield f"the application got other bytes: {one}"
    if task.method == "POST" and len(requests) > 1:
        yield f"a POST was sent {len(requests)} times: {[str(one) for one in requests]}"
    for first, second in zip(requests, requests[1:]):
        if not _was_interrupted(first, second, deaths):
            yield f"it was sent again, and nothing had interrupted it: {first}, {second}"
    if creation.end == ANSWERED and not whole:
        yield "answered, and the application does not have it"
    if creation.end == UNKNOWN:
        if task.method == "PUT":
            yield "held, though it may be repeated"
        if not deaths and "break" not in creation.target:
            yield "held, and nothing was interrupted"
        # The begin of an attempt is stored before anything is sent (attempt-once in spoolgate-spool(5)): a node
        # that dies between the two leaves what nobody can tell from an attempt that was sent.
        if not requests and not (_was_cut_short(creation, deaths) and was_begun(creation.identity)):
            yield "held, and the application never heard of it"
    # Of a Location alone nobody promised that it survives a node.
    if creation.end == GONE and (creation.is_promised or not deaths):
        offset = creation.told if creation.is_promised else "no offset"
        yield f"gone, though its client was told {offset}"
    if creation.end is None and creation.location:
        yield "no end"


def _was_cut_short(creation, deaths):
    """Whether a node died after its client had begun to send the last of the content."""
    completing = creation.completing
    return completing is not None and any(death.time >= completing for death in deaths)


def _was_interrupted(first, second, deaths):
    """Whether an attempt that another one follows had no answer that a living gateway knew of."""
    if not first.answered:
        return True
    return any(first.began <= death.time <= second.began for death in deaths)


def deliveries(application, clients):
    """How many of the uploads the application has whole exactly once, and all requests for them."""
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
    """Checks that every upload was delivered once and identical, and no promise broken."""
    faults = judge(application, clients)
    once, requests = deliveries(application, clients)
    transcript.check(
        not faults and once == requests == len(clients),
        f"{once} of {len(clients)} delivered once and identical, {requests} requests",
        "\n".join(faults),
    )


def ends(clients):
    """How many uploads ended how."""
    counts = {}
    for client in clients:
        counts[client.end or "none"] = counts.get(client.end or "none", 0) + 1
    return ", ".join(f"{count} {end}" for end, count in sorted(counts.items()))
