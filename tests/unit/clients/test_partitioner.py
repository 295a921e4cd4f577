"""Keys go where the Java client sends them."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.partitioner import StickyPartitioner, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"", 275646681),
        (b"21", -973932308),
        (b"abc", 479470107),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
    ],
)
def test_the_hash_is_the_java_clients(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


@given(st.binary(max_size=70))
def test_the_hash_is_aiokafkas(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF


@given(st.binary(), st.integers(1, 10_000))
def test_a_partition_of_a_key_exists_and_stays(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions
    assert partition_for_key(key, partitions) == partition_for_key(key, partitions)


def test_records_without_a_key_stay_on_a_partition_for_some_bytes() -> None:
    partitioner = StickyPartitioner(3, sticky_bytes=100, choose=lambda options: options[0])
    seen = [partitioner.partition(None, 40) for _ in range(12)]
    assert seen == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]


def test_keys_do_not_move_the_records_without_one() -> None:
    partitioner = StickyPartitioner(3, sticky_bytes=100, choose=lambda options: options[0])
    for number in range(100):
        assert partitioner.partition(b"%d" % number, 500) == partition_for_key(b"%d" % number, 3)
    assert partitioner.partition(None, 1) == 0


def test_one_partition_is_enough() -> None:
    partitioner = StickyPartitioner(1, sticky_bytes=1, choose=lambda options: options[0])
    assert {partitioner.partition(None, 10) for _ in range(5)} == {0}
    assert partitioner.partition(b"key", 1) == 0
