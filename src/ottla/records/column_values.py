"""The values that records and columns are exchanged in: buffers in Arrow's layout, without Arrow.

A buffer is anything with the buffer protocol, ``pyarrow.Buffer`` too. A validity buffer has one bit a row, the
lowest first, 1 for a value and 0 for a null; without nulls there is none. ``ends`` has one number more than there are
rows, the first of them where the first row begins. ``first`` is the row of the buffers that the column begins with.
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
    """A list of key and value for each row; a null is a row without headers."""

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
    """int32: 0 for the time that the producer gave, 1 for that of the append."""
    headers: HeadersColumn | None


class EncodedColumns(NamedTuple):
    """The payload of a batch, behind room for its header, and what the header says of it."""

    payload: bytearray
    rows: int
    base_timestamp: int
    max_timestamp: int
    next_row: int


class PartitionRows(NamedTuple):
    """Which rows go to which partition: those of partition n are ``order[starts[n]:starts[n + 1]]``, as int32."""

    order: bytearray
    starts: list[int]
    turn: int
