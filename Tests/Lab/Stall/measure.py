"""The measurements: a stall under uploads, and TERM during a stall."""

import contextlib
import os
import time

from lab.processes import must
from stage import ROWS, Stage, ended_within
from traffic import Pings, Sink, Uploads, settings

# The longest time that the page may take while the disk stalls, in ms, if the worker does not write.
LONGEST = 1000
# TERM: the seconds of the stall during which the processor time is measured, and the most that may pass between
# the end of the stall and the worker's end. nginx's master process kills the worker 1.5 s after TERM at the earliest.
WATCH, LONGEST_END = 1, 1.0
# Rows that write in nginx's worker process, so that the page must wait: without a wait the disk did not stall.
WAITING = ("worker", "dav", "proxy")
# Rows in which nginx gets TERM during a stall.
TERMINATED = ("off", "worker", "on")
HEAD = "| | p50 | p99 | max | before: p50 | p99 | max | threads that wait: nginx, gateway |"


def play(disk, rows, scratch, transcript):
    """Measures the rows on a disk of that kind; prints a table."""
    count, size, seconds = settings()
    transcript.scene(f"{disk.title} stalls for {seconds:g} s under {count} uploads of {size >> 20} MiB")
    table = [HEAD, "|---" * HEAD.count(" |") + "|"]
    for row in rows:
        with disk(new(scratch, f"{disk.name}-{row}")) as one:
            table.append(stall(one, row, scratch, transcript))
    transcript.say("\nms until the response with the page, during the stall and before it:\n")
    transcript.say("\n".join(table))
    rows = [row for row in rows if row in TERMINATED and disk.holds_writes]
    if rows:
        transcript.scene(f"TERM while writes wait for {disk.title}")
    for row in rows:
        with disk(new(scratch, f"{disk.name}-{row}-term")) as one:
            term(one, row, scratch, transcript)


def new(scratch, name):
    path = os.path.join(scratch, name)
    os.mkdir(path)
    return path


def stall(disk, row, scratch, transcript):
    """One stall; the row of the table."""
    count, size, seconds = settings()
    with contextlib.ExitStack() as ends:
        sink = Sink()
        ends.callback(sink.stop)
        stage = ends.enter_context(Stage(os.path.join(scratch, "stage"), disk.mount, row, sink.port))
        pings = Pings(stage.port)
        ends.callback(pings.stop)
        uploads = Uploads(stage.port, stage.path, count, size)
        ends.callback(uploads.stop)
        ends.callback(disk.resume)
        must(60, "a quarter of the content is sent", lambda: uploads.share_sent() > 0.25)
        began = time.monotonic()
        disk.stall()
        waiting = watch(stage, began + seconds)
        disk.resume()
        ended = time.monotonic()
        results = uploads.results()
        answers = pings.end()
        lane = stage.lane_bytes()
        stored = sink.digests() if row == "proxy" else stage.digests()
        left = stage.quit()
        complaints = stage.complaints()
    name = ROWS[row][0]
    during = [one for one in answers if began <= one[0] < ended]
    before = [one for one in answers if one[0] + one[1] < began]
    figures = times(during)
    statuses = [status for status, _ in results]
    transcript.check(
        len(statuses) == count and set(statuses) <= {200, 201, 204},
        f"{name}: all {count} uploads succeed",
        f"{statuses}\n" + "\n".join(complaints[-5:]),
    )
    is_whole = stored == sorted(digest for _, digest in results)
    transcript.check(is_whole, f"{name}: each is stored whole", f"{len(stored)} stored")
    transcript.check(
        during and all(is_good for _, _, is_good in answers),
        f"{name}: each of the {len(answers)} requests for the page receives a response",
        f"{sum(not is_good for _, _, is_good in answers)} are not",
    )
    transcript.check(not left, f"{name}: nginx and the gateway end in time", left)
    if row in WAITING:
        sentence = f"{name}: the page waits for the disk (otherwise the test proves nothing)"
        transcript.check(figures[0] > LONGEST, sentence, figures)
    else:
        transcript.check(
            figures[2] < LONGEST and max(waiting) > 0,
            f"{name}: the page is served within {LONGEST} ms while writes wait",
            f"{figures}; waiting {waiting}",
        )
    if row in ("on", "worker"):
        transcript.check(lane >= count * (size - (4 << 20)), f"{name}: nginx writes the content", lane)
        transcript.check(waiting[0] > 0, f"{name}: nginx's writes wait for the disk", waiting)
    else:
        transcript.check(lane == 0, f"{name}: nginx writes nothing into the spool", lane)
    for line in complaints[-3:]:
        transcript.say(f"  logged: {line[:300]}")
    cells = [*map(shown, (*figures, *times(before))), f"{waiting[0]}, {waiting[1]}"]
    return f"| {name} | " + " | ".join(cells) + " |"


def watch(stage, until):
    """The most threads of the worker, and of the gateway, that waited for the disk at the same time."""
    most = (0, 0)
    while time.monotonic() < until:
        most = tuple(map(max, most, stage.writes()))
        time.sleep(min(0.25, max(0, until - time.monotonic())))
    return most


def times(answers):
    """The median, the 99th percentile and the maximum, in ms."""
    taken = sorted(seconds * 1000 for _, seconds, _ in answers)
    if not taken:
        return 0.0, 0.0, 0.0
    return taken[len(taken) // 2], taken[int(len(taken) * 0.99)], taken[-1]


def shown(milliseconds):
    return f"{milliseconds:.1f}" if milliseconds < 100 else f"{milliseconds:,.0f}"


def term(disk, row, scratch, transcript):
    """TERM to nginx while a write waits for the disk."""
    name = ROWS[row][0]
    uploads = None
    with Stage(os.path.join(scratch, "stage"), disk.mount, row) as stage:
        try:
            uploads = Uploads(stage.port, stage.path, 4, 256 << 20)
            must(30, "content is sent", lambda: uploads.share_sent() > 0.02)
            disk.stall()
            if row == "off":
                must(30, "the gateway waits for the disk", lambda: stage.writes()[1] > 0)
            else:
                must(30, "nginx waits for the disk", lambda: stage.worker_writes() > 0)
            worker = stage.terminate()
            began = time.monotonic()
            before = stage.worker_seconds()
            is_over = ended_within(worker, WATCH)
            watched = time.monotonic() - began
            after = stage.worker_seconds() if not is_over else before
            disk.resume()
            resumed = time.monotonic()
            has_ended = ended_within(worker, 20)
            taken = time.monotonic() - resumed
            os.close(worker)
        finally:
            disk.resume()
            if uploads:
                uploads.stop()
    if is_over:
        figures = f"the worker ends {watched:.2f} s after TERM, during the stall"
    else:
        figures = (
            f"{after - before:.2f} s of processor time in {watched:.1f} s of the stall; "
            + (f"the worker ends {taken:.2f} s after it" if has_ended else "the worker stays")
        )
    if row == "worker":
        # The signal waits for the write, and no promise covers this.
        transcript.say(f"      {name}: {figures}")
        return
    transcript.check(
        is_over or has_ended and taken < LONGEST_END,
        f"{name}: TERM ends the worker within {LONGEST_END:g} s of the end of the stall: {figures}",
    )
