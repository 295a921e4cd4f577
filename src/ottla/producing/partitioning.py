"""Which partition a record goes to if `send` does not say.

    key              murmur2 of the key, the same partition as in the Java client
    no key           sticky (KIP-794): one partition for at least batch.size bytes, then another, preferring those
                     with short queues (adaptive)
    RoundRobin       one after the other
    anything else    a partitioner of the user

Randomness is a parameter, `choose`: a function that returns a number below its argument.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

from ottla.records.builder import Lanes, murmur2

Choose = Callable[[int], int]


class Partitioner(Protocol):
    """Chooses partitions instead of the built-in rule; `partitioner_class` takes one, or a function like its method.

    >>> class Largest(Partitioner):
    ...     def partition(self, topic, key, value, partitions, available):
    ...         return partitions[-1]
    """

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int:
        """Return a partition for this record. `available` are those with a leader at the moment."""


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, the same one as in the Java client.

    >>> partition_for_key(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000
    True
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class RoundRobinPartitioner:
    """One partition after the other, whatever the key: those with a leader, if there are any."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        candidates = available or partitions
        return candidates[turn % len(candidates)]


class StickyPartitioner:
    """Decides when to leave the present partition, and for which one. The state is in `Lanes`, which counts bytes."""

    def __init__(self, batch_size: int, *, adaptive: bool, choose: Choose) -> None:
        self.batch_size = max(batch_size, 1)
        self.adaptive = adaptive
        self._choose = choose

    def partition(self, lanes: Lanes, queued: Callable[[], Sequence[tuple[int, int]]]) -> int:
        """The present partition. `queued` returns the number of waiting batches of each usable partition."""
        opened = lanes.opened(lanes.sticky) if lanes.sticky >= 0 else None
        boundary = opened is None or opened.closed
        enough = (lanes.sticky_bytes >= self.batch_size and boundary) or lanes.sticky_bytes >= 2 * self.batch_size
        if lanes.sticky < 0 or enough:
            self.move_on(lanes, queued())
        return lanes.sticky

    def move_on(self, lanes: Lanes, queued: Sequence[tuple[int, int]]) -> None:
        candidates = queued or [(partition, 0) for partition in range(lanes.partitions)]
        lanes.sticky = self._pick(candidates)
        lanes.sticky_bytes = 0
        lanes.sticky_limit = self.batch_size

    def _pick(self, queued: Sequence[tuple[int, int]]) -> int:
        """Pick a partition, with a higher probability the shorter its queue is."""
        longest = max(length for _, length in queued)
        if not self.adaptive or all(length == longest for _, length in queued):
            return queued[self._choose(len(queued))][0]
        bounds = list(accumulate(longest + 1 - length for _, length in queued))
        return queued[bisect_right(bounds, self._choose(bounds[-1]))][0]
