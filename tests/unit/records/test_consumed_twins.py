"""Both kernels give the same ConsumerRecords and errors, for valid and damaged bytes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from batch_material import outcome, record_lists, spoil, spoilings
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import BatchHeader, Record, encode_batch, read_header
from ottla.records import _consuming_pure as pure
from ottla.records.consumed import ConsumerRecord, unpacked

compiled = pytest.importorskip("ottla.records._speedups")
BATCH_OVERHEAD = 61
FIELDS = [
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
    "serialized_key_size",
    "serialized_value_size",
]


def decoded(twin: Any, payload: bytes, header: BatchHeader, start: int) -> Any:
    found = outcome(twin.decode_consumed, payload, header, 7, "t", 3, start)
    if not isinstance(found[-1], list):
        return found
    return [[getattr(record, name) for name in FIELDS] for record in found[-1]]


def assert_same(payload: bytes, header: BatchHeader, start: int) -> Any:
    first = decoded(pure, bytes(memoryview(payload)), header, start)
    assert decoded(compiled, bytes(memoryview(payload)), header, start) == first
    return first


@given(record_lists(min_size=1), st.integers(0, 5), st.sampled_from([None, 12345]))
def test_good_records_are_decoded_alike(records: list[Record], skip: int, append_time: int | None) -> None:
    batch = encode_batch(records, leader_epoch=skip - 1, log_append_time=append_time)
    start = records[0].offset + skip
    found = assert_same(batch[BATCH_OVERHEAD:], read_header(batch), start)
    assert [one[2] for one in found] == [record.offset for record in records if record.offset >= start]
    assert all(one[4] == (append_time is not None) for one in found)
    assert all(one[8] == (None if skip == 0 else skip - 1) for one in found)


@settings(max_examples=200)
@given(record_lists(min_size=1), st.lists(spoilings, min_size=1, max_size=3))
def test_spoiled_records_are_refused_alike(records: list[Record], damages: list[tuple[int, str, int]]) -> None:
    batch = encode_batch(records)
    payload = batch[BATCH_OVERHEAD:]
    for damage in damages:
        payload = spoil(payload, *damage)
    assert_same(payload, read_header(batch), 0)


@pytest.mark.parametrize("kind", [pure.ConsumerRecord, compiled.ConsumerRecord])
def test_a_record_is_a_plain_value(kind: Any) -> None:
    record = kind("t", 1, 2, 3, 0, b"k", b"v", (("h", b"x"),), 4, 1, 1)
    assert record == pickle.loads(pickle.dumps(record))
    assert record != kind("t", 1, 3)
    assert record != "a record"
    assert hash(record) == hash(kind("t", 1, 2))
    assert repr(record).startswith("ConsumerRecord(topic='t', partition=1, offset=2, timestamp=3, key=b'k', value=b'v'")
    record.value = {"any": "thing"}
    assert record.value == {"any": "thing"}
    assert kind("t", 0, 0).leader_epoch is None


def test_unpacked_gives_the_records_of_compressed_batches() -> None:
    from ottla.records import Compression, CorruptBatch

    records = [Record(0, 0, None, b"x" * 100)]
    for codec in Compression:
        batch = encode_batch(records, compression=codec)
        payload = unpacked(batch, 0, read_header(batch))
        assert compiled.decode_consumed(payload, read_header(batch), 0, "t", 0, 0)[0].value == b"x" * 100
    broken = batch[:-4] + b"\0\0\0\0"
    with pytest.raises(CorruptBatch):
        unpacked(broken[: BATCH_OVERHEAD + 4], 0, read_header(broken))
    assert ConsumerRecord("t", 0, 0).headers == ()
