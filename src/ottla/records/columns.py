"""Records as columns: from Arrow memory to the payloads of record batches and back, without an object a record.

The loops are in the kernels `_columns` (Cython) and `_columns_pure`; what a batch is in for (compression, checks,
transactions that were aborted) is decided here. Nothing here knows pyarrow: that is `arrow.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.records._kernels import KERNELS
from ottla.records.buffers import Buffer
from ottla.records.codec import _payload, decode_keys
from ottla.records.column_values import (
    BytesColumn,
    Columns,
    EncodedColumns,
    HeadersColumn,
    NumbersColumn,
    PartitionRows,
)
from ottla.records.errors import CorruptBatch
from ottla.records.header import BATCH_OVERHEAD, BatchHeader, check_batch, read_header, shape_problem

if TYPE_CHECKING or KERNELS == "pure":
    from ottla.records._columns_pure import ColumnSink, ColumnSource
else:
    try:
        from ottla.records._columns import ColumnSink, ColumnSource
    except ImportError:
        from ottla.records._columns_pure import ColumnSink, ColumnSource

__all__ = [
    "NO_LIMIT",
    "AbortedTransactions",
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

#: More rows than a sink can have.
NO_LIMIT = 2**31 - 1


class AbortedTransactions:
    """Tells the batches of transactions that were aborted, as a fetch response lists them.

    A transaction counts from its first offset to the abort marker of its producer.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """Take pairs of producer id and first offset."""
        self._ahead = sorted(((first_offset, producer_id) for producer_id, first_offset in transactions), reverse=True)
        self._producers: set[int] = set()

    def drop(self, buffer: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether a consumer of committed records must not see this batch. Asked of every batch, in order."""
        while self._ahead and self._ahead[-1][0] <= header.last_offset:
            self._producers.add(self._ahead.pop()[1])
        if header.is_control:
            if header.producer_id in self._producers and _is_abort(buffer, position):
                self._producers.remove(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producers


def _is_abort(buffer: Buffer, position: int) -> bool:
    """Whether a control batch is an abort marker: the key of its record is version int16, type int16 (0: abort)."""
    keys = [key for _, _, key, _ in decode_keys(buffer, position)]
    return any(key is not None and key[2:4] == b"\0\0" for key in keys[:1])


class BatchReader:
    """Reads the records of a fetch response into sinks, from an offset on that may lie inside of a batch.

    `next_offset` is the next one to read. Control batches are passed over, and with `aborted` also those of
    transactions that were aborted.
    """

    def __init__(
        self,
        buffer: Buffer,
        next_offset: int,
        *,
        aborted: Iterable[tuple[int, int]] = (),
        check_crc: bool = True,
        max_size: int | None = None,
    ) -> None:
        self.next_offset = next_offset
        self._buffer = buffer
        self._at = 0
        self._end = len(buffer)
        self._aborted = AbortedTransactions(aborted)
        self._check_crc = check_crc
        self._max_size = max_size
        self._unpacked: tuple[int, Buffer] | None = None

    @property
    def done(self) -> bool:
        """Whether all whole batches have been read."""
        return self._end - self._at < BATCH_OVERHEAD

    @property
    def size(self) -> int:
        """How many bytes have not been read."""
        return self._end - self._at

    def read(self, sink: ColumnSink, max_rows: int = NO_LIMIT) -> None:
        """Fill the sink until it has `max_rows`, or is full, or there is no more.

        CorruptBatch is raised at a damaged batch; if records before it have been read, then by the next call.
        """
        before = sink.rows
        while self._take(sink, max_rows):
            try:
                if not self._read_batch(sink, max_rows):
                    return
            except CorruptBatch:
                if sink.rows > before:
                    return
                raise

    def _take(self, sink: ColumnSink, max_rows: int) -> bool:
        """Take all that can be taken at once; whether there is more."""
        self._at, self.next_offset = sink.take(
            self._buffer, self._at, self._end, self.next_offset, max_rows, self._check_crc
        )
        return sink.rows < max_rows and not self.done

    def _read_batch(self, sink: ColumnSink, max_rows: int) -> bool:
        """Read a batch that needs a closer look; False when the sink has no room for it."""
        header = read_header(self._buffer, self._at)
        if (problem := shape_problem(header)) is not None:
            raise CorruptBatch(self._at, problem)
        if header.size > self._end - self._at:
            self._at = self._end  # brokers cut a response where its size is reached
            return True
        if self._check_crc and header.next_offset > self.next_offset:
            check_batch(self._buffer, self._at, header)
        if self._aborted.drop(self._buffer, self._at, header):
            self.next_offset = max(self.next_offset, header.next_offset)
        elif header.next_offset > self.next_offset:
            reached = sink.add(self._payload_at(self._at), header, self._at, self.next_offset, max_rows)
            if reached < 0:
                return False
            self.next_offset = reached
            if reached < header.next_offset:
                return True
        self._at += header.size
        return True

    def _payload_at(self, position: int) -> Buffer:
        """Unpack a batch once, also when it is read in many parts."""
        if self._unpacked is None or self._unpacked[0] != position:
            self._unpacked = (position, _payload(self._buffer, position, self._max_size)[1])
        return self._unpacked[1]
