"""Whole batches: round trips with every codec and both kernels, and damaged batches."""

from __future__ import annotations

import pytest
from batch_material import TWINS, outcome, patched, record_lists, spoil, spoilings
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import (
    BATCH_OVERHEAD,
    BatchSummary,
    Compression,
    CorruptBatch,
    Record,
    check_batch,
    codec,
    decode_batch,
    decode_keys,
    encode_batch,
    find_timestamp,
    read_header,
    scan,
    summarize,
)

RECORDS = [
    Record(10, 1000, b"a", b"first", (("trace", b"1"), ("empty", None))),
    Record(12, 1500, None, b"second"),
    Record(15, 1200, b"a", None),
]


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__.rpartition(".")[2], autouse=True)
def _twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "kernels", request.param)


@pytest.mark.parametrize("compression", Compression)
def test_records_come_back(compression: Compression) -> None:
    @given(record_lists(min_size=1))
    @settings(max_examples=40)
    def check(records: list[Record]) -> None:
        batch = encode_batch(records, compression=compression)
        check_batch(batch, 0, read_header(batch))
        assert decode_batch(batch) == records
        assert decode_keys(batch) == [(r.offset, r.timestamp, r.key, r.value is not None) for r in records]

    check()


@pytest.mark.parametrize("compression", Compression)
def test_large_batches_come_back(compression: Compression) -> None:
    records = [Record(i, i, b"%d" % i, b"value %d, " % (i % 50) * (i % 40)) for i in range(5000)]
    batch = encode_batch(records, compression=compression)
    assert decode_batch(b"in front" + batch + b"behind", 8) == records


@settings(max_examples=150)
@given(record_lists(min_size=1), st.sampled_from(Compression), st.lists(spoilings, min_size=1, max_size=2))
def test_a_spoiled_batch_is_corrupt_or_decodes_but_raises_nothing_else(
    records: list[Record], compression: Compression, damages: list[tuple[int, str, int]]
) -> None:
    batch = encode_batch(records, compression=compression)
    for damage in damages:
        batch = spoil(batch, *damage)
    for call in (decode_batch, decode_keys, summarize):
        outcome(call, batch)
    outcome(find_timestamp, batch, 0, 1000)


@settings(max_examples=60)
@given(record_lists(min_size=1), st.integers(21, 10**6), st.integers(0, 7))
def test_every_flipped_bit_behind_the_crc_is_noticed(records: list[Record], spot: int, bit: int) -> None:
    batch = bytearray(encode_batch(records))
    batch[21 + spot % (len(batch) - 21)] ^= 1 << bit
    result = scan(batch, 0, len(batch))
    assert (result.batches, result.end) == ([], 0)
    assert result.problem
    with pytest.raises(CorruptBatch):
        check_batch(batch, 0, read_header(batch))


def test_the_header_tells_of_the_records() -> None:
    header = read_header(
        encode_batch(
            RECORDS,
            base_offset=8,
            last_offset=20,
            compression=Compression.LZ4,
            producer_id=7,
            producer_epoch=2,
            base_sequence=2**31 - 3,
            leader_epoch=4,
            transactional=True,
        )
    )
    assert (header.base_offset, header.last_offset, header.next_offset, header.record_count) == (8, 20, 21, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1500)
    assert (header.producer_id, header.producer_epoch, header.partition_leader_epoch) == (7, 2, 4)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 3, 9)
    assert header.compression is Compression.LZ4
    flags = (header.is_transactional, header.is_control, header.is_log_append_time, header.has_delete_horizon)
    assert flags == (True, False, False, False)


def test_log_append_time_is_the_timestamp_of_all_records() -> None:
    batch = encode_batch(RECORDS, log_append_time=9000)
    assert read_header(batch).is_log_append_time
    assert [record.timestamp for record in decode_batch(batch)] == [9000, 9000, 9000]
    assert summarize(batch) == BatchSummary(9000, 10, 9000, 1, False)


def test_a_delete_horizon_leaves_the_timestamps_alone() -> None:
    batch = encode_batch(RECORDS, delete_horizon=777_000)
    header = read_header(batch)
    assert header.has_delete_horizon
    assert (header.base_timestamp, header.max_timestamp) == (777_000, 1500)
    assert decode_batch(batch) == RECORDS


def test_a_batch_may_be_empty() -> None:
    batch = encode_batch(
        [], base_offset=5, last_offset=9, max_timestamp=77, producer_id=1, compression=Compression.ZSTD
    )
    header = read_header(batch)
    check_batch(batch, 0, header)
    assert len(batch) == BATCH_OVERHEAD
    assert (header.base_offset, header.last_offset, header.record_count) == (5, 9, 0)
    assert (header.max_timestamp, header.compression) == (77, Compression.NONE)
    assert decode_batch(batch) == []
    assert summarize(batch) == BatchSummary(-1, -1, -1, 0, False)


def test_a_summary_needs_no_records() -> None:
    assert summarize(encode_batch(RECORDS)) == BatchSummary(1500, 12, 1000, 1, contiguous=False)
    dense = [Record(3, -1, b"", b""), Record(4, -1, b"", b"")]
    assert summarize(encode_batch(dense)) == BatchSummary(-1, 3, -1, 0, contiguous=True)


