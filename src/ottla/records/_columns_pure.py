"""Records to and from columns in Python: the reference for `_columns`, and its replacement where that is not built.

`_pure.py` describes the layout of a record. Change both versions together: property tests compare their results and
error messages.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.records import _problems
from ottla.records._builder_pure import murmur2
from ottla.records._pure import _fits, _write_varint, decode_records
from ottla.records.buffers import Buffer
from ottla.records.column_values import (
    BytesColumn,
    Columns,
    EncodedColumns,
    HeadersColumn,
    NumbersColumn,
    PartitionRows,
)
from ottla.records.header import BATCH_OVERHEAD, BatchHeader
from ottla.records.values import Record

if TYPE_CHECKING:
    from typing_extensions import Buffer as AnyBuffer

_MIN_RECORD = 7
_INT32_MAX = 2**31 - 1


class ColumnSink:
    """Columns that grow by batches. `finish` returns the buffers and ends the sink."""

    def __init__(self, size_hint: int = 0) -> None:
        self._records: list[Record] = []
        self._types = array("i")
        self._bytes = 0

    @property
    def rows(self) -> int:
        return len(self._records)

    def take(self, buffer: Buffer, position: int, end: int, next_offset: int, max_rows: int) -> tuple[int, int]:
        """Take several plain batches at once: the pure version takes none, so that the caller uses `add`."""
        if not 0 <= position <= end <= len(buffer):
            raise ValueError(_problems.range_refusal(position, end, len(buffer)))
        return position, next_offset

    def add(self, payload: Buffer, header: BatchHeader, position: int, next_offset: int, max_rows: int) -> int:
        """Take the records of one batch from `next_offset` on; return the next offset, or -1 if there is no room."""
        if self._records and self._bytes + 3 * len(payload) > _INT32_MAX:
            return -1
        records = [each for each in decode_records(payload, header, position) if each.offset >= next_offset]
        taken = records[: max(max_rows - len(self._records), 0)]
        self._records += taken
        self._types.extend([int(header.is_log_append_time)] * len(taken))
        self._bytes += len(payload)
        if len(taken) < len(records):
            return taken[-1].offset + 1 if taken else next_offset
        return header.next_offset

    def finish(self) -> Columns:
        """The buffers of all columns."""
        records = self._records
        return Columns(
            len(records),
            _bytes_column([record.key for record in records]),
            _bytes_column([record.value for record in records]),
            array("q", [record.offset for record in records]),
            array("q", [record.timestamp for record in records]),
            self._types,
            _headers_column(records) if any(record.headers for record in records) else None,
        )


def _bytes_column(parts: Sequence[bytes | None]) -> BytesColumn:
    valid, nulls = _validity([part is not None for part in parts])
    ends = _ends(len(part or b"") for part in parts)
    return BytesColumn(valid, ends, b"".join(part or b"" for part in parts), 0, len(parts), False, nulls)


def _headers_column(records: Sequence[Record]) -> HeadersColumn:
    headers = [header for record in records for header in record.headers]
    valid, nulls = _validity([bool(record.headers) for record in records])
    return HeadersColumn(
        valid,
        _ends(len(record.headers) for record in records),
        0,
        len(records),
        False,
        nulls,
        _bytes_column([_text(key) for key, _ in headers]),
        _bytes_column([value for _, value in headers]),
    )


def _text(key: str) -> bytes:
    """A header key as valid UTF-8, which Arrow requires."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


