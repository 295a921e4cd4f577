"""The clock. Only this module reads the system time for the layers below."""

from __future__ import annotations

import time

from ottla.driver import Clock as Clock
from ottla.types import Millis


class SystemClock:
    """The clock of this computer.

    >>> SystemClock().now() > 1_700_000_000_000
    True
    """

    def now(self) -> Millis:
        return time.time_ns() // 1_000_000

    def elapsed(self) -> Millis:
        return time.monotonic_ns() // 1_000_000
