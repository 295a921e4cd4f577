"""A clock that stands still until it is moved."""

from __future__ import annotations

from ottla.types import Millis


class ManualClock:
    """Time as a test wants it.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500); clock.now()
    1500
    """

    __slots__ = ("_elapsed", "_now")

    def __init__(self, now: Millis = 1_700_000_000_000) -> None:
        self._now = now
        self._elapsed = 0

    def now(self) -> Millis:
        """Return the present time."""
        return self._now

    def elapsed(self) -> Millis:
        """Return how far the time has been moved."""
        return self._elapsed

    def step(self, by: Millis) -> None:
        """Set the clock, as an operator or NTP does: no time passes by it."""
        self._now += by

    def advance(self, by: Millis) -> None:
        """Move the time forward."""
        if by < 0:
            raise ValueError("time does not go back")
        self._now += by
        self._elapsed += by
