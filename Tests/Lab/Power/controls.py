"""The negative controls: syncs that do nothing, disks that ignore flushes, a weaker promise.

Each must break a promise, since a test that cannot fail proves nothing. A control plays rounds until one is broken.
"""

from series import Plan, Series

# Name: (description, the moment of each power failure or None, the settings). The first three are in every run.
CONTROLS = {
    "all-syncs": ("every sync of the gateway does nothing", None, {"lie": "all"}),
    "record": ("no sync of a record", "head", {"lie": "record"}),
    "flushes": ("the disks ignore flushes", None, {"lies": True}),
    "data": ("no sync of content", "head", {"lie": "data"}),
    "spool-directories": ("no sync of the spool's directories", "cancelled", {"lie": "spooldir"}),
    "drop-files": ("no sync of files in a directory:", "answered-dir", {"lie": "dropfile"}),
    "drop-directory": ("no sync of that directory", "answered-dir", {"lie": "dropdir"}),
    "process": ("promise: process", None, {"promise": "process"}),
}
QUICK = ("all-syncs", "record", "flushes")
# The number of rounds after which a control counts as undetected.
MOST = 6


def play(host, name, file_system, seed, results, lane):
    """Plays a control unless the results have it; returns the kinds of broken promises."""
    noticed = results.noticed(name)
    if noticed is None:
        _, moment, words = CONTROLS[name]
        plan = Plan(f"control-{name}", file_system, seed, moment, is_control=True, lane=lane, **words)
        with Series(host, plan, results) as series:
            series.play(MOST)
            # A gateway that does not start in time breaks no promise.
            noticed = sorted({kind for kind, _, _ in series.ledger.faults} - {"no gateway"})
        results.write({"control": name, "noticed": noticed})
    return noticed
