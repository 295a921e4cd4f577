"""Which partition a record goes to: the hash of its key, as in the Java client, else one that is kept for a
while.

Pure: the choice of a random partition is made by the caller's `choose`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit hash of a key, unsigned.

    >>> murmur2(b"21") == -973932308 & 0xFFFFFFFF
    True
    """
    whole = len(data) & ~3
    value = _SEED ^ len(data)
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if tail := data[whole:]:
        value = (value ^ int.from_bytes(tail, "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key among so many, the same one as the Java client's.

    >>> partition_for_key(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000
    True
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Keys by their hash; records without one stay on a partition for so many bytes, which fills batches."""

    def __init__(self, partitions: int, *, sticky_bytes: int, choose: Callable[[Sequence[int]], int]) -> None:
        self.partitions = partitions
        self._sticky_bytes = sticky_bytes
        self._choose = choose
        self._current = choose(range(partitions))
        self._bytes = 0

    def partition(self, key: bytes | None, size: int) -> int:
        """The partition of the next record, which has this size."""
        if key is not None:
            return partition_for_key(key, self.partitions)
        if self._bytes >= self._sticky_bytes and self.partitions > 1:
            others = [other for other in range(self.partitions) if other != self._current]
            self._current, self._bytes = self._choose(others), 0
        self._bytes += size
        return self._current
