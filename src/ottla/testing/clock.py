"""A clock for tests."""

from __future__ import annotations

from ottla.types import Millis


class ManualClock:
    """A clock that moves only on request.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500); clock.now()
    1500
    """

    __slots__ = ("_elapsed", "_now")

    def __init__(self, now: Millis = 1_700_000_000_000) -> None:
        self._now = now
        self._elapsed = 0

    def now(self) -> Millis:
        """Return the current time."""
        return self._now

    def elapsed(self) -> Millis:
        """Return the monotonic time."""
        return self._elapsed

    def step(self, by: Millis) -> None:
        """Set the wall clock, as an operator or NTP does; no time elapses."""
        self._now += by

    def advance(self, by: Millis) -> None:
        """Let time pass."""
        if by < 0:
            raise ValueError("time cannot go back")
        self._now += by
        self._elapsed += by
