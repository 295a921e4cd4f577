"""The output of ``ottla demo``: a line per event, and a status line that is overwritten."""

from __future__ import annotations

import sys
import time

from ottla.cli.terminal import LiveLine

#: Without a terminal, the interval between status lines, and between two that say the same.
PLAIN_SECONDS = 3.0
SAME_SECONDS = 15.0
LIVE_SECONDS = 0.2


class Screen:
    def __init__(self) -> None:
        self._line = LiveLine(sys.stdout)
        self._begin = time.monotonic()
        self._next = 0.0
        self._last = ""
        self._again = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def happened(self, text: str) -> None:
        """Print a permanent line with the elapsed time."""
        self.plain(f"{self.seconds:5.1f} s  {text}")

    def plain(self, text: str = "") -> None:
        self._line.clear()
        print(text, flush=True)

    def status(self, text: str) -> None:
        """Show the status, at most once per interval."""
        now = time.monotonic()
        if now < self._next or (text == self._last and now < self._again and not self._line.is_live):
            return
        self._next = now + (LIVE_SECONDS if self._line.is_live else PLAIN_SECONDS)
        self._last, self._again = text, now + SAME_SECONDS
        self._line.show(f"{self.seconds:5.1f} s    {text}")
