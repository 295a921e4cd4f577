"""A Delta table through the package deltalake.

A batch is one commit: the added and removed files, and Delta's application transaction with the query and the batch.
Delta refuses a commit if another writer has committed the same application transaction in the meantime.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import uuid4

from ottla.spark.pipelines.lakes.columns import conformed
from ottla.spark.pipelines.lakes.contract import Bounds, Change, Conflict, LakeError
from ottla.spark.pipelines.lakes.secrets import Secrets
from ottla.spark.pipelines.lakes.statistics import statistics_of

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("ottla.spark")

#: What other engines may add to a table that this sink cannot honour.
_UNSUPPORTED = (
    "columnMapping",
    "generatedColumns",
    "identityColumns",
    "checkConstraints",
    "rowTracking",
    "icebergCompatV1",
)
_SETTINGS = ("delta.columnMapping.mode", "delta.constraints.")
_OF_COLUMNS = ("delta.generationExpression", "delta.identity.", "delta.invariants")
_READ_ROWS = 64 * 1024
#: Values that are the same in a directory name, in the log and in a URL, and that file systems take.
_IN_A_PATH = re.compile(r"[A-Za-z0-9_.-]{1,100}")
#: Other writers cut off the microseconds of timestamps in statistics. So does the compaction of deltalake.
_STATISTICS_STEP = datetime.timedelta(milliseconds=1)
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Written:
    """A new file of a table."""

    path: str
    size: int
    partition: Mapping[str, str | None]
    statistics: str
    rows: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that is part of the table."""

    path: str
    size: int
    partition: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """Files of a Delta table, for tasks."""

    uri: str
    storage: Mapping[str, str]
    schema: Any
    partitions: Sequence[str]

    def write(self, rows: pa.Table) -> list[Written]:
        return [self._write_one(part, values) for part, values in self._split(rows)]

    def _split(self, rows: pa.Table) -> Iterator[tuple[pa.Table, dict[str, Any]]]:
        """The rows of each combination of partition values."""
        import pyarrow.compute as pc

        if not self.partitions:
            yield rows, {}
            return
        for values in rows.select(self.partitions).group_by(self.partitions).aggregate([]).to_pylist():
            mask = None
            for name, value in values.items():
                same = pc.is_null(rows[name]) if value is None else pc.fill_null(pc.equal(rows[name], value), False)
                mask = same if mask is None else pc.and_(mask, same)
            yield rows.filter(mask), values

    def _write_one(self, rows: pa.Table, values: Mapping[str, Any]) -> Written:
        import pyarrow.parquet as pq

        texts = {name: _partition_text(value) for name, value in values.items()}
        empty = next((name for name, text in texts.items() if text == ""), None)
        if empty is not None:
            raise LakeError(
                f"column {empty} of the Delta table {self.uri} has an empty text. Delta reads that as NULL in a column "
                f"of partition_by: use NULLIF({empty}, '') in a step, or remove {empty} from partition_by"
            )
        path = f"{_directory(texts)}part-{uuid4()}.parquet"
        system = self._system()
        try:
            with system.open_output_stream(path) as out:
                writer = pq.ParquetWriter(out, rows.drop_columns(list(values)).schema, compression="snappy")
                with writer:
                    writer.write_table(rows.drop_columns(list(values)))
                size = out.tell()
        except Exception:
            self._delete(system, path)
            raise
        found = statistics_of(rows.drop_columns(list(values)))
        return Written(path, size, texts, json.dumps(found), len(rows))

    def read(self, file: Stored, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [one.name for one in self.schema] if columns is None else list(columns)
        wanted = pa.schema([self.schema.field(name) for name in names])
        with self._system().open_input_file(file.path) as opened:
            # Spark writes timestamps as INT96. In nanoseconds, those of 9999 would not fit.
            there = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")
            stored = [name for name in names if name in there.schema_arrow.names and name not in file.partition]
            for batch in there.iter_batches(_READ_ROWS, columns=stored):
                rows = pa.Table.from_batches([batch])
                for name in [one for one in names if one in file.partition]:
                    kind = wanted.field(name).type
                    value = pa.scalar(file.partition[name], kind)
                    rows = rows.append_column(name, pa.repeat(value, batch.num_rows))
                if not rows.column_names:  # none of the columns is stored: they were added later
                    rows = pa.table({name: pa.nulls(batch.num_rows, wanted.field(name).type) for name in names})
                yield from conformed(rows, wanted).to_batches()

    def discard(self, files: Sequence[Written]) -> None:
        system = self._system()
        for file in files:
            self._delete(system, file.path)

    @staticmethod
    def _delete(system: Any, path: str) -> None:
        try:
            system.delete_file(path)
        except Exception as error:
            # It is not part of the table, so a vacuum removes it later.
            log.warning("the file %s of an unfinished batch could not be deleted: %s", path, type(error).__name__)

    def _system(self) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.uri, dict(self.storage)))


