"""The scenes of the day, in order, by module name."""

import importlib

NAMES = (
    "install uploads watch settings crashes room diagnosis upstream outage timer upgrade nodes removal configurations"
).split()
SCENES = {name: importlib.import_module(f"{__name__}.{name}").SCENES for name in NAMES}

# The scenes that CI plays: an operator's main tasks, without the slow scenes that rarely change.
SAMPLE = ("uploads", "outage", "upgrade", "removal", "configurations")
