"""Offsets of a query: their JSON in checkpoints, the size of the next batch, and its division into tasks. No I/O.

In a checkpoint, an offset is ``{"orders": {"0": 23, "1": 50}}``, as in Spark's Kafka source: the next offset of each
partition.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ottla.spark.options import Offsets
from ottla.types import TopicPartition

Json = dict[str, dict[str, int]]


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """Sorted, because Spark compares offsets as text.

    >>> to_json({TopicPartition("b", 10): 1, TopicPartition("b", 9): 2})
    {'b': {'9': 2, '10': 1}}
    """
    found: Json = {}
    for key in sorted(offsets):
        found.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
    return found


def from_json(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in found.items()
        for partition, offset in partitions.items()
    }


def parse_offsets(value: Any) -> Offsets | None:
    """The offsets of topics in JSON, as text or decoded; None for offsets of other sources.

    >>> parse_offsets('{"b": {"9": 2}}'), parse_offsets({"logOffset": 3}), parse_offsets("-")
    ({TopicPartition(topic='b', partition=9): 2}, None, None)
    """
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(partitions, dict) for partitions in found.values()):
        return None
    pairs = [pair for partitions in found.values() for pair in partitions.items()]
    return from_json(found) if all(name.isdecimal() and type(offset) is int for name, offset in pairs) else None


@dataclass(frozen=True, slots=True)
class Range:
    """A range of offsets of one partition; `end` is exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start


def first_of(key: TopicPartition, start: Mapping[TopicPartition, int], end: int) -> int:
    """The start of a range: the first record for a new partition, or if offsets went back.

    Offsets go back when a topic is deleted and created again. The result must depend only on the offsets, because Spark
    plans a batch again after a failure.
    """
    begin = start.get(key, 0)
    return begin if begin <= end else 0


def ranges_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
    """The non-empty ranges between two offsets of a query."""
    found = [
        Range(key.topic, key.partition, first_of(key, start, end[key]), end[key])
        for key in sorted(end)
        if start.get(key, 0) != end[key]
    ]
    return [one for one in found if one.size > 0]


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """An end at most `limit` records away, shared by the partitions in proportion to their records.

    >>> a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> limited({a: 0, b: 0}, {a: 30, b: 10}, 8) == {a: 6, b: 2}
    True
    """
    ranges = {one.key: one for one in ranges_between(start, end)}
    total = sum(one.size for one in ranges.values())
    if total <= limit:
        return dict(end)
    shares = {key: limit * one.size // total for key, one in ranges.items()}
    left = limit - sum(shares.values())
    for key in sorted(ranges, key=lambda key: (-(limit * ranges[key].size % total), key))[:left]:
        shares[key] += 1
    found = dict(end)
    for key, one in ranges.items():
        if shares[key]:
            found[key] = one.start + shares[key]
        elif key in start:
            found[key] = start[key]
        else:
            del found[key]
    return found


def count_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    return sum(one.size for one in ranges_between(start, end))


def is_small(ranges: Sequence[Range], records: int) -> bool:
    """Whether ranges have at most this many records together.

    >>> is_small([Range("t", 0, 0, 3), Range("t", 1, 5, 7)], 5)
    True
    """
    return sum(one.size for one in ranges) <= records


def split(ranges: Sequence[Range], *, min_partitions: int | None, max_records: int | None) -> list[Range]:
    """Split ranges: none larger than `max_records`, and at least `min_partitions` of them.

    >>> [(one.start, one.end) for one in split([Range("t", 0, 0, 10)], min_partitions=3, max_records=None)]
    [(0, 3), (3, 6), (6, 10)]
    """
    pieces = list(ranges)
    if max_records is not None:
        pieces = [cut for one in pieces for cut in _cut(one, -(-one.size // max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    counts = _shares([one.size for one in pieces], min_partitions)
    return [cut for one, count in zip(pieces, counts, strict=True) for cut in _cut(one, count)]


def grouped(ranges: Sequence[Range], count: int) -> list[list[Range]]:
    """Distribute ranges over at most `count` groups of about the same size.

    >>> ranges = [Range("t", 0, 0, 3), Range("t", 1, 0, 9), Range("t", 2, 0, 5)]
    >>> [[one.partition for one in group] for group in grouped(ranges, 2)]
    [[1], [2, 0]]
    """
    if count >= len(ranges):
        return [[one] for one in ranges]
    groups: list[list[Range]] = [[] for _ in range(count)]
    sizes = [(0, number) for number in range(count)]
    for one in sorted(ranges, key=lambda one: -one.size):
        size, number = sizes[0]
        groups[number].append(one)
        heapq.heapreplace(sizes, (size + one.size, number))
    return groups


def _shares(sizes: Sequence[int], wanted: int) -> list[int]:
    """The number of pieces of each range; the largest pieces are split first."""
    counts = [1] * len(sizes)
    for _ in range(wanted - len(sizes)):
        largest = max(range(len(sizes)), key=lambda index: sizes[index] / counts[index], default=None)
        if largest is None or sizes[largest] <= counts[largest]:
            break
        counts[largest] += 1
    return counts


def _cut(one: Range, count: int) -> Iterable[Range]:
    edges = [one.start + one.size * index // count for index in range(count + 1)]
    for start, end in pairwise(edges):
        if start < end:
            yield Range(one.topic, one.partition, start, end)
