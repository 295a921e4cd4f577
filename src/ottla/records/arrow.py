"""Columns as pyarrow objects. pyarrow is imported on first use, only here.

Tables that a consumer reads have the schema of Spark's Kafka source:

    key            binary
    value          binary
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp[ms, UTC]
    timestampType  int32                                  0: set by the producer, 1: by the broker
    headers        list<struct<key: string, value: binary>>    null when there are none

Tables that a producer writes need `value`, and may have `key`, `timestamp`, `headers` and `partition`.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.records.columns import BytesColumn, Columns, ColumnSource, HeadersColumn, NumbersColumn
from ottla.types import Millis

if TYPE_CHECKING:
    import pyarrow as pa

WRITTEN = ("key", "value", "timestamp", "headers", "partition")
#: Columns that `send_arrow` ignores if all are there, so that a table that was read can be written again.
READ_ONLY = ("topic", "offset", "timestampType")
#: Smaller chunks of a table are combined first, because a payload cannot span chunks.
SMALL_CHUNK = 4 * 1024 * 1024
#: The most rows of a batch: the longest topic name in each row fits into a column's 32-bit offsets.
MOST_ROWS = 4_000_000

#: The header of a batch and all varints of a record; the two varints of a header.
_ROW_OVERHEAD = 61 + 40
_HEADER_OVERHEAD = 10


class ArrowMissing(ImportError):
    """pyarrow is not installed."""


class UnusableColumns(ValueError):
    """A table cannot be written to a topic."""


def pyarrow() -> Any:
    """Import pyarrow; ArrowMissing says what to install."""
    try:
        import pyarrow
    except ImportError:
        raise ArrowMissing("columns require pyarrow: install it with  pip install 'ottla[arrow]'") from None
    return pyarrow


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class BatchMaker:
    """Makes Arrow batches from columns. Columns with one value are made once and sliced."""

    def __init__(self) -> None:
        self._pa = pa = pyarrow()
        self._header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
        self.schema = pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("ms", "UTC")),
                ("timestampType", pa.int32()),
                ("headers", pa.list_(self._header)),
            ]
        )
        self._repeated: dict[str | int, Any] = {}
        self._no_headers = pa.nulls(0, pa.list_(self._header))

    def batch(self, columns: Columns, topic: str, partition: int) -> pa.RecordBatch:
        """Return the records of one partition."""
        rows = columns.rows
        arrays = [
            self._bytes(columns.key, self._pa.binary()),
            self._bytes(columns.value, self._pa.binary()),
            self._repeat(topic, rows),
            self._repeat(partition, rows),
            self._numbers(self._pa.int64(), rows, columns.offset),
            self._numbers(self._pa.timestamp("ms", "UTC"), rows, columns.timestamp),
            self._numbers(self._pa.int32(), rows, columns.timestamp_type),
            self._headers(columns.headers, rows),
        ]
        return self._pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def table(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return one table with a chunk for each batch."""
        return self._pa.Table.from_batches(batches, schema=self.schema)

    def _repeat(self, value: str | int, rows: int) -> Any:
        """A column of one value, from buffers: to make a scalar from a Python object, pyarrow imports pandas."""
        known = self._repeated.get(value)
        if known is None or len(known) < rows:
            known = self._repeated[value] = self._repetition(value, max(rows + rows // 4, 1024))
        return known.slice(0, rows)

    def _repetition(self, value: str | int, rows: int) -> Any:
        if isinstance(value, int):
            return self._numbers(self._pa.int32(), rows, array("i", [value]) * rows)
        text = value.encode()
        ends = array("i", range(0, rows * len(text) + 1, len(text))) if text else array("i", [0]) * (rows + 1)
        return self._bytes(BytesColumn(None, ends, text * rows, 0, rows, False, 0), self._pa.string())

    def _bytes(self, column: BytesColumn, kind: Any) -> Any:
        buffers = [self._buffer(column.valid), self._buffer(column.ends), self._buffer(column.data)]
        return self._pa.Array.from_buffers(kind, column.rows, buffers, column.nulls)

    def _numbers(self, kind: Any, rows: int, data: Any) -> Any:
        return self._pa.Array.from_buffers(kind, rows, [None, self._buffer(data)], 0)

    def _headers(self, column: HeadersColumn | None, rows: int) -> Any:
        if column is None:
            if len(self._no_headers) < rows:
                self._no_headers = self._pa.nulls(rows, self._no_headers.type)
            return self._no_headers.slice(0, rows)
        parts = [self._bytes(column.key, self._pa.string()), self._bytes(column.value, self._pa.binary())]
        pairs = self._pa.StructArray.from_arrays(parts, fields=list(self._header))
        buffers = [self._buffer(column.valid), self._buffer(column.ends)]
        return self._pa.Array.from_buffers(self._no_headers.type, rows, buffers, column.nulls, children=[pairs])

    def _buffer(self, data: Any) -> Any:
        return None if data is None else self._pa.py_buffer(data)


# ── Writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Writable(NamedTuple):
    """The rows of one Arrow batch, ready to encode."""

    source: ColumnSource
    partition: NumbersColumn | None
    has_keys: bool
    key: BytesColumn | None
    value: BytesColumn | None
    headers: HeadersColumn | None
    given_times: tuple[Millis, ...] = ()
    """The first and the last time of a timestamp column of plain numbers, whose unit may be wrong."""

    def may_be_refused(self, max_size: int) -> bool:
        """Whether a row might be larger than `max_size` or have a header without a key, by a quick check."""
        key, value, headers = (_longest(column) for column in (self.key, self.value, self.headers))
        if self.headers is not None:
            if self.headers.key.nulls:
                return True
            headers *= _longest(self.headers.key) + _longest(self.headers.value) + _HEADER_OVERHEAD
        return key + value + headers + _ROW_OVERHEAD > max_size


def batches_of(data: Any) -> list[pa.RecordBatch] | Iterator[pa.RecordBatch]:
    """Return the batches of a table, a batch or an Arrow-compatible object (pandas, polars, …); a reader is lazy."""
    pa = pyarrow()
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.RecordBatchReader):
        return (batch for batch in data)
    if not isinstance(data, pa.Table):
        data = _table(pa, data)
    chunks = max((column.num_chunks for column in data.columns), default=0)
    if chunks > 1 and data.nbytes < chunks * SMALL_CHUNK:
        data = data.combine_chunks()
    return list(data.to_batches())


def _table(pa: Any, data: Any) -> Any:
    try:
        if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
            return pa.Table.from_pandas(data, preserve_index=False)
        if isinstance(data, dict) or hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            return pa.table(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UnusableColumns(f"cannot convert this {type(data).__name__} to a table: {error}") from error
    raise UnusableColumns(
        f"{type(data).__name__} is not a table: give a pyarrow table or batch, a pandas or polars frame, "
        "or an object with __arrow_c_stream__"
    )


def writable(batch: pa.RecordBatch) -> Writable:
    """Return the columns of a batch by the names in WRITTEN; UnusableColumns says what is wrong."""
    pa = pyarrow()
    names = batch.schema.names
    if "value" not in names:
        raise UnusableColumns(
            f"there is no column 'value', only {', '.join(map(repr, names)) or 'none'}. It has the content of the "
            "records, as bytes or text: rename a column, or send each row as JSON, with {'value': [json.dumps(row, "
            "default=str) for row in rows]} and rows=table.to_pylist() or rows=frame.to_dict('records')"
        )
    if "topic" in names and not set(READ_ONLY) <= set(names):
        raise UnusableColumns(
            "the column 'topic' would be ignored, because all rows go to the topic of the call: drop the column, and "
            "call send_arrow once for each topic"
        )
    for name in names:
        if name not in WRITTEN and name not in READ_ONLY:
            raise UnusableColumns(f"unknown column {name!r}: rename or drop it; allowed are {', '.join(WRITTEN)}")
    if len(set(names)) < len(names):
        raise UnusableColumns(f"a column name occurs twice: {', '.join(names)}")
    key, value = (_bytes_of(pa, name, batch.column(name)) if name in names else None for name in ("key", "value"))
    timestamp, given_times = _timestamps_of(pa, batch.column("timestamp")) if "timestamp" in names else (None, ())
    headers = _headers_of(pa, batch.column("headers")) if "headers" in names else None
    partition = _partitions_of(pa, batch.column("partition")) if "partition" in names else None
    source = ColumnSource(batch.num_rows, key, value, timestamp, headers)
    return Writable(source, partition, key is not None and key.nulls < key.rows, key, value, headers, given_times)


def _longest(column: BytesColumn | HeadersColumn | None) -> int:
    """The longest entry of a column whose buffers are known to be long enough."""
    if column is None or not column.rows:
        return 0
    pa, compute = pyarrow(), importlib.import_module("pyarrow.compute")
    kind = pa.int64() if column.wide else pa.int32()
    ends = pa.Array.from_buffers(kind, column.rows + 1, [None, pa.py_buffer(column.ends)], offset=column.first)
    return int(compute.max(compute.subtract(ends.slice(1), ends.slice(0, column.rows))).as_py())


def _bytes_of(pa: Any, name: str, array: Any) -> BytesColumn | None:
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        # pyarrow cannot take from views, which polars uses for categories.
        return _bytes_of(pa, name, _without_views(pa, array.dictionary).take(array.indices))
    array = _without_views(pa, array)
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    if not wide and not pa.types.is_binary(kind) and not pa.types.is_string(kind):
        raise UnusableColumns(
            f"column {name!r} has type {kind}: convert it to bytes or text first, with a cast or a serializer"
        )
    valid, ends, data = array.buffers()
    return BytesColumn(valid, ends, data, array.offset, len(array), wide, array.null_count)


def _without_views(pa: Any, array: Any) -> Any:
    """Convert views and fixed-size binary to arrays with offsets."""
    if str(array.type) == "string_view":
        return array.cast(pa.large_string())
    views = pa.types.is_fixed_size_binary(array.type) or str(array.type) == "binary_view"
    return array.cast(pa.large_binary()) if views else array


def _timestamps_of(pa: Any, array: Any) -> tuple[NumbersColumn | None, tuple[Millis, ...]]:
    """The column in milliseconds, and `Writable.given_times`."""
    if pa.types.is_null(array.type):
        return None, ()
    has_unit = pa.types.is_timestamp(array.type)
    if has_unit:
        array = _cast(pa, "timestamp", array, pa.timestamp("ms", array.type.tz))
    elif not pa.types.is_integer(array.type):
        raise UnusableColumns(f"column 'timestamp' has type {array.type}: give a timestamp, or milliseconds as int64")
    numbers = _cast(pa, "timestamp", array, pa.int64())
    ends = importlib.import_module("pyarrow.compute").min_max(numbers)
    times = tuple(at for end in ("min", "max") if (at := ends[end].as_py()) is not None)
    if times and times[0] < 0:
        raise UnusableColumns("a timestamp is negative: timestamps are milliseconds since 1970")
    return _numbers(numbers), () if has_unit else times


def _partitions_of(pa: Any, array: Any) -> NumbersColumn | None:
    if pa.types.is_null(array.type):
        return None
    if not pa.types.is_integer(array.type):
        raise UnusableColumns(f"column 'partition' has type {array.type}: give int32")
    return _numbers(_cast(pa, "partition", array, pa.int32()))


def _cast(pa: Any, name: str, array: Any, kind: Any) -> Any:
    """Cast a column. Times are truncated to milliseconds; values that do not fit raise UnusableColumns."""
    options = importlib.import_module("pyarrow.compute").CastOptions(kind, allow_time_truncate=True)
    try:
        return array.cast(options=options)
    except pa.ArrowInvalid as error:
        raise UnusableColumns(f"column {name!r}: {error}") from None


def _numbers(array: Any) -> NumbersColumn:
    valid, data = array.buffers()
    return NumbersColumn(valid, data, array.offset, len(array), array.null_count)


def _headers_of(pa: Any, array: Any) -> HeadersColumn | None:
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_map(kind):
        keys, values = array.keys, array.items
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_pair(pa, kind.value_type):
        keys, values = array.values.flatten()  # a null pair has no key
    else:
        raise UnusableColumns(f"column 'headers' has type {kind}: give list<struct<key: string, value: binary>>")
    count = len(keys)  # of type null: only empty lists are possible
    nothing = BytesColumn(b"\0" * (count // 8 + 1), bytes(4 * count + 4), b"", 0, count, False, count)
    key = _bytes_of(pa, "headers", keys) or nothing
    value = _bytes_of(pa, "headers", values) or nothing
    valid, ends = array.buffers()[:2]
    return HeadersColumn(
        valid, ends, array.offset, len(array), pa.types.is_large_list(kind), array.null_count, key, value
    )


def _is_pair(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_struct(kind)) and [field.name for field in kind] == ["key", "value"]
