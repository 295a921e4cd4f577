"""How much of a quota is used: rates over sampled windows and token buckets, as in Kafka. Time is a parameter."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ottla.types import Millis


class Windows(NamedTuple):
    """The samples that a rate is measured over: ``quota.window.num`` and ``quota.window.size.seconds``."""

    count: int = 11
    size: Millis = 1_000

    @property
    def whole(self) -> Millis:
        """The shortest time that a rate is measured over: all windows but the current one."""
        return (self.count - 1) * self.size

    @property
    def total(self) -> Millis:
        return self.count * self.size


class SampledRate:
    """The rate of something over the last windows. A new client may use the whole time of the windows at once.

    >>> rate = SampledRate(Windows(count=2, size=1000))
    >>> rate.record(500, now=0)
    >>> rate.excess(250, now=0)
    1000
    >>> rate.excess(250, now=1000)
    0
    """

    __slots__ = ("_samples", "_sum", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[list[float]] = deque()
        self._sum = 0.0

    def record(self, amount: float, *, now: Millis) -> None:
        """Count something. A negative amount takes back what was counted at the same time."""
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._windows.size:
            samples.append([now, 0.0])
        samples[-1][1] += amount
        self._sum += amount

    def value(self, *, now: Millis) -> float:
        """Return the rate per second."""
        self._forget(now)
        return self._sum * 1000 / self._span(now)

    def excess(self, limit: float, *, now: Millis) -> Millis:
        """Return how long to wait until the rate is at the limit. 0 means that it is not exceeded."""
        self._forget(now)
        return max(0, round(self._sum * 1000 / limit - self._span(now)))

    def is_idle(self, *, now: Millis) -> bool:
        """Whether nothing has been counted for so long that the rate can be forgotten."""
        self._forget(now)
        return not self._samples

    def _forget(self, now: Millis) -> None:
        samples, oldest = self._samples, now - self._windows.total
        while samples and samples[0][0] <= oldest:
            self._sum -= samples.popleft()[1]
        if not samples:
            self._sum = 0.0

    def _span(self, now: Millis) -> Millis:
        """Return the time that the samples stand for. Windows that have not passed yet count as whole ones."""
        elapsed = now - int(self._samples[0][0]) if self._samples else 0
        missing = self._windows.count - 1 - elapsed // self._windows.size
        return max(1, elapsed + max(0, missing) * self._windows.size)


class TokenBucket:
    """Tokens that come back at a rate, up to those of all windows. They may be overdrawn once (KIP-599).

    >>> bucket = TokenBucket(Windows(count=10, size=1000))
    >>> bucket.take(25, rate=2, now=0)
    >>> bucket.deficit(2, now=0)
    2500
    """

    __slots__ = ("_since", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = float("inf")
        self._since: Millis = 0

    def take(self, count: float, *, rate: float, now: Millis) -> None:
        """Take tokens, even if there are too few."""
        self._refill(rate, now)
        self._tokens -= count

    def deficit(self, rate: float, *, now: Millis) -> Millis:
        """Return how long it takes until no token is missing. 0 means that there are enough."""
        self._refill(rate, now)
        return max(0, round(-self._tokens * 1000 / rate))

    def is_full(self, rate: float, *, now: Millis) -> bool:
        """Whether the bucket is as good as a new one."""
        self._refill(rate, now)
        return self._tokens >= self._most(rate)

    def _refill(self, rate: float, now: Millis) -> None:
        self._tokens = min(self._most(rate), self._tokens + rate * (now - self._since) / 1000)
        self._since = now

    def _most(self, rate: float) -> float:
        return rate * self._windows.total / 1000
