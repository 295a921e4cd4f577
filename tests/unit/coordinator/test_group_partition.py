"""The partition of the offsets topic that coordinates a group."""

from __future__ import annotations

import pytest

from ottla.coordinator.coordinator import partition_for


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("group-1", 49),
        ("orders", 31),
        ("", 0),
        ("polygenelubricants", 0),  # Its hash is the smallest integer, whose absolute value overflows.
        ("zażółć", 39),
        ("𝄞", 44),  # Two UTF-16 units.
    ],
)
def test_the_partition_follows_from_javas_string_hash(group_id: str, partition: int) -> None:
    assert partition_for(group_id, 50) == partition


def test_every_partition_count_is_respected() -> None:
    assert {partition_for(f"group-{n}", 3) for n in range(100)} == {0, 1, 2}
