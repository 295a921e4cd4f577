"""Columns as pyarrow objects: what can be written, error messages, and the schema of tables that are read."""

from __future__ import annotations

import builtins
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest

from ottla.records import Record, encode_batch, scan
from ottla.records._kernels import kernels
from ottla.records.arrow import ArrowMissing, BatchMaker, UnusableColumns, batches_of, pyarrow, writable
from ottla.records.columns import BatchReader, ColumnSink
from ottla.records.header import BatchHeader

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def table_of(records: list[Record], topic: str = "orders", partition: int = 3) -> pa.Table:
    buffer = encode_batch(records)
    sink = ColumnSink()
    BatchReader(buffer, scan(buffer, 0, len(buffer)).batches, 0).read(sink)
    maker = BatchMaker()
    batch = maker.batch(sink.finish(), topic, partition)
    batch.validate(full=True)
    return maker.table([batch])


def records_of(data: Any) -> list[Record]:
    """The records that a producer sends for this table, in one partition."""
    found: list[Record] = []
    for batch in batches_of(data):
        source = writable(batch).source
        at = 0
        while at < source.rows:
            made = source.encode(None, at, source.rows, 300, 1000)
            at = made.next_row
            header = BatchHeader(0, 0, 0, 2, 0, 0, made.rows - 1, made.base_timestamp, 0, -1, -1, -1, made.rows)
            decoded = kernels.decode_records(bytes(made.payload[61:]), header, 0)
            found += [Record(len(found) + r.offset, r.timestamp, r.key, r.value, r.headers) for r in decoded]
    return found


def test_what_is_read_has_the_schema_of_sparks_kafka_source() -> None:
    table = table_of([Record(7, 1_700_000_000_123, b"k", None, (("h", b"x"), ("n", None)))])
    assert table.schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())]))),
        ]
    )
    assert table.to_pylist() == [
        {
            "key": b"k",
            "value": None,
            "topic": "orders",
            "partition": 3,
            "offset": 7,
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"x"}, {"key": "n", "value": None}],
        }
    ]


def test_records_come_out_as_they_went_in() -> None:
    records = [
        Record(0, 5, b"k", b"v", (("a", b"1"), ("a", None))),
        Record(1, 4, None, b""),
        Record(2, 6, b"", None, ((chr(233), b""),)),
        Record(3, 6, b"x" * 300, b"y" * 500),
    ]
    table = table_of(records)
    assert records_of(table) == records
    assert records_of(table.slice(1, 2)) == [
        Record(i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records[1:3])
    ]


def test_frames_of_pandas_and_polars_come_and_go() -> None:
    records = [Record(0, 5, b"k", b"v"), Record(1, 6, None, b"w")]
    table = table_of(records)
    assert polars.from_arrow(table)["value"].to_list() == [b"v", b"w"]
    assert list(table.to_pandas()["value"]) == [b"v", b"w"]
    assert records_of(polars.from_arrow(table)) == records
    assert records_of(table.to_pandas()) == records
    texts = {"key": ["a", None], "value": ["one", "two"], "timestamp": [1, 2]}
    expected = [Record(0, 1, b"a", b"one"), Record(1, 2, None, b"two")]
    for frame in (pandas.DataFrame(texts), polars.DataFrame(texts), texts):
        assert records_of(frame) == expected


def test_categories_of_pandas_and_polars() -> None:
    words = ["one", None, "two", "one"]
    for kind in (polars.Categorical, polars.Enum(["one", "two"])):
        values = records_of(polars.DataFrame({"value": words}, schema={"value": kind}))
        assert [record.value for record in values] == [b"one", None, b"two", b"one"]
    values = records_of(pandas.DataFrame({"value": pandas.Categorical(words)}))
    assert [record.value for record in values] == [b"one", None, b"two", b"one"]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(), pa.string_view(), pa.binary(3)],
)
def test_bytes_and_texts_of_every_layout(kind: pa.DataType) -> None:
    array = pa.array([b"abc", None, b"def"], pa.binary()).cast(kind)
    words = pa.array([b"def", b"abc"], pa.binary()).cast(kind)
    for given in (array, pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), words)):
        values = [record.value for record in records_of(pa.table({"value": given}))]
        assert values == [b"abc", None, b"def"]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, None], pa.int64()), [1, 1000]),
        (pa.array([1, None], pa.int32()), [1, 1000]),
        (pa.array([1_500, None], pa.timestamp("us")), [1, 1000]),
        (pa.array([2, None], pa.timestamp("s", "UTC")), [2000, 1000]),
        (pa.nulls(2), [1000, 1000]),
    ],
)
def test_timestamps_are_times_or_milliseconds(array: pa.Array, expected: list[int]) -> None:
    assert [r.timestamp for r in records_of(pa.table({"value": [b"", b""], "timestamp": array}))] == expected


