"""Partitions of records: the hash of the Java client, sticky with adaptive choice, round robin."""

from __future__ import annotations

from collections import Counter

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from ottla.producing.partitioning import RoundRobinPartitioner, StickyPartitioner, partition_for_key
from ottla.records import _builder_pure
from ottla.records.builder import BatchBuilder, Lanes, murmur2


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, hashed: int) -> None:
    """The values of Kafka's own UtilsTest."""
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert partition_for_key(key, 1_000) == (hashed & 0x7FFFFFFF) % 1_000


@given(st.binary(max_size=40))
def test_both_twins_and_aiokafka_agree(key: bytes) -> None:
    assert murmur2(key) == _builder_pure.murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF


def batch() -> BatchBuilder:
    return BatchBuilder(bytearray(200))


def sticky(batch_size: int = 100, *, adaptive: bool = True, choose: object = None) -> StickyPartitioner:
    return StickyPartitioner(batch_size, adaptive=adaptive, choose=choose or (lambda total: 0))  # type: ignore[arg-type]


def test_records_stick_to_a_partition_until_a_batch_of_bytes_is_full() -> None:
    lanes = Lanes("t", 3)
    choices = iter([2, 0, 1])
    partitioner = sticky(choose=lambda total: next(choices))
    assert partitioner.partition(lanes, list) == 2
    lanes.open(2, batch())
    lanes.sticky_bytes = 99
    assert partitioner.partition(lanes, list) == 2
    lanes.sticky_bytes = 120
    assert partitioner.partition(lanes, list) == 2  # the batch is still open: it is filled first
    opened = lanes.opened(2)
    assert opened is not None
    opened.close()
    assert partitioner.partition(lanes, list) == 0
    assert lanes.sticky_bytes == 0


def test_twice_the_batch_size_is_never_exceeded() -> None:
    lanes = Lanes("t", 3)
    choices = iter([1, 2])
    partitioner = sticky(choose=lambda total: next(choices))
    partitioner.partition(lanes, list)
    lanes.open(1, batch())
    lanes.sticky_bytes = 200
    assert partitioner.partition(lanes, list) == 2


def test_short_queues_are_likelier() -> None:
    """KIP-794: the probability of a partition decreases with the length of its queue."""
    numbers = iter(range(4))
    partitioner = sticky(choose=lambda total: next(numbers) if total == 4 else pytest.fail(f"out of {total}"))
    seen = Counter()
    for _ in range(4):
        lanes = Lanes("t", 3)
        partitioner.move_on(lanes, [(0, 2), (1, 2), (2, 1)])
        seen[lanes.sticky] += 1
    assert seen == {0: 1, 1: 1, 2: 2}


def test_without_adaptive_choice_all_are_equal() -> None:
    partitioner = sticky(adaptive=False, choose=lambda total: total - 1)
    lanes = Lanes("t", 3)
    partitioner.move_on(lanes, [(0, 0), (1, 9)])
    assert lanes.sticky == 1


def test_partitions_without_a_leader_are_left_out_unless_none_has_one() -> None:
    partitioner = sticky(choose=lambda total: total - 1)
    lanes = Lanes("t", 3)
    partitioner.move_on(lanes, [(0, 0), (1, 0)])
    assert lanes.sticky == 1
    partitioner.move_on(lanes, [])
    assert lanes.sticky == 2


def test_round_robin_takes_its_turns_for_each_topic() -> None:
    partitioner = RoundRobinPartitioner()
    turns = [partitioner.partition("a", None, None, range(3), range(3)) for _ in range(4)]
    assert turns == [0, 1, 2, 0]
    assert partitioner.partition("b", b"key", None, range(3), range(3)) == 0
    assert partitioner.partition("a", None, None, range(3), [2]) == 2
    assert partitioner.partition("a", None, None, range(3), []) == 2
