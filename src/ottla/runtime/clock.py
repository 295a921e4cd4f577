"""The clock. Only this module reads the system time for the layers below."""

from __future__ import annotations

import time
from collections.abc import Callable

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


class ManualClock:
    """A clock that moves only on request.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(milliseconds=500); clock.advance(seconds=2); clock.now()
    3500

    A broker with this clock (``Broker(clock="manual")``) does what is due before `advance` returns: it applies
    retention, and ends sessions, transactions and offsets whose time is over. Clients use real time, and so do the
    timestamps of their records: see docs/testing.md.
    """

    __slots__ = ("_elapsed", "_now", "listeners")

    def __init__(self, now: Millis = 1_700_000_000_000) -> None:
        self._now = now
        self._elapsed = 0
        self.listeners: list[Callable[[], object]] = []
        """Called after each `advance`."""

    def now(self) -> Millis:
        """Return the current time."""
        return self._now

    def elapsed(self) -> Millis:
        """Return the monotonic time."""
        return self._elapsed

    def step(self, by: Millis) -> None:
        """Set the wall clock, as an operator or NTP does; no time elapses."""
        self._now += by

    def move(self, by: Millis) -> None:
        """Let time pass, and tell nobody."""
        if by < 0:
            raise ValueError("time cannot go back")
        self._now += by
        self._elapsed += by

    def advance(
        self,
        by: Millis = 0,
        *,
        milliseconds: float = 0,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        """Let time pass: ``by`` milliseconds, or other units. Returns when the brokers with this clock have noticed."""
        self.move(by + round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + milliseconds))
        for listener in tuple(self.listeners):
            listener()