@pytest.mark.parametrize(
    ("timestamp", "min_offset", "found"),
    [(0, 0, (10, 1000)), (1001, 0, (12, 1500)), (1100, 13, (15, 1200)), (1501, 0, None), (0, 16, None)],
)
def test_a_record_is_found_by_its_timestamp(timestamp: int, min_offset: int, found: tuple[int, int] | None) -> None:
    batch = encode_batch(RECORDS, compression=Compression.GZIP)
    assert find_timestamp(batch, 0, timestamp, min_offset=min_offset) == found


def test_header_keys_need_not_be_utf8() -> None:
    batch = encode_batch([Record(0, 0, None, None, (("\udcff\udc80é", b""),))])
    assert b"\xff\x80\xc3\xa9" in batch
    assert encode_batch(decode_batch(batch)) == batch


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"records": []}, "requires base_offset and last_offset"),
        ({"records": RECORDS, "base_offset": 11}, "record 0: offset 10 is out of order"),
        ({"records": RECORDS, "last_offset": 14}, "offset 15 is greater than the last offset 14"),
        ({"records": RECORDS[::-1], "last_offset": 15}, "record 1: offset 12 is out of order"),
        ({"records": [], "base_offset": 0, "last_offset": 2**31}, "cannot span the offsets 0 to 2147483648"),
        ({"records": [], "base_offset": -1, "last_offset": 0}, "cannot span the offsets -1 to 0"),
        ({"records": RECORDS, "delete_horizon": 2**63}, "timestamp 9223372036854775808 is out of range"),
        ({"records": RECORDS, "producer_epoch": 2**15}, "does not fit into the batch header"),
        ({"records": RECORDS, "compression": Compression.GZIP, "level": 10}, "gzip level must be from 1 to 9"),
    ],
)
def test_what_cannot_be_a_batch_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_batch(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout", "at", "value", "reason"),
    [
        (">i", 8, 48, "batch length 48 is less than"),
        (">i", 8, 5000, "only 112 are left"),
        (">b", 16, 1, "magic 1 is not supported"),
        (">h", 21, 6, "compression 6 is unknown"),
        (">i", 23, -1, "last offset delta -1 is negative"),
        (">q", 0, -1, "base offset -1 is out of range"),
        (">q", 0, 2**63 - 3, "is out of range"),
        (">i", 57, 7, "record count 7 does not fit"),
        (">i", 57, -1, "record count -1 does not fit"),
        (">i", 57, 4, "record 3 of 4: it ends inside a number"),
        (">i", 57, 2, "bytes follow the last of 2 records"),
        (">i", 23, 4, "record 2 of 3: its offset delta is out of order or greater"),
        (">q", 27, 2**63 - 100, "record 1 of 3: its timestamp is out of range"),
    ],
)
def test_a_lying_header_is_found_out(layout: str, at: int, value: int, reason: str) -> None:
    batch = patched(encode_batch(RECORDS), layout, at, value)
    with pytest.raises(CorruptBatch, match=reason) as caught:
        decode_batch(b"." + batch, 1)
    assert caught.value.position == 1
    assert str(caught.value).startswith("corrupt record batch at position 1: ")


def test_a_huge_record_count_is_refused_before_anything_is_made_of_it() -> None:
    batch = patched(patched(encode_batch(RECORDS), ">i", 23, 2**31 - 2), ">i", 57, 2**31 - 1)
    for call in (decode_batch, decode_keys, summarize):
        with pytest.raises(CorruptBatch, match="bytes cannot hold 2147483647 records"):
            call(batch)


def test_a_batch_that_unpacks_to_too_much_is_corrupt() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(100_000))], compression=Compression.ZSTD)
    with pytest.raises(CorruptBatch, match="more than"):
        decode_batch(batch, max_size=50_000)


def test_a_scan_stops_at_the_first_batch_that_is_not_whole() -> None:
    batch = encode_batch(RECORDS)
    size = len(batch)
    whole = scan(batch * 3, 0, 3 * size)
    assert ([at for at, _ in whole.batches], whole.end) == ([0, size, 2 * size], 3 * size)
    assert (whole.problem, whole.incomplete) == (None, False)
    for there in (1, 11, 12, 16, 17, 60, 61, size - 1):
        cut = scan(batch * 3, 0, size + there)
        assert (len(cut.batches), cut.end, cut.problem, cut.incomplete) == (1, size, None, True)


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        (bytes(12), "batch length 0 is less than"),
        (bytes(1000), "batch length 0 is less than"),
        (bytes(8) + b"\0\0\xff\xff" + bytes(5), "magic 0 is not supported"),
        (bytes(8) + b"\0\0\xff\xff" + bytes(500), "magic 0 is not supported"),
    ],
)
def test_a_scan_says_what_is_wrong_behind_the_valid_batches(tail: bytes, problem: str) -> None:
    batch = encode_batch(RECORDS)
    result = scan(batch + tail, 0, len(batch) + len(tail))
    assert (len(result.batches), result.end, result.incomplete) == (1, len(batch), False)
    assert problem in str(result.problem)


def test_a_scan_can_leave_the_crc_alone() -> None:
    batch = patched(encode_batch(RECORDS), ">I", 17, 1)
    assert "crc is" in str(scan(batch, 0, len(batch)).problem)
    assert scan(batch, 0, len(batch), check_crc=False).end == len(batch)
