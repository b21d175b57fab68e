"""The scenes of the day, in order, by module name."""

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

# The scenes that CI plays: an operator's main tasks, without the slow scenes that rarely change.
SAMPLE = ("uploads", "outage", "upgrade", "removal", "configurations")
