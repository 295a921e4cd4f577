from ottla.records.buffers import Buffer
from ottla.records.column_values import (
    BytesColumn,
    Columns,
    EncodedColumns,
    HeadersColumn,
    NumbersColumn,
    PartitionRows,
)
from ottla.records.header import BatchHeader

class ColumnSink:
    rows: int

    def __init__(self, size_hint: int = 0) -> None: ...
    def take(self, buffer: Buffer, position: int, end: int, next_offset: int, max_rows: int) -> tuple[int, int]: ...
    def add(self, payload: Buffer, header: BatchHeader, position: int, next_offset: int, max_rows: int) -> int: ...
    def finish(self) -> Columns: ...

class ColumnSource:
    rows: int

    def __init__(
        self,
        rows: int,
        key: BytesColumn | None = None,
        value: BytesColumn | None = None,
        timestamp: NumbersColumn | None = None,
        headers: HeadersColumn | None = None,
    ) -> None: ...
    def encode(
        self, order: Buffer | None, start: int, stop: int, limit: int, default_timestamp: int
    ) -> EncodedColumns: ...
    def partition_rows(
        self,
        assigned: NumbersColumn | None,
        count: int,
        spread: Buffer,
        turn: int,
        run_bytes: int,
        hash_keys: bool = True,
    ) -> PartitionRows: ...
