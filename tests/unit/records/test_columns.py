"""Records as columns: the same records as decode_batch, and the same columns and errors from both kernels."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from batch_material import hostile_records, record_lists, spoil, spoilings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.producing.partitioning import partition_for_key
from ottla.records import (
    Compression,
    CorruptBatch,
    Record,
    _columns_pure,
    decode_batch,
    encode_batch,
    read_header,
    scan,
)
from ottla.records._columns_pure import ColumnSink, ColumnSource
from ottla.records.columns import BatchReader, BytesColumn, Columns, HeadersColumn, NumbersColumn

try:
    from ottla.records import _columns
except ImportError:
    TWINS: list[Any] = [_columns_pure]
else:
    TWINS = [_columns_pure, _columns]


def relaxed(examples: int) -> settings:
    """No deadline: the machine may be busy."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])


needs_both = pytest.mark.skipif(len(TWINS) < 2, reason="the compiled twin is not built")


def plain(value: Any) -> Any:
    """Columns with bytes for buffers, to compare them; unused bits of validity buffers are cleared."""
    if isinstance(value, BytesColumn | HeadersColumn):
        bits = None
        if value.valid is not None:
            data = bytes(value.valid)
            bits = [data[row >> 3] >> (row & 7) & 1 for row in range(value.rows)]
        return (bits, *map(plain, value[1:]))
    if isinstance(value, Columns):
        return tuple(map(plain, value))
    return value if isinstance(value, int | None) else bytes(value)


def parts(column: BytesColumn) -> list[bytes | None]:
    ends, data = memoryview(column.ends).cast("B").cast("i"), bytes(column.data)  # type: ignore[arg-type]
    valid = bytes(column.valid) if column.valid is not None else None
    return [
        data[ends[row] : ends[row + 1]] if valid is None or valid[row >> 3] >> (row & 7) & 1 else None
        for row in range(column.rows)
    ]


def rows_of(columns: Columns) -> list[Record]:
    keys, values = parts(columns.key), parts(columns.value)
    offsets, timestamps = (bytes(each) for each in (columns.offset, columns.timestamp))
    headers: list[tuple[Any, ...]] = [()] * columns.rows
    if columns.headers is not None:
        names, contents = parts(columns.headers.key), parts(columns.headers.value)
        ends = memoryview(columns.headers.ends).cast("B").cast("i")  # type: ignore[arg-type]
        pairs = [(name.decode(), content) for name, content in zip(names, contents, strict=True) if name is not None]
        headers = [tuple(pairs[ends[row] : ends[row + 1]]) for row in range(columns.rows)]
    return [
        Record(
            struct.unpack_from("=q", offsets, 8 * row)[0],
            struct.unpack_from("=q", timestamps, 8 * row)[0],
            keys[row],
            values[row],
            headers[row],
        )
        for row in range(columns.rows)
    ]


def as_text(record: Record) -> Record:
    """The record with header keys as in columns: invalid UTF-8 is replaced."""
    headers = [
        (key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value) for key, value in record.headers
    ]
    return Record(record.offset, record.timestamp, record.key, record.value, tuple(headers))


def reader_of(buffer: bytes, next_offset: int = 0) -> BatchReader:
    """A reader of all complete batches with a valid header."""
    return BatchReader(buffer, scan(buffer, 0, len(buffer), check_crc=False).batches, next_offset)


def read(sink: Any, buffer: bytes, next_offset: int = 0) -> tuple[Any, int, str | None]:
    """What a reader returns for these bytes: columns, next offset, and the final error."""
    reader = reader_of(buffer, next_offset)
    problem = None
    while not reader.done and problem is None:
        try:
            reader.read(sink)
        except CorruptBatch as error:
            problem = str(error)
    return sink.finish(), reader.next_offset, problem


# ── batches to columns ────────────────────────────────────────────────────────────────────────────────────────────


def follow(lists: list[list[Record]]) -> list[list[Record]]:
    """The same records with consecutive offsets across lists."""
    base, moved = 0, []
    for records in lists:
        shift = base - records[0].offset
        moved.append([Record(r.offset + shift, r.timestamp, r.key, r.value, r.headers) for r in records])
        base = moved[-1][-1].offset + 1
    return moved


@pytest.mark.parametrize("twin", TWINS)
@relaxed(60)
@given(st.lists(record_lists(min_size=1), max_size=4), st.sampled_from(Compression), st.integers(0, 30), st.booleans())
def test_columns_have_the_records_that_decoding_gives(
    twin: Any, lists: list[list[Record]], codec: Compression, start: int, append_time: bool
) -> None:
    time = 77 if append_time else None
    batches = [encode_batch(records, compression=codec, log_append_time=time) for records in follow(lists)]
    expected = [as_text(record) for batch in batches for record in decode_batch(batch) if record.offset >= start]
    columns, next_offset, problem = read(twin.ColumnSink(), b"".join(batches), start)
    assert rows_of(columns) == expected
    assert problem is None
    assert next_offset == max([start, *(read_header(batch).next_offset for batch in batches)])
    assert list(memoryview(columns.timestamp_type).cast("B").cast("i")) == [int(append_time)] * len(expected)


