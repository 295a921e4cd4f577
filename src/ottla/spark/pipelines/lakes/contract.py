"""What the sink needs from a table format. `delta.py` and `iceberg.py` have it.

A `Lake` is the table as the driver sees it: one version of it, until `refresh`. `TableFiles` go to the tasks with
everything that they need, and read and write single files. Files are values of the format, which pickle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ottla.errors import OttlaError

if TYPE_CHECKING:
    import pyarrow as pa

#: Table properties: the query that writes for a sink of a pipeline, and the last batch of a query.
WRITER, BATCH = "ottla.writer", "ottla.batch"


class LakeError(OttlaError):
    """A table cannot be used; the message says what to do."""


class Conflict(OttlaError):
    """Another writer has changed the table since `refresh`. Nothing was committed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values of one key column in a batch: `values` has all of them if they are few."""

    lowest: Any
    highest: Any
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does to the table."""

    query: str
    batch: int
    added: Sequence[Any]
    removed: Sequence[Any] = ()
    replaces_all: bool = False
    """Remove all files that the table has."""


class TableFiles(Protocol):
    """Reads and writes files of a table, in a task."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""

    def write(self, rows: pa.Table) -> list[Any]:
        """Write rows that have the columns of the table; returns the files, which are not part of the table yet."""

    def read(self, file: Any, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a file, always in the same order."""

    def discard(self, files: Sequence[Any]) -> None:
        """Delete written files that were not committed."""


class Lake(Protocol):
    """A table, in the driver."""

    @property
    def what(self) -> str:
        """The table in words: "the Delta table /tables/orders"."""

    @property
    def partitions(self) -> list[str]:
        """The columns that the table is partitioned by."""

    def columns(self) -> pa.Schema | None:
        """The columns; None if the table does not exist."""

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None: ...

    def add_columns(self, added: Sequence[pa.Field]) -> None: ...

    def properties(self) -> Mapping[str, str]: ...

    def set_property(self, name: str, value: str) -> None: ...

    def refresh(self) -> None: ...

    def last_batch(self, query: str) -> int:
        """The last committed batch of a query, or -1."""

    def files(self) -> TableFiles: ...

    def candidates(self, bounds: Mapping[str, Bounds]) -> list[Any]:
        """The files that may have rows with these keys; all files without bounds."""

    def commit(self, change: Change) -> None:
        """Commit in one transaction; raises Conflict if the table has changed since `refresh`."""
