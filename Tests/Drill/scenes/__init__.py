"""The scenes of the day, in order."""

from . import (
    configurations,
    crashes,
    install,
    nodes,
    removal,
    room,
    settings,
    timer,
    upgrade,
    uploads,
    upstream,
    watch,
)

SCENES = (
    install.SCENES
    + uploads.SCENES
    + watch.SCENES
    + settings.SCENES
    + crashes.SCENES
    + room.SCENES
    + upstream.SCENES
    + timer.SCENES
    + upgrade.SCENES
    + nodes.SCENES
    + removal.SCENES
    + configurations.SCENES
)
