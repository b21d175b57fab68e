"""The scenes of the day, in order, by the names of their modules."""

from . import (
    configurations,
    crashes,
    diagnosis,
    install,
    nodes,
    outage,
    removal,
    room,
    settings,
    timer,
    upgrade,
    uploads,
    upstream,
    watch,
)

SCENES = {
    module.__name__.rsplit(".", 1)[1]: module.SCENES
    for module in (
        install,
        uploads,
        watch,
        settings,
        crashes,
        room,
        diagnosis,
        upstream,
        outage,
        timer,
        upgrade,
        nodes,
        removal,
        configurations,
    )
}

# What CI plays: an operator's whole way, without the scenes that take long and change seldom.
SAMPLE = ("uploads", "outage", "upgrade", "removal", "configurations")
