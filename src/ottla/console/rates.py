"""How fast logs grow: the ends of logs at two times become records per second. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.types import Millis, TopicPartition

SHORTEST: Millis = 1000
"""Two readings that are closer together tell little about a rate."""


class Rates:
    """Remembers one reading of the ends of all logs.

    >>> rates, key = Rates(), TopicPartition("orders", 0)
    >>> rates.observe({key: 100}, now=0)
    >>> rates.observe({key: 150}, now=10_000)
    {TopicPartition(topic='orders', partition=0): 5.0}
    """

    def __init__(self) -> None:
        self._ends: Mapping[TopicPartition, int] | None = None
        self._at: Millis = 0
        self._rates: dict[TopicPartition, float] | None = None

    def observe(self, ends: Mapping[TopicPartition, int], *, now: Millis) -> dict[TopicPartition, float] | None:
        """Take a reading; returns records per second of the partitions in both readings, or None after the first."""
        if self._ends is not None and 0 <= now - self._at < SHORTEST:
            return self._rates
        # A clock that was set back tells nothing: begin again.
        if self._ends is not None and now > self._at:
            seconds = (now - self._at) / 1000
            # A log may have been deleted and created again.
            self._rates = {
                key: max(end - self._ends[key], 0) / seconds for key, end in ends.items() if key in self._ends
            }
        self._ends, self._at = ends, now
        return self._rates
