"""An Iceberg table through the package pyiceberg.

A batch is one snapshot. Its properties have the query and the batch, and so has a table property that is set in the
same commit: snapshots expire, and the property stays.

Iceberg gives every table hidden columns, such as `_partition`, and Spark cannot read a table with a column of such a
name. So a name of them has an underscore at the end in the table: `_partition_`. Only this module knows it.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ottla.spark.pipelines.lakes.contract import BATCH, Bounds, Change, Conflict, LakeError
from ottla.spark.pipelines.lakes.secrets import Secrets

if TYPE_CHECKING:
    import pyarrow as pa

#: Of new tables: each batch is a commit, so that lists of files would grow without end.
PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
#: The names of Iceberg's metadata columns.
RESERVED = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
)
DATA_PATH = "write.data.path"
_RETRIES = "commit.retry.num-retries"


@dataclass(frozen=True, slots=True)
class IcebergFiles:
    """Files of an Iceberg table, for tasks."""

    metadata: Any
    io: Any

    @property
    def schema(self) -> Any:
        return _arrow(self.metadata.schema())

    def write(self, rows: pa.Table) -> list[Any]:
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        names = self.metadata.schema().column_names
        stored = rows.rename_columns([_stored(name, names) for name in rows.column_names])
        return list(_dataframe_to_data_files(self.metadata, stored, self.io, uuid4()))

    def read(self, file: Any, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        schema = self.metadata.schema()
        given = self.schema.names if columns is None else list(columns)
        names = [_stored(name, schema.column_names) for name in given]
        wanted = schema.select(*names)
        batches: Iterator[pa.RecordBatch] = ArrowScan(self.metadata, self.io, wanted, AlwaysTrue()).to_record_batches(
            [file]
        )
        for batch in batches:
            yield batch.select(names).rename_columns(given)

    def discard(self, files: Sequence[Any]) -> None:
        for file in files:
            with suppress(Exception):  # optimize with vacuum deletes it
                self.io.delete(file.file_path)


class IcebergLake:
    """An Iceberg table, in the driver."""

    def __init__(
        self,
        name: str,
        catalog: Mapping[str, str],
        storage: Mapping[str, str],
        properties: Mapping[str, str] | None = None,
    ) -> None:
        from pyiceberg.catalog import load_catalog

        self.name = name
        self.what = f"the Iceberg table {name}"
        self._properties = {**PROPERTIES, **(properties or {})}
        self.secrets = Secrets({**catalog, **storage})
        given = {**catalog, **storage}
        with self.secrets.told(f"cannot open the catalog of {self.what}"):
            self.catalog: Any = load_catalog(given.pop("name", None), **given)
        # A SQL catalog keeps connections open.
        weakref.finalize(self, self.catalog.close)
        self._table: Any = self._opened()

    def _opened(self) -> Any:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with self.secrets.told(f"cannot open {self.what}"):
            try:
                return self.catalog.load_table(self.name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    # ── The table ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def table(self) -> Any:
        """The table of the package pyiceberg."""
        if self._table is None:
            raise LakeError(f"{self.what} does not exist")
        return self._table

    @property
    def partitions(self) -> list[str]:
        schema = self.table.schema()
        return [_given(schema.find_column_name(one.source_id)) for one in self.table.spec().fields]

    def columns(self) -> pa.Schema | None:
        return None if self._table is None else _arrow(self._table.schema())

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        namespace = self.name.rpartition(".")[0]
        with self.secrets.told(f"cannot create {self.what}"):
            self.catalog.create_namespace_if_not_exists(namespace)
            transaction = self.catalog.create_table_transaction(
                self.name, _renamed(schema), properties=self._properties
            )
            # A table that was renamed keeps its location, so that the next one of that name has the same one.
            data = f"{transaction.table_metadata.location}/data-{uuid4().hex[:8]}"
            transaction.set_properties({DATA_PATH: self._properties.get(DATA_PATH, data)})
            with transaction.update_spec() as spec:
                for name in partition_by:
                    spec.add_identity(_stored(name))
            transaction.commit_transaction()
            self._table = self.catalog.load_table(self.name)

    def add_columns(self, added: Sequence[pa.Field]) -> None:
        import pyarrow as pa

        with self.secrets.told(f"cannot add columns to {self.what}"), self.table.update_schema() as update:
            update.union_by_name(_renamed(pa.schema(added)))

    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.table.properties
        return found

    def set_property(self, name: str, value: str) -> None:
        if self.properties().get(name) == value:
            return
        with self.secrets.told(f"cannot set a property of {self.what}"), self.table.transaction() as transaction:
            transaction.set_properties({name: value})

    def rename(self, to: str) -> None:
        """Give the table another name in its catalog."""
        with self.secrets.told(f"cannot rename {self.what} to {to}"):
            self.catalog.rename_table(self.name, to)

    def refresh(self) -> None:
        with self.secrets.told(f"cannot read {self.what}"):
            self.table.refresh()

    def last_batch(self, query: str) -> int:
        return int(self.table.properties.get(f"{BATCH}.{query}", -1))

    # ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def files(self) -> IcebergFiles:
        return IcebergFiles(self.table.metadata, self.table.io)

    def candidates(self, bounds: Mapping[str, Bounds]) -> list[Any]:
        from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, In, LessThanOrEqual

        wanted: Any = AlwaysTrue()
        names = self.table.schema().column_names
        for name, one in ((_stored(given, names), one) for given, one in bounds.items()):
            if one.values is not None:
                wanted = And(wanted, In(name, one.values))
            else:
                wanted = And(wanted, GreaterThanOrEqual(name, one.lowest), LessThanOrEqual(name, one.highest))
        with self.secrets.told(f"cannot read the list of files of {self.what}"):
            return list(self.table.scan(row_filter=wanted).plan_files())

    def commit(self, change: Change) -> None:
        removed = self.candidates({}) if change.replaces_all else change.removed
        known = {"ottla.query": change.query, "ottla.batch": str(change.batch)}
        noted = {f"{BATCH}.{change.query}": str(change.batch)}
        self._commit([one.file for one in removed], change.added, known, noted)

    def rewrite(self, removed: Sequence[Any], added: Sequence[Any]) -> None:
        """Replace files by others with the same rows."""
        self._commit(removed, added, {"ottla.operation": "compact"}, {})

    def _commit(
        self, removed: Sequence[Any], added: Sequence[Any], snapshot: Mapping[str, str], noted: Mapping[str, str]
    ) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        # A retry of the package's own would not see that another process has committed the same batch. Only this copy
        # of the properties changes.
        self.table.metadata.properties[_RETRIES] = "0"
        conflicts = (CommitFailedException, ValidationException)
        with self.secrets.told(f"cannot commit to {self.what}", Conflict, *conflicts), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            transaction = self.table.transaction()
            update = transaction.update_snapshot(snapshot_properties=dict(snapshot))
            with update.overwrite() if removed else update.merge_append() as files:
                for one in removed:
                    files.delete_data_file(one)
                for one in added:
                    files.append_data_file(one)
            if noted:
                transaction.set_properties(dict(noted))
            transaction.commit_transaction()


def _arrow(schema: Any) -> Any:
    """The columns as Arrow's, without the field ids, with the names that a pipeline gives them."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    found = [one.remove_metadata() for one in schema_to_pyarrow(schema, include_field_ids=False)]
    return pa.schema([one.with_name(_given(one.name)) for one in found])


def _renamed(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([one.with_name(_stored(one.name)) for one in schema])


def _stored(name: str, known: Sequence[str] = ()) -> str:
    """The name in the table of a column of a pipeline. `known` are the columns of the table: an old one has `name`.

    >>> _stored("_partition"), _stored("_partition", ["_partition", "id"]), _stored("id")
    ('_partition_', '_partition', 'id')
    """
    return f"{name}_" if name.lower() in RESERVED and name not in known else name


def _given(name: str) -> str:
    """The name in a pipeline of a column of the table."""
    return name[:-1] if name.endswith("_") and name[:-1].lower() in RESERVED else name