def _validity(there: Sequence[bool]) -> tuple[bytearray | None, int]:
    nulls = len(there) - sum(there)
    if not nulls:
        return None, 0
    bits = bytearray(b"\xff" * ((len(there) + 7) // 8))
    for row, is_there in enumerate(there):
        if not is_there:
            bits[row >> 3] &= ~(1 << (row & 7))
    return bits, nulls


def _ends(lengths: Iterable[int]) -> array[int]:
    ends = array("i", [0])
    for length in lengths:
        ends.append(ends[-1] + length)
    return ends


class ColumnSource:
    """The columns of one Arrow batch. `encode` makes payloads of its rows, `partition_rows` distributes them."""

    def __init__(
        self,
        rows: int,
        key: BytesColumn | None = None,
        value: BytesColumn | None = None,
        timestamp: NumbersColumn | None = None,
        headers: HeadersColumn | None = None,
    ) -> None:
        self.rows = rows
        self._key = None if key is None else _Parts(key, rows)
        self._value = None if value is None else _Parts(value, rows)
        self._timestamp = None if timestamp is None else _Numbers(timestamp, rows, "q")
        self._lists = None if headers is None else _Ends(headers, rows)
        if headers is not None:
            self._header_key = _Parts(headers.key, headers.key.rows)
            self._header_value = _Parts(headers.value, headers.key.rows)
            self._header_rows = headers.key.rows

    def encode(self, order: Buffer | None, start: int, stop: int, limit: int, default_timestamp: int) -> EncodedColumns:
        """A payload of the rows from `start` on, of at most `limit` bytes, but with at least one row."""
        rows = range(self.rows) if order is None else memoryview(order).cast("B").cast("i")
        if not 0 <= start < stop <= len(rows):
            raise ValueError(_problems.range_refusal(start, stop, len(rows)))
        output = bytearray(BATCH_OVERHEAD)
        base = latest = default_timestamp
        count = 0
        for at in range(start, stop):
            row = rows[at]
            if not 0 <= row < self.rows:
                raise ValueError(_problems.row_refusal(row, self.rows))
            parts = self._parts(row)
            given = None if self._timestamp is None else self._timestamp.get(row)
            timestamp = default_timestamp if given is None else given
            if not count:
                base = latest = timestamp
            if not _fits(timestamp - base):
                raise ValueError(_problems.refusal(row, _problems.timestamp_refusal(timestamp)))
            record = _record(parts, timestamp - base, count)
            if len(record) > _INT32_MAX:
                raise ValueError(_problems.refusal(row, _problems.SIZE_REFUSAL))
            size = _varint(len(record))
            if count and len(output) + len(size) + len(record) > limit:
                return EncodedColumns(output, count, base, latest, at)
            output += size + record
            latest = max(latest, timestamp)
            count += 1
        return EncodedColumns(output, count, base, latest, stop)

    def partition_rows(
        self,
        assigned: NumbersColumn | None,
        count: int,
        spread: Buffer,
        turn: int,
        run_bytes: int,
        hash_keys: bool = True,
    ) -> PartitionRows:
        """The rows of each partition, in order, and the next turn of `spread`."""
        numbers = None if assigned is None else _Numbers(assigned, self.rows, "i")
        choices = memoryview(spread).cast("B").cast("i")
        if count < 1 or not choices:
            raise ValueError(_problems.partitions_refusal(count))
        rows_of: list[list[int]] = [[] for _ in range(count)]
        turn, run = turn % len(choices), 0
        for row in range(self.rows):
            partition = None if numbers is None else numbers.get(row)
            if partition is not None and not 0 <= partition < count:
                raise ValueError(_problems.refusal(row, _problems.partition_refusal(partition, count)))
            if partition is None and hash_keys and (key := self._part(self._key, row)) is not None:
                partition = (murmur2(key) & 0x7FFFFFFF) % count
            if partition is None:
                partition = choices[turn]
                run += len(self._run_value(row)) + _MIN_RECORD
                if run >= run_bytes:
                    turn, run = (turn + 1) % len(choices), 0
            rows_of[partition].append(row)
        order, starts = array("i"), [0]
        for rows in rows_of:
            order.extend(rows)
            starts.append(len(order))
        return PartitionRows(bytearray(order.tobytes()), starts, turn)

    def _run_value(self, row: int) -> bytes:
        """The value, for its size only: errors are reported when it is encoded."""
        try:
            return self._part(self._value, row) or b""
        except ValueError:
            return b""

    def _parts(self, row: int) -> list[bytes | None]:
        """Key, value, header key, header value, …"""
        parts = [self._part(self._key, row), self._part(self._value, row)]
        for index in self._header_range(row):
            key = self._header_key.get(index)
            if key is None:
                raise ValueError(_problems.refusal(row, _problems.HEADER_KEY_NULL))
            value = b"" if key is _BROKEN else self._header_value.get(index)
            if key is _BROKEN or value is _BROKEN:
                raise ValueError(_problems.refusal(row, _problems.COLUMN_OFFSETS))
            parts += (key, value)
        return parts

    def _header_range(self, row: int) -> range:
        if self._lists is None or not self._lists.is_valid(row):
            return range(0)
        start, end = self._lists.range(row)
        if not 0 <= start <= end <= self._header_rows:
            raise ValueError(_problems.refusal(row, _problems.COLUMN_OFFSETS))
        return range(start, end)

    def _part(self, column: _Parts | None, row: int) -> bytes | None:
        part = None if column is None else column.get(row)
        if part is _BROKEN:
            raise ValueError(_problems.refusal(row, _problems.COLUMN_OFFSETS))
        return part


_BROKEN = bytes(bytearray(b"offsets that lie outside of the data"))


class _Validity:
    def __init__(self, column: BytesColumn | NumbersColumn | HeadersColumn, rows: int) -> None:
        if column.rows < rows or column.first < 0:
            raise ValueError(_problems.column_refusal(column.rows, rows))
        self._first = column.first
        self._valid: memoryview | None = None
        if column.valid is not None and column.nulls:
            self._valid = _sized(column.valid, (column.first + rows + 7) // 8)

    def is_valid(self, row: int) -> bool:
        row += self._first
        return self._valid is None or bool(self._valid[row >> 3] >> (row & 7) & 1)


class _Ends(_Validity):
    def __init__(self, column: BytesColumn | HeadersColumn, rows: int) -> None:
        super().__init__(column, rows)
        width = 8 if column.wide else 4
        ends = _sized(column.ends, width * (column.first + rows + 1) if rows else 0)
        self._ends = ends[: len(ends) // width * width].cast("q" if column.wide else "i")

    def range(self, row: int) -> tuple[int, int]:
        return self._ends[self._first + row], self._ends[self._first + row + 1]


class _Parts:
    def __init__(self, column: BytesColumn, rows: int) -> None:
        self._ends = _Ends(column, rows)
        self._data = _sized(column.data, 0)

    def get(self, row: int) -> bytes | None:
        if not self._ends.is_valid(row):
            return None
        start, end = self._ends.range(row)
        return bytes(self._data[start:end]) if 0 <= start <= end <= len(self._data) else _BROKEN


class _Numbers(_Validity):
    def __init__(self, column: NumbersColumn, rows: int, kind: str) -> None:
        super().__init__(column, rows)
        width = struct.calcsize(kind)
        numbers = _sized(column.data, width * (column.first + rows) if rows else 0)
        self._numbers = numbers[: len(numbers) // width * width].cast(kind)  # type: ignore[call-overload]

    def get(self, row: int) -> int | None:
        return int(self._numbers[self._first + row]) if self.is_valid(row) else None


def _sized(buffer: AnyBuffer | None, least: int) -> memoryview:
    if buffer is None and least == 0:
        return memoryview(b"")
    view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
    if len(view) < least:
        raise ValueError(_problems.column_refusal(len(view), least))
    return view


def _record(parts: Sequence[bytes | None], timestamp_delta: int, offset_delta: int) -> bytearray:
    record = bytearray(1) + _varint(timestamp_delta) + _varint(offset_delta)
    for at, part in enumerate(parts):
        if at == 2:
            record += _varint(len(parts) // 2 - 1)
        record += _varint(-1) if part is None else _varint(len(part)) + part
    return record if len(parts) > 2 else record + b"\x00"


def _varint(value: int) -> bytearray:
    output = bytearray()
    _write_varint(output, value)
    return output
