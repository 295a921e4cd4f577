"""Both kernels give the same results and error messages, for valid and damaged bytes."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import pytest
from batch_material import TWINS, hostile_records, outcome, record_lists, spoil, spoilings
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import BatchHeader, Record, Scan, encode_batch, encode_pairs, read_header

BATCH_OVERHEAD = 61
INT64 = st.one_of(st.integers(-2, 5), st.sampled_from([2**63 - 1, -(2**63), 2**62]), st.integers(-(2**63), 2**63 - 1))

pytestmark = pytest.mark.skipif(len(TWINS) < 2, reason="the compiled twin is not built")


def all_outcomes(kernels: Any, payload: bytes, header: BatchHeader) -> list[Any]:
    return [
        outcome(kernels.decode_records, payload, header, 7),
        outcome(kernels.decode_keys, payload, header, 7),
        outcome(kernels.summarize, payload, header, 7),
        outcome(kernels.find_timestamp, payload, header, 7, 1000, 1),
    ]


def assert_same(payload: bytes, header: BatchHeader) -> None:
    # A copy of its own for each, in memory that ends where the bytes end.
    first, *others = (all_outcomes(twin, bytes(memoryview(payload)), header) for twin in TWINS)
    for other in others:
        assert other == first


@given(record_lists())
def test_good_records_are_encoded_and_decoded_alike(records: list[Record]) -> None:
    base = records[0].offset if records else 0
    timestamp = records[0].timestamp if records else 0
    first, *others = (twin.encode_records(records, base, timestamp) for twin in TWINS)
    assert all(other == first for other in others)
    batch = encode_batch(records, base_offset=base, last_offset=base + 80_000)
    assert_same(batch[BATCH_OVERHEAD:], read_header(batch))


PART = st.one_of(st.none(), st.binary(max_size=200), st.binary(min_size=2000, max_size=2100))


@given(st.lists(st.tuples(PART, PART), max_size=150), st.integers(-(2**63), 2**63 - 1))
def test_pairs_are_encoded_alike_and_as_records_are(
    pairs: list[tuple[bytes | None, bytes | None]], timestamp: int
) -> None:
    first, *others = (twin.encode_pairs(pairs, timestamp) for twin in TWINS)
    assert all(other == first for other in others)
    if pairs:
        records = [Record(number, timestamp, *pair) for number, pair in enumerate(pairs)]
        like = encode_batch(records, producer_id=7, producer_epoch=3, transactional=True)
        assert encode_pairs(pairs, timestamp, 7, 3) == like
        assert encode_pairs(pairs, timestamp) == encode_batch(records)


@pytest.mark.parametrize(
    ("pairs", "timestamp", "problem"),
    [
        ([("text", b"")], 0, "record 0: "),
        ([(b"", b""), (None, bytearray(1))], 0, "record 1: "),
        ([], 2**63, "record 0: timestamp 9223372036854775808 is out of range"),
        ([(b"k",)], 0, "not enough values|need more than 1"),
    ],
)
def test_pairs_that_cannot_be_encoded_are_refused_alike(pairs: Any, timestamp: int, problem: str) -> None:
    for twin in TWINS:
        with pytest.raises((TypeError, ValueError), match=problem):
            twin.encode_pairs(pairs, timestamp)


class Key(NamedTuple):
    group: str
    topic: str
    partition: int


class Value(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: UUID | None


INT32 = st.sampled_from([-1, 0, 2**31 - 1, -(2**31)]) | st.integers(-(2**31), 2**31 - 1)
NAME = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("ü" * 100)
COMMIT = st.tuples(
    st.builds(Key, NAME, NAME, INT32),
    st.builds(
        Value,
        INT64,
        INT32,
        NAME | st.just("n" * 17_000),
        INT64,
        st.just(-1),
        st.none() | st.sampled_from([UUID(int=5)]) | st.uuids(),
    ),
)
OTHER = st.tuples(st.builds(Key, NAME, NAME, INT32), st.none()) | st.just((b"key", b"value"))


@given(st.lists(COMMIT, max_size=80), st.lists(OTHER, max_size=1), INT64)
def test_commits_are_encoded_alike(records: list[Any], others: list[Any], timestamp: int) -> None:
    first, *rest = (twin.encode_commits([*records, *others], timestamp, Key, Value) for twin in TWINS)
    assert all(other == first for other in rest)
    assert (first is None) == bool(others)


FINE_KEY, FINE_VALUE = Key("g", "t", 0), Value(0, 0, "", 0, -1, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (Key("g" * 2**15, "t", 0), FINE_VALUE),
        (Key("g", "ü" * 2**14, 0), FINE_VALUE),
        (Key("g", "t", 2**31), FINE_VALUE),
        (FINE_KEY, FINE_VALUE._replace(offset=2**63)),
        (FINE_KEY, FINE_VALUE._replace(leader_epoch=-(2**31) - 1)),
        (FINE_KEY, FINE_VALUE._replace(commit_timestamp=2**63)),
        (FINE_KEY, FINE_VALUE._replace(metadata="\ud800")),
    ],
)
def test_commits_that_cannot_be_encoded_are_refused_alike(key: Key, value: Value) -> None:
    for twin in TWINS:
        with pytest.raises((OverflowError, UnicodeEncodeError)):
            twin.encode_commits([(FINE_KEY, FINE_VALUE), (key, value)], 0, Key, Value)


def test_a_commit_that_expires_is_of_another_layout() -> None:
    for twin in TWINS:
        assert twin.encode_commits([(FINE_KEY, FINE_VALUE._replace(expire_timestamp=5))], 0, Key, Value) is None


def test_a_batch_of_no_pairs_or_of_an_impossible_producer_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_pairs([], 0)
    with pytest.raises(ValueError, match="does not fit into the batch header"):
        encode_pairs([(b"k", None)], 0, producer_epoch=2**15)


@settings(max_examples=200)
@given(record_lists(min_size=1), st.lists(spoilings, min_size=1, max_size=3), st.integers(-1, 2))
def test_spoiled_records_are_refused_alike(
    records: list[Record], damages: list[tuple[int, str, int]], miscount: int
) -> None:
    batch = encode_batch(records)
    header = read_header(batch)
    payload = batch[BATCH_OVERHEAD:]
    for damage in damages:
        payload = spoil(payload, *damage)
    assert_same(payload, header._replace(record_count=max(0, header.record_count + miscount)))


@settings(max_examples=200)
@given(
    st.lists(hostile_records(), max_size=3),
    st.one_of(st.integers(0, 4), st.sampled_from([2**31 - 1, 10**6])),
    st.sampled_from([0, 3, 2**31 - 1]),
    INT64,
    INT64,
    st.sampled_from([0, 8]),
)
def test_hostile_records_are_refused_alike(
    pieces: list[bytes], count: int, last_delta: int, base_timestamp: int, max_timestamp: int, attributes: int
) -> None:
    header = read_header(encode_batch([], base_offset=2**40, last_offset=2**40))._replace(
        record_count=count,
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
    )
    assert_same(b"".join(pieces), header)


@settings(max_examples=200)
@given(st.binary(max_size=80), st.integers(0, 12))
def test_noise_is_refused_alike(payload: bytes, count: int) -> None:
    header = read_header(encode_batch([], base_offset=0, last_offset=11))._replace(record_count=count)
    assert_same(payload, header)


@settings(max_examples=200)
@given(
    st.lists(record_lists(min_size=1), max_size=3), st.lists(spoilings, max_size=2), st.integers(0, 200), st.booleans()
)
def test_a_scan_finds_the_same(
    batches: list[list[Record]], damages: list[tuple[int, str, int]], start: int, check_crc: bool
) -> None:
    buffer = b"".join(map(encode_batch, batches))
    for damage in damages:
        buffer = spoil(buffer, *damage)
    start = start % (len(buffer) + 1) if start > 100 else 0
    first, *others = (twin.scan(buffer, start, len(buffer), check_crc) for twin in TWINS)
    assert all(other == first for other in others)
    assert_consistent(first, buffer, start)


def assert_consistent(scan: Scan, buffer: bytes, start: int) -> None:
    position = start
    for at, header in scan.batches:
        assert at == position
        assert header == read_header(buffer, at)
        position += header.size
    assert position == scan.end <= len(buffer)
    if scan.problem is None and not scan.incomplete:
        assert scan.end == len(buffer)


BAD_RECORDS = [
    [Record(0, 0, "text", None)],  # type: ignore[arg-type]
    [Record(0, 0, None, bytearray(3))],  # type: ignore[arg-type]
    [Record(0, 0, None, None, (("k", "text"),))],  # type: ignore[arg-type]
    [Record(0, 0, None, None, ((b"k", None),))],  # type: ignore[arg-type]
    [Record(0, 0, None, None), Record(0, 0, None, None)],
    [Record(1, 0, None, None), Record(0, 0, None, None)],
    [Record(0, 0, None, None), Record(2**31, 0, None, None)],
    [Record(2**63, 0, None, None)],
    [Record(-1, 0, None, None)],
    [Record(0, 2**63, None, None)],
    [Record(0, -(2**63) - 1, None, None)],
]


@pytest.mark.parametrize("records", BAD_RECORDS, ids=range(len(BAD_RECORDS)))
@pytest.mark.parametrize("base_timestamp", [0, -1, 1])
def test_records_that_cannot_be_encoded_are_refused_alike(records: list[Record], base_timestamp: int) -> None:
    errors = []
    for twin in TWINS:
        with pytest.raises((ValueError, TypeError)) as caught:
            twin.encode_records(records, 0, base_timestamp)
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(("timestamp", "base"), [(2**63 - 1, -1), (-(2**63), 1), (2**62, -(2**62) - 1)])
def test_a_timestamp_too_far_from_the_base_is_refused_alike(timestamp: int, base: int) -> None:
    for twin in TWINS:
        with pytest.raises(ValueError, match=f"record 0: timestamp {timestamp} is out of range"):
            twin.encode_records([Record(0, timestamp, None, None)], 0, base)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (6, 5), (0, 11)])
def test_a_scan_outside_of_the_buffer_is_refused_alike(start: int, end: int) -> None:
    for twin in TWINS:
        with pytest.raises(ValueError, match=f"the range {start} to {end} is not in a buffer of 10 bytes"):
            twin.scan(bytes(10), start, end, True)


class Commit(NamedTuple):
    key: Key
    value: Value


OFFSET = st.tuples(NAME, INT32, INT64, INT32, st.none() | NAME, st.none() | st.uuids())


@given(NAME, st.lists(OFFSET, max_size=20), INT64, INT64, st.sampled_from([0, 20, 4096]))
def test_records_of_commits_are_made_alike(
    group: str, offsets: list[Any], time: int, expires: int, longest: int
) -> None:
    first, *rest = (twin.make_commits(group, offsets, time, expires, longest, (Key, Value, Commit)) for twin in TWINS)
    assert all(other == first for other in rest)
    assert (first is None) == any(2 * len(offset[4] or "") > longest for offset in offsets)
    for made in (first or []) + [each for other in rest for each in other or []]:
        assert (type(made), type(made.key), type(made.value)) == (Commit, Key, Value)
        assert hash(made) == hash(Commit(Key(*made.key), Value(*made.value)))
