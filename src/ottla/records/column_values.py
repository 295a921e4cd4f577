"""Columns as buffers in Arrow's layout, without pyarrow.

A buffer is any object with the buffer protocol, such as ``pyarrow.Buffer``. A validity buffer has one bit per row,
lowest bit first: 1 for a value, 0 for a null; without nulls there is none. ``ends`` has one number more than rows: the
start of the first row, and the end of each row. ``first`` is the column's first row in the buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer


class BytesColumn(NamedTuple):
    """Bytes or text: Arrow's binary and string (32-bit ends) or large_binary and large_string (``wide``)."""

    valid: Buffer | None
    ends: Buffer | None
    data: Buffer | None
    first: int
    rows: int
    wide: bool
    nulls: int


class NumbersColumn(NamedTuple):
    """Numbers of one width: int64 timestamps, int32 partitions."""

    valid: Buffer | None
    data: Buffer | None
    first: int
    rows: int
    nulls: int


class HeadersColumn(NamedTuple):
    """A list of keys and values for each row; null for a row without headers."""

    valid: Buffer | None
    ends: Buffer | None
    first: int
    rows: int
    wide: bool
    nulls: int
    key: BytesColumn
    value: BytesColumn


class Columns(NamedTuple):
    """Records as columns. ``headers`` is None when no record has any."""

    rows: int
    key: BytesColumn
    value: BytesColumn
    offset: Buffer
    timestamp: Buffer
    timestamp_type: Buffer
    """int32: 0 for CreateTime, 1 for LogAppendTime."""
    headers: HeadersColumn | None


class EncodedColumns(NamedTuple):
    """The payload of a batch after room for its header, and values for that header."""

    payload: bytearray
    rows: int
    base_timestamp: int
    max_timestamp: int
    next_row: int


class PartitionRows(NamedTuple):
    """The rows of each partition: those of partition n are ``order[starts[n]:starts[n + 1]]``, as int32."""

    order: bytearray
    starts: list[int]
    turn: int
