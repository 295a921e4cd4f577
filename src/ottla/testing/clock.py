"""A clock that stands still until it is moved."""

from __future__ import annotations

from ottla.types import Millis


class ManualClock:
    """Time as a test wants it.

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500); clock.now()
    1500
    """

    __slots__ = ("_now",)

    def __init__(self, now: Millis = 1_700_000_000_000) -> None:
        self._now = now

    def now(self) -> Millis:
        """Return the present time."""
        return self._now

    def advance(self, by: Millis) -> None:
        """Move the time forward."""
        if by < 0:
            raise ValueError("time does not go back")
        self._now += by
