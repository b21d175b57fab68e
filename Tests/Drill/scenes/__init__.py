"""The scenes of the day, in order: title, what is played, and which warnings it may leave in the journal."""

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
