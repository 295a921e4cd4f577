"""Appends: accepted and rejected batches, errors, and the fields that the broker sets."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import errors
from ottla.records import Compression, Record, decode_batch, encode_batch, read_header, stamp_log_append_time
from ottla.records.header import crc_of
from unit.storage.log_material import (
    T0,
    Store,
    offsets_of,
    read_records,
    read_slice,
    record_batch,
    segment_bases,
    topic_config,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.crash()


def use(store: Store, **settings: object) -> None:
    store.log.config = topic_config(**settings)


def refused(store: Store, error: type[errors.KafkaError], records: memoryview, match: str) -> None:
    """Check that an append raises the error and writes nothing."""
    size, end = store.log.size, store.log.log_end_offset
    with pytest.raises(error, match=match):
        store.append(records)
    assert (store.log.size, store.log.log_end_offset) == (size, end)


def test_a_batch_in_read_only_memory_is_accepted(store: Store) -> None:
    store.append(memoryview(bytes(record_batch([b"a"]))))
    assert [record.value for record in read_records(store.log)] == [b"a"]


def test_the_broker_itself_may_append_several_batches(store: Store) -> None:
    two = memoryview(bytearray(bytes(record_batch([b"a", b"b"])) + bytes(record_batch([b"c"]))))
    info = store.append_own(two)
    assert (info.base_offset, info.last_offset) == (0, 2)
    assert offsets_of(read_records(store.log)) == [0, 1, 2]


def test_a_batch_larger_than_a_segment_is_refused(store: Store) -> None:
    use(store, segment_bytes=500)
    refused(store, errors.RecordListTooLarge, record_batch([b"x" * 1000]), "segment.bytes")


def test_a_batch_without_the_bytes_of_its_records_is_refused(store: Store) -> None:
    empty = bytearray(encode_batch([], base_offset=0, last_offset=2))
    empty[57:61] = (3).to_bytes(4, "big")  # the number of records
    empty[17:21] = crc_of(empty, 0, len(empty)).to_bytes(4, "big")
    refused(store, errors.InvalidRecord, memoryview(empty), "claims 3 records, which do not fit into its 61 bytes")


def test_the_smallest_records_are_taken(store: Store) -> None:
    store.append(memoryview(bytearray(encode_batch([Record(number, T0, None, None) for number in range(3)]))))
    assert store.log.log_end_offset == 3


def test_a_producer_without_sequence_is_refused(store: Store) -> None:
    refused(store, errors.InvalidRecord, record_batch(producer_id=5, sequence=-1), "no sequence number")
    refused(store, errors.InvalidRecord, record_batch(producer_id=5, epoch=-1, sequence=0), "no epoch")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_compression_is_refused(store: Store, codec: int) -> None:
    records = bytearray(record_batch([b"a"]))
    records[22] |= codec
    stamp_log_append_time(records, 0, T0)  # renews the CRC
    refused(store, errors.InvalidRecord, memoryview(records), f"compression {codec}")


def test_timestamps_too_far_ahead_are_refused(store: Store) -> None:
    use(store, message_timestamp_after_max_ms=1000)
    refused(store, errors.InvalidTimestamp, record_batch(timestamp=T0 + 1001), "after")
    assert store.append(timestamp=T0 + 1000).base_offset == 0


def test_timestamps_too_far_back_are_refused_for_every_record(store: Store) -> None:
    use(store, message_timestamp_before_max_ms=1000)
    late = record_batch([b"a", b"b"], timestamps=[T0, T0 - 1001])
    refused(store, errors.InvalidTimestamp, late, "before")
    assert store.append(values=[b"a", b"b"], timestamps=[T0, T0 - 1000]).base_offset == 0


def test_records_without_timestamp_are_accepted(store: Store) -> None:
    use(store, message_timestamp_before_max_ms=1000)
    assert store.append(timestamp=-1).base_offset == 0


def test_log_append_time_is_the_time_of_the_broker(store: Store) -> None:
    use(store, message_timestamp_type="LogAppendTime")
    store.clock.advance(5000)
    info = store.append(values=[b"a", b"b"], timestamps=[1, T0 * 2])
    assert info.log_append_time == T0 + 5000
    data = read_slice(store.log, 0).read()
    assert read_header(data).is_log_append_time
    assert [record.timestamp for record in decode_batch(data)] == [T0 + 5000] * 2
    assert store.log.offset_for_timestamp(T0 + 5000, end_offset=2) is not None


def test_with_create_time_no_append_time_is_told(store: Store) -> None:
    assert store.append().log_append_time == -1


def test_a_client_must_not_set_log_append_time_itself(store: Store) -> None:
    records = bytearray(record_batch([b"a"]))
    stamp_log_append_time(records, 0, T0)
    refused(store, errors.InvalidTimestamp, memoryview(records), "LogAppendTime")


def test_damaged_records_under_a_right_crc_are_refused_where_they_must_be_unpacked(store: Store) -> None:
    use(store, cleanup_policy="compact")
    records = bytearray(record_batch([b"a" * 50], keys=[b"k"]))
    records[61] = 0x7E
    stamp_log_append_time(records, 0, T0)
    records[22] &= ~0x08
    header = read_header(records)
    from ottla.records.header import crc_of

    records[17:21] = crc_of(records, 0, header.size).to_bytes(4, "big")
    refused(store, errors.InvalidRecord, memoryview(records), "cannot read the records")


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("uncompressed", Compression.NONE),
        ("gzip", Compression.GZIP),
        ("snappy", Compression.SNAPPY),
        ("lz4", Compression.LZ4),
        ("zstd", Compression.ZSTD),
    ],
)
def test_the_compression_of_the_topic_is_applied(store: Store, name: str, codec: Compression) -> None:
    use(store, compression_type=name)
    sent = Compression.LZ4 if codec is not Compression.LZ4 else Compression.GZIP
    values = [b"a" * 500, None, b"c" * 500]
    info = store.append(values=values, compression=sent, producer_id=4, sequence=9)
    assert (info.base_offset, info.last_offset) == (0, 2)
    data = read_slice(store.log, 0).read()
    header = read_header(data)
    assert header.compression is codec
    assert (header.producer_id, header.base_sequence, header.record_count) == (4, 9, 3)
    assert [record.value for record in decode_batch(data)] == values


def test_a_batch_in_the_right_compression_is_left_alone(store: Store) -> None:
    use(store, compression_type="zstd")
    sent = record_batch([b"a" * 500], compression=Compression.ZSTD)
    before = bytes(sent)[16:]
    store.append(sent)
    assert read_slice(store.log, 0).read()[16:] == before


def test_recompression_may_make_a_batch_too_large(store: Store) -> None:
    records = record_batch([b"a" * 5000], compression=Compression.ZSTD)
    use(store, compression_type="uncompressed", max_message_bytes=1000)
    refused(store, errors.MessageTooLarge, records, "max.message.bytes")


def test_a_segment_is_rolled_before_it_passes_its_size(store: Store) -> None:
    use(store, segment_bytes=1000)
    store.fill(20)
    assert all(segment.size <= 1000 for segment in store.log.segments)
    assert len(store.log.segments) == 4
    assert offsets_of(read_records(store.log)) == list(range(20))


def test_a_segment_is_rolled_when_timestamps_say_that_it_is_old(store: Store) -> None:
    use(store, segment_ms=1000)
    store.append(timestamp=T0)
    store.append(timestamp=T0 + 1000)
    store.append(timestamp=T0 + 1001)
    assert segment_bases(store.log) == [0, 2]


def test_a_segment_without_timestamps_is_rolled_by_the_clock(store: Store) -> None:
    use(store, segment_ms=1000)
    store.append(timestamp=-1)
    store.clock.advance(1001)
    store.append(timestamp=-1)
    assert segment_bases(store.log) == [0, 1]


def test_a_segment_is_rolled_when_an_index_is_full(store: Store) -> None:
    use(store, segment_index_bytes=24, index_interval_bytes=0)
    store.fill(20)
    assert len(store.log.segments) > 2
    assert all(segment.offset_index.size <= 24 for segment in store.log.segments)
    assert offsets_of(read_records(store.log)) == list(range(20))


def test_flush_messages_asks_for_a_flush_and_a_flush_resets_it(store: Store) -> None:
    use(store, flush_messages=3)
    assert not store.log.must_flush(store.append(values=[b"a", b"b"]).last_offset + 1)
    assert store.log.must_flush(store.append(values=[b"c"]).last_offset + 1)
    store.log.flush()
    assert store.log.recovery_point == 3
    assert not store.log.must_flush(store.append().last_offset + 1)
    assert store.log.flushes_on_append


def test_flush_ms_of_zero_asks_for_a_flush_every_time(store: Store) -> None:
    assert not store.log.flushes_on_append
    use(store, flush_ms=0)
    assert store.log.must_flush(store.append().last_offset + 1)
    assert store.log.flushes_on_append


def test_a_full_disk_leaves_the_log_as_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.fill(3)
    size = store.log.size
    real = os.pwrite

    def full(fd: int, data: memoryview, position: int) -> int:
        if position >= size + 50:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:50], position)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(errors.KafkaStorageError, match="No space left"):
        store.append(values=[b"x" * 1000])
    monkeypatch.undo()
    assert store.log.size == size
    assert os.path.getsize(store.log.segments.active.path) == size
    assert store.append().base_offset == 3
    assert offsets_of(read_records(store.reopen(clean=False))) == [0, 1, 2, 3]


def test_a_full_disk_at_a_roll_is_an_error_and_not_a_broken_log(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    use(store, segment_bytes=300)
    store.fill(1)
    real = os.open

    def full(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(errors.KafkaStorageError, match="No space left"):
        store.fill(1, size=200)
    monkeypatch.undo()
    assert store.log.log_end_offset == 1
    store.fill(1, size=200)
    assert segment_bases(store.log) == [0, 1]


def test_the_largest_offset_that_fits_a_segment_is_31_bits_above_its_base(store: Store) -> None:
    store.append()
    store.log.log_end_offset = 2**31 - 1
    store.append()
    store.append()
    assert segment_bases(store.log) == [0, 2**31]


def test_leader_epochs_are_noted_where_they_begin(store: Store) -> None:
    store.append(leader_epoch=2)
    store.append(leader_epoch=2)
    store.append(leader_epoch=5)
    log = store.log
    assert log.latest_epoch == 5
    assert [log.epochs.epoch_of(offset) for offset in (0, 1, 2)] == [2, 2, 5]
    assert log.end_offset_for_epoch(2) == (2, 2)
    assert log.end_offset_for_epoch(3) == (2, 2)
    assert log.end_offset_for_epoch(5) == (5, 3)
    assert log.end_offset_for_epoch(6) == (-1, -1)
    assert log.end_offset_for_epoch(1) == (1, 0)
    assert (store.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n2 0\n5 2\n"
