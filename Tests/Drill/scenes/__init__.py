"""The scenes of the day, in order."""

from . import crashes, install, removal, room, settings, timer, upgrade, uploads, upstream

SCENES = (
    install.SCENES
    + uploads.SCENES
    + settings.SCENES
    + crashes.SCENES
    + room.SCENES
    + upstream.SCENES
    + timer.SCENES
    + upgrade.SCENES
    + removal.SCENES
)
