"""Records as columns: convert Arrow buffers to the payloads of record batches and back, without an object per record.

The kernels `_columns` (Cython) and `_columns_pure` have the loops. Only arrow.py uses pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.records._kernels import KERNELS
from ottla.records.buffers import Buffer
from ottla.records.column_values import (
    BytesColumn,
    Columns,
    EncodedColumns,
    HeadersColumn,
    NumbersColumn,
    PartitionRows,
)
from ottla.records.consumed import unpacked
from ottla.records.errors import CorruptBatch
from ottla.records.header import BatchHeader

if TYPE_CHECKING or KERNELS == "pure":
    from ottla.records._columns_pure import ColumnSink, ColumnSource
else:
    from ottla.records._columns import ColumnSink, ColumnSource

__all__ = [
    "NO_LIMIT",
    "BatchReader",
    "BytesColumn",
    "ColumnSink",
    "ColumnSource",
    "Columns",
    "EncodedColumns",
    "HeadersColumn",
    "NumbersColumn",
    "PartitionRows",
]

#: More rows than a sink can hold.
NO_LIMIT = 2**31 - 1


class BatchReader:
    """Reads batches of one partition into sinks, from an offset that may be inside the first batch.

    `batches` are the positions in `data` and the headers of the scanned batches to read, without control batches.
    `next_offset` is the next offset to read.
    """

    def __init__(
        self,
        data: Buffer,
        batches: Sequence[tuple[int, BatchHeader]],
        next_offset: int,
        payloads: Mapping[int, Buffer] | None = None,
    ) -> None:
        """`payloads` has the uncompressed records of some batches, by position."""
        self.next_offset = next_offset
        self._payloads = payloads or {}
        self._data = data
        self._batches = batches
        self._index = 0
        self._unpacked: tuple[int, Buffer] | None = None

    @property
    def done(self) -> bool:
        """Whether all batches have been read completely."""
        return self._index == len(self._batches)

    @property
    def rest(self) -> Sequence[tuple[int, BatchHeader]]:
        """The batches that have not been read completely."""
        return self._batches[self._index :]

    def read(self, sink: ColumnSink, max_rows: int = NO_LIMIT) -> None:
        """Fill the sink until it has `max_rows`, is full, or all batches are read.

        A damaged batch raises CorruptBatch; if this call has read records before it, the next call raises it.
        """
        before = sink.rows
        while sink.rows < max_rows and not self.done:
            try:
                if not self._read(sink, max_rows):
                    return
            except CorruptBatch:
                if sink.rows > before:
                    return
                raise

    def _read(self, sink: ColumnSink, max_rows: int) -> bool:
        """Read several plain batches at once, or one other batch; False if the sink has no room for it."""
        place, header = self._batches[self._index]
        if header.next_offset <= self.next_offset:
            self._index += 1
            return True
        reached, self.next_offset = sink.take(self._data, place, self._run_end(), self.next_offset, max_rows)
        while not self.done and self._batches[self._index][0] < reached:
            self._index += 1
        return reached > place or sink.rows >= max_rows or self._read_one(sink, max_rows)

    def _run_end(self) -> int:
        """The end of the consecutive batches from here on."""
        end, header = self._batches[self._index]
        for place, header in self._batches[self._index :]:
            if place != end:
                return end
            end = place + header.size
        return end

    def _read_one(self, sink: ColumnSink, max_rows: int) -> bool:
        place, header = self._batches[self._index]
        if self._unpacked is None or self._unpacked[0] != place:
            payload = self._payloads.get(place)
            self._unpacked = (place, unpacked(self._data, place, header) if payload is None else payload)
        reached = sink.add(self._unpacked[1], header, place, self.next_offset, max_rows)
        if reached < 0:
            return False
        self.next_offset = max(self.next_offset, reached)
        if reached >= header.next_offset:
            self._index += 1
        return True
