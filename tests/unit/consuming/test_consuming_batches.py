"""Which batches are read: no control batches, no aborted transactions with read_committed, an error for damage."""

from __future__ import annotations

from tests.unit.consuming.consuming_values import batch, marker, transactional

from ottla.consuming.batches import Aborted, readable
from ottla.records import BatchHeader


def offsets(batches: list[tuple[int, BatchHeader]]) -> list[int]:
    return [header.base_offset for _, header in batches]


def test_control_batches_are_passed_over_but_move_the_position() -> None:
    data = batch(0, b"a", b"b") + marker(2, 7, commit=True)
    found = readable(data, None, check_crcs=True)
    assert offsets(found.batches) == [0]
    assert found.next_offset == 3


def test_aborted_transactions_are_left_out_until_their_markers() -> None:
    data = b"".join(
        [
            transactional(0, 7, b"aborted"),
            transactional(1, 8, b"committed"),
            batch(2, b"plain"),
            marker(3, 7, commit=False),
            transactional(4, 7, b"the next of the same producer"),
            marker(5, 8, commit=True),
            marker(6, 7, commit=True),
        ]
    )
    found = readable(data, [Aborted(7, 0)], check_crcs=True)
    assert offsets(found.batches) == [1, 2, 4]
    assert found.next_offset == 7
    assert offsets(readable(data, [], check_crcs=True).batches) == [0, 1, 2, 4]
    assert offsets(readable(data, None, check_crcs=True).batches) == [0, 1, 2, 4]


def test_a_transaction_that_is_aborted_twice_and_one_that_begins_later() -> None:
    data = b"".join(
        [
            transactional(10, 7, b"x", b"y"),
            marker(12, 7, commit=False),
            transactional(13, 7, b"kept"),
            marker(14, 7, commit=True),
            transactional(15, 7, b"z"),
            marker(16, 7, commit=False),
        ]
    )
    found = readable(data, [Aborted(7, 15), Aborted(7, 10)], check_crcs=True)
    assert offsets(found.batches) == [13]


def test_a_cut_off_batch_waits_for_the_next_fetch() -> None:
    data = batch(0, b"a") + batch(1, b"b")[:-1]
    found = readable(data, None, check_crcs=True)
    assert (offsets(found.batches), found.next_offset, found.problem) == ([0], 1, None)
    alone = readable(batch(0, b"a")[:-1], None, check_crcs=True)
    assert alone.next_offset is None
    assert alone.problem is not None
    assert "cut off" in alone.problem


def test_damage_is_reported_when_it_comes_first() -> None:
    bad = bytearray(batch(1, b"b"))
    bad[-1] ^= 1
    assert readable(batch(0, b"a") + bytes(bad), None, check_crcs=True).next_offset == 1
    found = readable(bytes(bad), None, check_crcs=True)
    assert found.problem is not None
    assert "crc" in found.problem
    assert readable(bytes(bad), None, check_crcs=False).next_offset == 2
    assert readable(b"", None, check_crcs=True) == ([], None, None, None)
