"""The header of a batch: read, check, and set fields in place."""

from __future__ import annotations

import pytest
from batch_material import patched

from ottla.records import (
    CorruptBatch,
    Record,
    check_batch,
    decode_batch,
    encode_batch,
    read_header,
    stamp,
    stamp_log_append_time,
)

RECORDS = [Record(0, 1000, b"k", b"v"), Record(1, 2000, None, b"w")]


@pytest.mark.parametrize(("size", "position"), [(0, 0), (60, 0), (100, 40), (10, 20), (100, -1)])
def test_a_short_buffer_has_no_header(size: int, position: int) -> None:
    with pytest.raises(CorruptBatch, match="a batch header needs 61 bytes") as caught:
        read_header(bytes(size), position)
    assert caught.value.position == position


def test_stamping_keeps_the_crc_valid() -> None:
    batch = bytearray(b"..." + encode_batch(RECORDS))
    stamp(memoryview(batch), 3, base_offset=500, leader_epoch=12)
    header = read_header(batch, 3)
    check_batch(batch, 3, header)
    assert (header.base_offset, header.partition_leader_epoch) == (500, 12)
    assert [record.offset for record in decode_batch(batch, 3)] == [500, 501]


def test_stamping_the_log_append_time_renews_the_crc() -> None:
    batch = bytearray(b"..." + encode_batch(RECORDS))
    stamp_log_append_time(batch, 3, 123_456)
    header = read_header(batch, 3)
    check_batch(batch, 3, header)
    assert header.is_log_append_time
    assert [record.timestamp for record in decode_batch(batch, 3)] == [123_456, 123_456]


@pytest.mark.parametrize(
    ("length", "reason"), [(48, "batch length 48"), (10**6, "only 79 are left"), (-1, "length -1")]
)
def test_only_whole_batches_are_stamped_with_a_time(length: int, reason: str) -> None:
    batch = bytearray(patched(encode_batch(RECORDS), ">i", 8, length))
    before = bytes(batch)
    with pytest.raises(CorruptBatch, match=reason):
        stamp_log_append_time(batch, 0, 1)
    assert batch == before


@pytest.mark.parametrize(
    ("layout", "at", "value", "reason"),
    [
        (">i", 8, 48, "batch length 48 is less than the 49 of an empty batch"),
        (">i", 8, 1000, "the batch has 1012 bytes, only 79 are left"),
        (">b", 16, 0, "magic 0 is not supported, only 2 is"),
        (">i", 57, 3, "record count 3 does not fit last offset delta 1"),
        (">I", 17, 0xABCD, "the header says 0x0000abcd"),
    ],
)
def test_a_damaged_batch_fails_the_check(layout: str, at: int, value: int, reason: str) -> None:
    batch = patched(encode_batch(RECORDS), layout, at, value)
    with pytest.raises(CorruptBatch, match=reason):
        check_batch(batch, 0, read_header(batch))


@pytest.mark.parametrize(
    ("base_sequence", "count", "last_sequence"),
    [(-1, 5, -1), (0, 1, 0), (2**31 - 1, 1, 2**31 - 1), (2**31 - 1, 2, 0), (2**31 - 2, 5, 2)],
)
def test_sequences_go_on_at_zero(base_sequence: int, count: int, last_sequence: int) -> None:
    batch = encode_batch([Record(i, 0, None, None) for i in range(count)], base_sequence=base_sequence)
    assert read_header(batch).last_sequence == last_sequence


def test_an_unknown_codec_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        _ = read_header(patched(encode_batch(RECORDS), ">h", 21, 7)).compression
