"""The output of a test: scenes, commands as an operator types them, their output, and assertions.

Invariant: every assertion is one line that begins with `ok` or `FAIL`, and is counted.
"""

import re
import sys
import time

WIDTH = 150
# For faults, which may not be reproducible.
FAULT_WIDTH = 2000

# apt's messages for terminals that redraw lines, and its usual ones.
NOISE = re.compile(
    r"\(?Reading (database|package lists|state)|WARNING: apt does not have|Building dependency"
)


class Transcript:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self._began = time.monotonic()

    def scene(self, title):
        seconds = int(time.monotonic() - self._began)
        self._print(f"\n== {title}  ({seconds // 60}:{seconds % 60:02})\n")

    def say(self, text):
        self._print(text)

    def command(self, line, prompt="# "):
        self._print(f"{prompt}{line}")

    def output(self, text, limit=12, width=WIDTH):
        """Prints the first and last lines, each truncated to `width`."""
        lines = [
            line.rstrip() for line in text.splitlines() if line.strip() and not NOISE.match(line)
        ]
        if len(lines) > limit:
            head = limit // 2
            left_out = f"... {len(lines) - limit} lines ..."
            lines = lines[:head] + [left_out] + lines[head - limit :]
        for line in lines:
            shown = line if len(line) <= width else line[: width - 3] + "..."
            self._print("  " + shown)

    def check(self, holds, sentence, detail=""):
        """Counts an assertion; `detail` is printed only if it failed."""
        if holds:
            self.passed += 1
            self._print(f"ok    {sentence}")
        else:
            self.failed += 1
            self._print(f"FAIL  {sentence}")
            self.output(str(detail), limit=30, width=FAULT_WIDTH)
        return bool(holds)

    def attempt(self, play, *arguments):
        """Plays a scene; an exception counts as a failure. Returns whether it had none."""
        failed = self.failed
        try:
            play(*arguments)
        except Exception as error:  # noqa: BLE001: the next scenes are still useful
            self.check(False, f"the scene ended early: {type(error).__name__}: {error}")
        return self.failed == failed

    def end(self):
        """Prints the counts; returns the exit status."""
        self._print(f"\n{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0

    def _print(self, text):
        print(text)
        sys.stdout.flush()
