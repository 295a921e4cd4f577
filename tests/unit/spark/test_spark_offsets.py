"""Offsets of a query: limits, splitting, and ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.offsets import Range, count_between, from_json, is_small, limited, ranges_between, split, to_json
from ottla.types import TopicPartition

KEYS = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(3)]
offsets = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 1000))
few = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 30))


@given(offsets)
def test_json_goes_both_ways_and_is_in_order(found: dict[TopicPartition, int]) -> None:
    text = to_json(found)
    assert from_json(text) == found
    assert list(from_json(text)) == sorted(found)


@settings(deadline=None)
@given(few, few, st.integers(1, 50))
def test_a_limit_takes_exactly_so_many_and_repeats_lead_to_the_end(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int], limit: int
) -> None:
    end = {**start, **end}
    total = count_between(start, end)
    now, read = start, 0
    for _ in range(total // limit + 2):
        after = limited(now, end, limit)
        step = count_between(now, after)
        assert step == min(limit, total - read)
        assert count_between(after, end) == total - read - step
        now, read = after, read + step
    assert now == end
    assert read == total


def test_new_partitions_and_those_that_went_back_are_read_from_their_first_record() -> None:
    a0, a1, a2 = KEYS[:3]
    found = ranges_between({a0: 5, a1: 9}, {a0: 7, a1: 3, a2: 4})
    assert [(one.partition, one.start, one.end) for one in found] == [(0, 5, 7), (1, 0, 3), (2, 0, 4)]


@settings(deadline=None)
@given(st.lists(st.integers(1, 1000), max_size=6), st.integers(1, 40), st.none() | st.integers(1, 400))
def test_pieces_are_the_same_offsets(sizes: list[int], min_partitions: int, max_records: int | None) -> None:
    ranges = [Range("t", number, 10, 10 + size) for number, size in enumerate(sizes)]
    pieces = split(ranges, min_partitions=min_partitions, max_records=max_records)
    assert len(pieces) >= min(min_partitions, sum(sizes))
    assert all(0 < one.size <= (max_records or 1000) for one in pieces)
    for one in ranges:
        mine = [piece for piece in pieces if piece.partition == one.partition]
        assert [mine[0].start, mine[-1].end] == [one.start, one.end]
        assert all(left.end == right.start for left, right in pairwise(mine))


def test_a_few_records_of_several_partitions_are_small() -> None:
    ranges = [Range("t", 0, 10, 13), Range("t", 1, 0, 2)]
    assert is_small(ranges, 5)
    assert not is_small(ranges, 4)
    assert is_small(ranges[:1], 5)