@pytest.mark.parametrize("kind", [HEADERS, pa.large_list(HEADERS.value_type), pa.map_(pa.string(), pa.binary())])
def test_headers_are_lists_of_pairs_or_maps(kind: pa.DataType) -> None:
    rows = [None, [{"key": "a", "value": b"1"}], [], [{"key": "b", "value": None}, {"key": "c", "value": b"3"}]]
    if pa.types.is_map(kind):
        rows = [None if row is None else [(pair["key"], pair["value"]) for pair in row] for row in rows]
    table = pa.table({"value": pa.array([b""] * 4), "headers": pa.array(rows, kind)})
    assert [r.headers for r in records_of(table)] == [(), (("a", b"1"),), (), (("b", None), ("c", b"3"))]
    assert [r.headers for r in records_of(table.slice(3))] == [(("b", None), ("c", b"3"))]


def test_a_header_that_is_null_is_not_written_without_a_name() -> None:
    with pytest.raises(ValueError, match="record 0: a header has no key"):
        records_of(pa.table({"value": [b""], "headers": pa.array([[None]], HEADERS)}))


def test_small_chunks_are_put_together() -> None:
    chunks = pa.chunked_array([[b"a"], [b"b"], [], [b"c"]], pa.binary())
    assert len(list(batches_of(pa.table({"value": chunks})))) == 1
    assert [r.value for r in records_of(pa.table({"value": chunks}))] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"vlaue": [b""]}, "there is no column 'value', only 'vlaue'"),
        ({"value": [b""], "kye": [b""]}, "unknown column 'kye': rename or drop it; allowed are key, value, timestamp"),
        ({"key": [b""]}, "there is no column 'value', only 'key'"),
        ({"value": [1]}, "column 'value' has type int64: convert it to bytes or text first"),
        ({"value": [b""], "timestamp": ["now"]}, "column 'timestamp' has type string: give a timestamp, or"),
        ({"value": [b""], "timestamp": [-5]}, "a timestamp is negative"),
        (
            {"value": [b""], "timestamp": pa.array([2**62], pa.timestamp("s"))},
            "column 'timestamp': Casting from timestamp.*out of bounds",
        ),
        ({"value": [b""], "timestamp": pa.array([2**63], pa.uint64())}, "column 'timestamp': Integer value .*not in"),
        ({"value": [b""], "partition": [2**40]}, "column 'partition': Integer value 1099511627776 not in range"),
        ({"value": [b""], "partition": ["one"]}, "column 'partition' has type string: give int32"),
        ({"value": [b""], "headers": [["h"]]}, "column 'headers' has type list<.*>: give list<struct<key"),
        ({"value": [b"", b""], "key": [b""]}, "cannot convert this dict to a table: .*expected length 2"),
        (pandas.Series(["a"], name="value"), "cannot convert this Series to a table"),
        (polars.Series("value", ["a"]), "cannot convert this Series to a table"),
        (pandas.DataFrame({"value": ["a", 1]}), "cannot convert this DataFrame to a table: .*column value"),
        ([1, 2], "list is not a table: give a pyarrow table or batch, a pandas or polars frame"),
    ],
)
def test_what_cannot_be_written_is_refused_in_words(data: Any, words: str) -> None:
    with pytest.raises(UnusableColumns, match=words):
        records_of(data)


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ArrowMissing, match=r"pip install 'ottla\[arrow\]'"):
        pyarrow()


def test_nothing_imports_pyarrow_before_it_is_needed() -> None:
    code = (
        "import sys, ottla, ottla.clients.producer.blocking, ottla.clients.consumer.blocking;"
        "sys.exit('pyarrow' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
