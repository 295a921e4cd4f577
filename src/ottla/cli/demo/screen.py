"""The output of ``ottla demo``: a line per event, and a status line that is overwritten."""

from __future__ import annotations

import shutil
import sys
import time

#: Without a terminal, the interval between status lines.
PLAIN_SECONDS = 3.0
LIVE_SECONDS = 0.2


class Screen:
    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._begin = time.monotonic()
        self._next = 0.0
        self._status = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def happened(self, text: str) -> None:
        """Print a permanent line with the elapsed time."""
        self._clear()
        print(f"{self.seconds:5.1f} s  {text}", flush=True)

    def plain(self, text: str = "") -> None:
        self._clear()
        print(text, flush=True)

    def status(self, text: str) -> None:
        """Show the status, at most once per interval."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (LIVE_SECONDS if self._live else PLAIN_SECONDS)
        if not self._live:
            print(f"{self.seconds:5.1f} s    {text}", flush=True)
            return
        # A line that wraps cannot be overwritten.
        line = f"{self.seconds:5.1f} s    {text}"[: shutil.get_terminal_size().columns - 1]
        print(f"\r\x1b[K{line}", end="", flush=True)
        self._status = True

    def _clear(self) -> None:
        if self._status:
            print("\r\x1b[K", end="")
            self._status = False