@needs_both
@relaxed(100)
@given(st.lists(record_lists(min_size=1), min_size=1, max_size=3), st.lists(spoilings, max_size=3), st.integers(0, 5))
def test_spoiled_batches_are_refused_alike(
    lists: list[list[Record]], damages: list[tuple[int, str, int]], start: int
) -> None:
    buffer = b"".join(map(encode_batch, follow(lists)))
    for damage in damages:
        buffer = spoil(buffer, *damage)
    one, other = (read(twin.ColumnSink(), bytes(memoryview(buffer)), start) for twin in TWINS)
    assert (plain(one[0]), *one[1:]) == (plain(other[0]), *other[1:])


@needs_both
@relaxed(100)
@given(record_lists(min_size=1), st.lists(hostile_records(), max_size=3), st.integers(0, 5), st.booleans())
def test_hostile_records_are_refused_alike_and_nothing_of_their_batch_is_kept(
    good: list[Record], pieces: list[bytes], count: int, compressed: bool
) -> None:
    first = encode_batch(good, base_offset=0 if good[0].offset < 2**31 else good[0].offset)
    header = read_header(first)
    base = header.next_offset
    batch = bytearray(encode_batch([], base_offset=base, last_offset=base + 9)) + b"".join(pieces)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)
    if compressed:
        struct.pack_into(">h", batch, 21, 3)
    one, other = (read(twin.ColumnSink(), bytes(first + batch)) for twin in TWINS)
    assert (plain(one[0]), *one[1:]) == (plain(other[0]), *other[1:])
    if one[2] is not None:
        assert rows_of(one[0]) == [as_text(record) for record in decode_batch(first)]


@needs_both
@relaxed(50)
@given(st.binary(max_size=200))
def test_noise_is_refused_alike(noise: bytes) -> None:
    one, other = (read(twin.ColumnSink(), noise) for twin in TWINS)
    assert (plain(one[0]), *one[1:]) == (plain(other[0]), *other[1:])


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_batch_can_be_read_in_parts(twin: Any, codec: Compression) -> None:
    records = [Record(offset, 5, None, b"v%d" % offset) for offset in range(20)]
    batches = [encode_batch(records[at : at + 5], compression=codec) for at in range(0, 20, 5)]
    reader = reader_of(b"".join(batches), 2)
    seen: list[Record] = []
    while not reader.done:
        sink = twin.ColumnSink()
        reader.read(sink, 4)
        assert sink.rows <= 4
        seen += rows_of(sink.finish())
        assert reader.next_offset == seen[-1].offset + 1
    assert seen == records[2:]


@pytest.mark.parametrize("twin", TWINS)
def test_a_damaged_batch_is_told_after_the_records_before_it(twin: Any) -> None:
    good, bad = encode_batch([Record(0, 0, None, b"a")]), bytearray(encode_batch([Record(1, 0, None, b"b")]))
    bad[61] ^= 1
    reader = reader_of(good + bytes(bad))
    sink = twin.ColumnSink()
    reader.read(sink)
    assert (sink.rows, reader.next_offset) == (1, 1)
    with pytest.raises(CorruptBatch, match="position 69: record 0 of 1: its length is out of bounds"):
        reader.read(twin.ColumnSink())


@pytest.mark.parametrize("twin", TWINS)
def test_what_lies_between_the_batches_is_passed_over(twin: Any) -> None:
    batches = [encode_batch([Record(offset, 0, None, b"%d" % offset)]) for offset in range(6)]
    buffer = b"".join(batches)
    found = scan(buffer, 0, len(buffer)).batches
    reader = BatchReader(buffer, [found[0], found[1], found[3], found[5]], 1)
    sink = twin.ColumnSink()
    reader.read(sink)
    assert parts(sink.finish().value) == [b"1", b"3", b"5"]
    assert reader.next_offset == 6


# ── columns to payloads ───────────────────────────────────────────────────────────────────────────────────────────

bytes_or_null = st.one_of(st.none(), st.binary(max_size=8), st.binary(min_size=60, max_size=200))