class DeltaLake:
    """A Delta table, in the driver."""

    def __init__(self, uri: str, storage: Mapping[str, str], properties: Mapping[str, str] | None = None) -> None:
        self.uri = uri
        self.what = f"the Delta table {uri}"
        self._storage = dict(storage)
        self._properties = dict(properties or {})
        self.secrets = Secrets(storage)
        self._table: Any = self._opened()

    def _opened(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with self.secrets.told(f"cannot open {self.what}"):
            try:
                return DeltaTable(self.uri, storage_options=self._storage)
            except TableNotFoundError:
                return None

    # ── The table ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def table(self) -> Any:
        """The table of the package deltalake."""
        if self._table is None:
            raise LakeError(f"{self.what} does not exist")
        return self._table

    @property
    def partitions(self) -> list[str]:
        return list(self.table.metadata().partition_columns)

    def columns(self) -> pa.Schema | None:
        import pyarrow as pa

        if self._table is None:
            return None
        self._check_features()
        return pa.schema(self._table.schema().to_arrow())

    def _check_features(self) -> None:
        protocol, found = self._table.protocol(), self._table.metadata().configuration
        used = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
        odd = [name for name in _UNSUPPORTED if name in used]
        odd += [name for name, value in found.items() if name.startswith(_SETTINGS) and value != "none"]
        odd += [name for one in self._table.schema().fields for name in one.metadata if name.startswith(_OF_COLUMNS)]
        if odd:
            raise LakeError(
                f"{self.what} uses {', '.join(odd)}, which this sink does not support: write to another table"
            )

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        from deltalake import DeltaTable

        if "://" not in self.uri:
            os.makedirs(self.uri, exist_ok=True)
        with self.secrets.told(f"cannot create {self.what}"):
            self._table = DeltaTable.create(
                self.uri,
                schema,
                mode="ignore",
                partition_by=list(partition_by),
                configuration=self._properties,
                storage_options=self._storage,
                raise_if_key_not_exists=False,
            )

    def add_columns(self, added: Sequence[pa.Field]) -> None:
        from deltalake import Schema

        with self.secrets.told(f"cannot add columns to {self.what}"):
            self.table.alter.add_columns(Schema.from_arrow(_schema(added)).fields)
        self.refresh()

    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.table.metadata().configuration
        return found

    def set_property(self, name: str, value: str) -> None:
        if self.properties().get(name) == value:
            return
        with self.secrets.told(f"cannot set a property of {self.what}"):
            self.table.alter.set_table_properties({name: value}, raise_if_not_exists=False)
        self.refresh()

    def refresh(self) -> None:
        with self.secrets.told(f"cannot read {self.what}"):
            self.table.update_incremental()

    def last_batch(self, query: str) -> int:
        found = self.table.transaction_version(query)
        return -1 if found is None else int(found)

    # ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def files(self) -> DeltaFiles:
        return DeltaFiles(self.uri, self._storage, self.columns(), self.partitions)

    def candidates(self, bounds: Mapping[str, Bounds]) -> list[Stored]:
        import pyarrow as pa

        features = self.table.protocol().reader_features or ()
        if "deletionVectors" in features and len(pa.table(self.table.deletion_vectors())):
            raise LakeError(
                f"{self.what} has rows that are deleted by deletion vectors, which this sink cannot read: run REORG "
                "TABLE … APPLY (PURGE) and set delta.enableDeletionVectors = false with the engine that wrote them"
            )
        found = pa.table(self.table.get_add_actions(flatten=True))
        partitions = self.partitions
        for name, wanted in bounds.items():
            found = found.filter(_may_have(found, name, wanted))
        return [
            Stored(unquote(one["path"]), one["size_bytes"], {name: one[f"partition.{name}"] for name in partitions})
            for one in found.to_pylist()
        ]

    def commit(self, change: Change) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        if (change.removed or change.replaces_all) and self.properties().get("delta.appendOnly") == "true":
            raise LakeError(
                f"{self.what} has delta.appendOnly = true, and this batch replaces rows: use mode append without keys, "
                "or set the property to false"
            )
        now = int(time.time() * 1000)
        actions: list[Any] = [
            AddAction(one.path, one.size, dict(one.partition), now, True, one.statistics) for one in change.added
        ]
        actions += [
            RemoveAction(one.path, True, now, one.size, {name: _partition_text(v) for name, v in one.partition.items()})
            for one in change.removed
        ]
        known = CommitProperties(
            custom_metadata={"ottla.query": change.query, "ottla.batch": change.batch},
            max_commit_retries=0,
            app_transactions=[Transaction(change.query, change.batch)],
        )
        with self.secrets.told(f"cannot commit to {self.what}", Conflict, CommitFailedError):
            self.table.create_write_transaction(
                actions,
                "overwrite" if change.replaces_all else "append",
                self.table.schema(),
                partition_by=self.partitions,
                commit_properties=known,
            )
        self.refresh()


def _schema(fields: Sequence[pa.Field]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(fields)


def _may_have(files: pa.Table, name: str, wanted: Bounds) -> Any:
    """Which files may have rows with these values, by their partition values or statistics."""
    import pyarrow as pa
    import pyarrow.compute as pc

    everything = pa.array([True] * len(files), pa.bool_())
    partition, low, high = f"partition.{name}", f"min.{name}", f"max.{name}"
    if partition in files.column_names and wanted.values is not None:
        return pc.is_in(files[partition], value_set=pa.array(wanted.values, files[partition].type))
    is_exact = partition in files.column_names
    lower, upper = (partition, partition) if is_exact else (low, high)
    for column, compare, add, end in (
        (upper, pc.greater_equal, pc.add, wanted.lowest),
        (lower, pc.less_equal, pc.subtract, wanted.highest),
    ):
        if column not in files.column_names:
            continue
        found, kind = files[column], files[column].type
        if not is_exact and pa.types.is_decimal(kind):
            continue  # other writers go through a double, and cut off what is too large for 64 bits
        if not is_exact and pa.types.is_timestamp(kind):
            found = add(found, pa.scalar(_STATISTICS_STEP, pa.duration(kind.unit)))
        everything = pc.and_(everything, pc.fill_null(compare(found, pa.scalar(end, kind)), True))
    return everything


def _partition_text(value: Any) -> str | None:
    """A partition value as the log has it.

    >>> _partition_text(datetime.date(2026, 11, 1)), _partition_text(True), _partition_text(None)
    ('2026-11-01', 'true', None)
    >>> _partition_text(datetime.datetime(1, 1, 1))
    '0001-01-01 00:00:00.000000'
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        value = value.isoformat(" ", "microseconds")
    return str(value)


def _directory(texts: Mapping[str, str | None]) -> str:
    """Directories like Hive's, where the values allow it. Only people use them: the log has the values.

    >>> _directory({"day": "2026-11-01", "shop": None}), _directory({"shop": "a/b"})
    ('day=2026-11-01/shop=__HIVE_DEFAULT_PARTITION__/', '')
    """
    parts = {name: NO_VALUE if text is None else text for name, text in texts.items()}
    if not all(_IN_A_PATH.fullmatch(part) for pair in parts.items() for part in pair):
        return ""
    return "".join(f"{name}={text}/" for name, text in parts.items())
