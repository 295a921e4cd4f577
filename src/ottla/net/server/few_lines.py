"""Log lines that clients cause: a hostile one could fill the disk with them."""

from __future__ import annotations

import logging
import time

#: More lines in a second are counted only.
MOST_PER_SECOND = 100


class FewLines:
    """Logs warnings, but not too many each second. Then it says how many were left out."""

    def __init__(self, logger: logging.Logger, others: str = "connections were closed or refused") -> None:
        """``others`` says what happened to those that are only counted."""
        self._logger = logger
        self._others = others
        self._since = 0.0
        self._lines = self._left_out = 0

    def warning(self, text: str, *values: object) -> bool:
        """Log a line, unless there were too many in this second. Return whether it was logged."""
        if self.leave_out():
            return False
        self._lines += 1
        self._logger.warning(text, *values)
        return True

    def leave_out(self) -> bool:
        """Count a line if there were too many in this second. Return whether that is so."""
        self.end_second()
        if self._lines < MOST_PER_SECOND:
            return False
        self._left_out += 1
        return True

    def end_second(self) -> None:
        """Say how many lines were left out in the last second."""
        now = time.monotonic()
        if now - self._since < 1:
            return
        if self._left_out:
            self._logger.warning("%d more %s", self._left_out, self._others)
        self._since, self._lines, self._left_out = now, 0, 0