def bytes_column(values: list[bytes | None], *, first: int = 0, wide: bool = False) -> BytesColumn:
    """A column in Arrow's layout that starts in the middle of its buffers."""
    before: list[bytes | None] = [b"?" * (row % 3) for row in range(first)]
    everything = before + values
    ends = array("q" if wide else "i", [0])
    bits = bytearray(len(everything) // 8 + 1)
    for row, value in enumerate(everything):
        ends.append(ends[-1] + len(value or b""))
        bits[row >> 3] |= (value is not None) << (row & 7)
    data = b"".join(value or b"" for value in everything)
    return BytesColumn(bits, ends, data, first, len(values), wide, values.count(None))


def numbers_column(kind: str, values: list[int | None], *, first: int = 0) -> NumbersColumn:
    numbers = array(kind, [7] * first + [value or 0 for value in values])
    bits = bytearray((first + len(values)) // 8 + 1)
    for row, value in enumerate(values):
        bits[(first + row) >> 3] |= (value is not None) << ((first + row) & 7)
    return NumbersColumn(bits, numbers, first, len(values), values.count(None))


def headers_column(rows: list[list[tuple[bytes, bytes | None]] | None]) -> HeadersColumn:
    ends = array("i", [0])
    bits = bytearray(len(rows) // 8 + 1)
    for row, headers in enumerate(rows):
        ends.append(ends[-1] + len(headers or ()))
        bits[row >> 3] |= (headers is not None) << (row & 7)
    flat = [header for headers in rows for header in headers or ()]
    key, value = bytes_column([key for key, _ in flat]), bytes_column([value for _, value in flat])
    return HeadersColumn(bits, ends, 0, len(rows), False, rows.count(None), key, value)


Row = tuple[bytes | None, bytes | None, int | None, list[tuple[bytes, bytes | None]] | None]
rows_given = st.lists(
    st.tuples(
        bytes_or_null,
        bytes_or_null,
        st.one_of(st.none(), st.integers(-(2**61), 2**61), st.integers(10**12, 10**12 + 100)),
        st.one_of(st.none(), st.lists(st.tuples(st.binary(max_size=4), bytes_or_null), max_size=3)),
    ),
    min_size=1,
    max_size=12,
)


def source(twin: Any, rows: list[Row], first: int, wide: bool) -> Any:
    keys, values, timestamps, headers = (list(column) for column in zip(*rows, strict=True))
    return twin.ColumnSource(
        len(rows),
        bytes_column(keys, first=first, wide=wide),
        bytes_column(values, wide=not wide),
        numbers_column("q", timestamps, first=first),
        headers_column(headers),
    )


def payloads(of: Any, order: bytes | None, rows: int, limit: int) -> list[Any]:
    made, at = [], 0
    while at < rows:
        made.append(of.encode(order, at, rows, limit, 555))
        at = made[-1].next_row
    return made


@relaxed(60)
@given(rows_given, st.integers(0, 9), st.booleans(), st.sampled_from([0, 100, 300, 10_000]), st.randoms())
def test_payloads_have_the_rows_in_order_and_keep_the_limit(
    rows: list[Row], first: int, wide: bool, limit: int, chance: Any
) -> None:
    order = list(range(len(rows)))
    chance.shuffle(order)
    first_made, *others = (
        payloads(source(twin, rows, first, wide), array("i", order).tobytes(), len(rows), limit) for twin in TWINS
    )
    assert all(other == first_made for other in others)
    decoded: list[Record] = []
    for made in first_made:
        assert len(made.payload) <= max(limit, 61) or made.rows == 1
        header = read_header(encode_batch([Record(0, 0, None, None)]))._replace(
            record_count=made.rows, last_offset_delta=made.rows - 1, base_timestamp=made.base_timestamp
        )
        records = _columns_pure.decode_records(bytes(made.payload[61:]), header, 0)
        assert made.max_timestamp == max(record.timestamp for record in records)
        decoded += records
    for record, row in zip(decoded, (rows[at] for at in order), strict=True):
        key, value, timestamp, headers = row
        assert (record.key, record.value) == (key, value)
        assert record.timestamp == (555 if timestamp is None else timestamp)
        assert [(name.encode("utf-8", "surrogateescape"), v) for name, v in record.headers] == (headers or [])


@pytest.mark.parametrize("twin", TWINS)
@relaxed(60)
@given(rows_given, st.integers(1, 5), st.integers(0, 40), st.booleans())
def test_rows_go_to_their_partition_or_that_of_their_key_or_in_runs(
    twin: Any, rows: list[Row], count: int, run_bytes: int, hash_keys: bool
) -> None:
    assigned = [None if timestamp is None else timestamp % count for _, _, timestamp, _ in rows]
    spread = array("i", reversed(range(count))).tobytes()
    found = source(twin, rows, 3, False).partition_rows(
        numbers_column("i", assigned, first=2), count, spread, 1, run_bytes, hash_keys
    )
    order = memoryview(found.order).cast("i").tolist()
    turn, run = 1 % count, 0
    expected: list[list[int]] = [[] for _ in range(count)]
    for row, (key, value, _, _) in enumerate(rows):
        if assigned[row] is not None:
            partition = assigned[row]
        elif key is not None and hash_keys:
            partition = partition_for_key(key, count)
        else:
            partition = count - 1 - turn
            run += len(value or b"") + 7
            if run >= run_bytes:
                turn, run = (turn + 1) % count, 0
        expected[partition].append(row)
    assert [order[found.starts[at] : found.starts[at + 1]] for at in range(count)] == expected
    assert found.turn == turn


def refusal(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ValueError as error:
        return (type(error), str(error))


def wrong_calls(twin: Any) -> list[Any]:
    """The errors of both kernels for invalid columns."""
    good = bytes_column([b"a", b"bc"])
    beyond = good._replace(ends=array("i", [0, 1, 9]))
    backwards = good._replace(ends=array("i", [1, 0, 3]))
    negative = good._replace(ends=array("i", [-1, 1, 3]))
    ends = numbers_column("q", [0, 2**63 - 1])
    far = numbers_column("q", [-5, 2**63 - 1])
    keyless = headers_column([[(b"k", None)], []])
    keyless = keyless._replace(key=bytes_column([None]))
    stray = headers_column([[], []])._replace(ends=array("i", [0, 1, 1]))
    order = array("i", [0, 7]).tobytes()
    calls = [
        lambda: twin.ColumnSource(2, None, beyond).encode(None, 0, 2, 99, 0),
        lambda: twin.ColumnSource(2, None, backwards).encode(None, 0, 2, 99, 0),
        lambda: twin.ColumnSource(2, None, negative).encode(None, 0, 2, 99, 0),
        lambda: twin.ColumnSource(2, beyond).encode(None, 0, 2, 99, 0),
        lambda: twin.ColumnSource(2, beyond).partition_rows(None, 2, array("i", [0]), 0, 9),
        lambda: twin.ColumnSource(2, None, good, ends).encode(None, 0, 2, 99, 0).rows,
        lambda: twin.ColumnSource(2, None, good, far).encode(None, 0, 2, 99, 0),
        lambda: twin.ColumnSource(2, None, good, None, keyless).encode(None, 0, 2, 99, 0),
        lambda: twin.ColumnSource(2, None, good, None, stray).encode(None, 0, 2, 99, 0),
        lambda: twin.ColumnSource(3, good),
        lambda: twin.ColumnSource(2, good._replace(ends=b"\0" * 8)),
        lambda: twin.ColumnSource(2, good._replace(valid=b"", nulls=1)),
        lambda: twin.ColumnSource(2, None, good, ends._replace(data=b"\0" * 15)),
        lambda: twin.ColumnSource(2, good).encode(None, 2, 2, 99, 0),
        lambda: twin.ColumnSource(2, good).encode(order, 0, 3, 99, 0),
        lambda: twin.ColumnSource(2, good).encode(order, 0, 2, 99, 0),
        lambda: twin.ColumnSource(2, good).partition_rows(numbers_column("i", [1, 5]), 3, array("i", [0]), 0, 9),
        lambda: twin.ColumnSource(2, good).partition_rows(numbers_column("i", [-1, 0]), 3, array("i", [0]), 0, 9),
        lambda: twin.ColumnSource(2, good).partition_rows(None, 0, array("i", [0]), 0, 9),
    ]
    return [refusal(call) for call in calls]


@needs_both
def test_columns_that_lie_are_refused_alike() -> None:
    one, other = (wrong_calls(twin) for twin in TWINS)
    assert one == other
    assert [each for each in one if not isinstance(each, tuple)] == [2]


def test_the_types_of_the_twins_have_the_same_names() -> None:
    for twin in TWINS:
        for ours in (ColumnSink, ColumnSource):
            theirs = getattr(twin, ours.__name__)
            assert {name for name in vars(ours) if name[0] != "_"} <= set(dir(theirs)) | {"rows"}


@needs_both
def test_memory_that_is_used_again_is_nobody_elses() -> None:
    held: dict[int, Columns] = {}
    for number in range(200):
        size = 10_000 + number * 7_919 % 200_000  # below and above of what is kept, in no order
        batch = encode_batch([Record(number, 0, None, bytes([number]) * size)])
        held[number] = read(TWINS[1].ColumnSink(), batch)[0]
        held.pop(number * 31 % 200 if number % 3 else number - 5, None)
    assert len(held) > 50
    for number, columns in held.items():
        size = 10_000 + number * 7_919 % 200_000
        assert parts(columns.value) == [bytes([number]) * size]
        assert bytes(columns.offset) == struct.pack("=q", number)
