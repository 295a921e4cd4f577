"""How much of a quota is used. Time is a parameter.

Kafka measures the rate of a client over windows (``quota.window.num``, ``quota.window.size.seconds``), with an error of
up to a window. A bucket has the same limits without that error: a client that was idle may use the time of all windows
but the current one at once, and its average rate is never higher than the quota.
"""

from __future__ import annotations

from ottla.types import Millis

#: What fits into a response. A quota may be very small.
LONGEST_WAIT: Millis = 2**31 - 1


class Bucket:
    """What a client may use: it comes back at a rate, up to that of ``longest`` milliseconds.

    More may be taken than there is. Then the client has to wait.

    >>> bucket = Bucket(longest=10_000)
    >>> bucket.take(25, rate=2, now=0)
    >>> bucket.wait(rate=2, now=0)
    2500
    """

    __slots__ = ("_left", "_longest", "_since")

    def __init__(self, longest: Millis) -> None:
        self._longest = longest
        self._left = float("inf")
        self._since: Millis = 0

    def take(self, amount: float, *, rate: float, now: Millis) -> None:
        """Use something, even if there is less. A negative amount gives it back."""
        self._refill(rate, now=now)
        self._left -= amount

    def wait(self, *, rate: float, now: Millis) -> Millis:
        """Return how long to wait until no more has been used than was there. 0 means that this is so."""
        self._refill(rate, now=now)
        return round(min(LONGEST_WAIT, max(0.0, -self._left * 1000 / rate)))

    def is_full(self, *, rate: float, now: Millis) -> bool:
        """Whether the bucket is as good as a new one."""
        self._refill(rate, now=now)
        return self._left >= rate * self._longest / 1000

    def _refill(self, rate: float, *, now: Millis) -> None:
        self._left = min(rate * self._longest / 1000, self._left + rate * (now - self._since) / 1000)
        self._since = now
