"""Write micro-batches into a Delta or Iceberg table, each exactly once.

    tasks    ──write files, which nobody sees yet──>  the directory of the table
    driver   ──one commit: files, query and batch──>  the log or the catalog of the table

A batch that is repeated after a crash finds its number and does nothing. Files that a failed attempt leaves are not
part of the table, and `ottla table optimize --vacuum` deletes them.
"""

from __future__ import annotations

import pickle
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.changes.history import is_history, with_later_versions
from ottla.spark.pipelines.columns import StepError
from ottla.spark.pipelines.declaration import VALID_FROM, LakeSink, Pipeline
from ottla.spark.pipelines.failures import WrittenError
from ottla.spark.pipelines.keyed import DELETED, columns_of, is_ordered, staged
from ottla.spark.pipelines.lakes.columns import chunks, conformed, missing_columns
from ottla.spark.pipelines.lakes.contract import WRITER, Change, Conflict, Lake, LakeError, TableFiles
from ottla.spark.pipelines.lakes.merging import PIECE_BYTES, bounds_of, bounds_of_ranges, remove, rewrite
from ottla.spark.pipelines.lakes.opening import open_lake
from ottla.spark.pipelines.lakes.reading import read_lake
from ottla.spark.pipelines.schemas import quoted
from ottla.spark.pipelines.written import Writer, check_written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ottla.spark.pipelines.backfill.plan import Range

_ATTEMPTS = 20
_WAIT_SECONDS = 0.05
_NO_PARTITION = ("array", "map", "struct", "binary", "float", "double", "variant")
#: Spark takes 0.0 and -0.0 for the same value, and Arrow does not; NaN has no place in statistics.
_NO_KEY = ("array", "map", "struct", "variant", "float", "double")


def write_lake(
    pipeline: Pipeline, sink: LakeSink, frame: DataFrame, writer: Writer | None
) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`. Creates the table or checks it; `frame` has the columns."""
    if writer is None:
        raise LakeError(f"a {sink.format} sink requires a classic Spark session: it does not work with Spark Connect")
    return LakeWriter(sink, open_lake(pipeline, sink), frame, writer.query, owner=writer).write


class LakeWriter:
    """Writes the batches of one query."""

    def __init__(
        self, sink: LakeSink, lake: Lake, frame: DataFrame, query: str, *, owner: Writer | None = None
    ) -> None:
        """`owner` is the only query that may write for the sink, except backfills."""
        self._sink = sink
        self._lake = lake
        self._query = query
        self._columns = columns_of(sink, frame)
        self._ordered = not sink.keys or is_ordered(sink, frame)
        if owner is not None:
            self._check_owner(owner)
        self._prepare(frame)
        self._keys, self._sequence = self._spelled(sink.keys), next(iter(self._spelled(_sequence(sink))), None)
        if owner is not None:
            lake.set_property(_owner(owner), query)

    # ── Before the first batch ────────────────────────────────────────────────────────────────────────────────────────

    def _prepare(self, frame: DataFrame) -> None:
        sink, lake = self._sink, self._lake
        rows = frame.select(*map(quoted, self._columns))
        for key, names, odd in (("partition_by", sink.partition_by, _NO_PARTITION), ("keys", sink.keys, _NO_KEY)):
            for name in names:
                kind = next(one for one in rows.schema if one.name.lower() == name.lower()).dataType.typeName()
                if kind in odd:
                    raise StepError(f"sink {sink.name}: {key} has {name}, which is {kind}: use a simpler column", key)
        schema = arrow_schema(rows)
        known = lake.columns()
        if known is None:
            lake.create(schema, sink.partition_by)
            known = lake.columns()
        if sink.partition_by and [one.lower() for one in sink.partition_by] != [one.lower() for one in lake.partitions]:
            has = f"partition_by = {_list(lake.partitions)}" if lake.partitions else "no partition_by"
            raise StepError(
                f"sink {sink.name}: {lake.what} has other partitions: set {has}, or write to another table",
                "partition_by",
            )
        try:
            added = missing_columns(schema, known, lake.what)
        except LakeError as error:
            raise StepError(f"sink {sink.name}: {error}", "table" if sink.table else "path") from None
        if added:
            lake.add_columns(added)

    def _spelled(self, names: Sequence[str]) -> list[str]:
        """The names as the table writes them: Spark does not distinguish upper and lower case, Arrow does."""
        known = {one.name.lower(): one.name for one in self._lake.columns() or ()}
        return [known[name.lower()] for name in names]

    def _check_owner(self, writer: Writer) -> None:
        """Refuse a table with rows of another checkpoint of this sink."""
        lake = self._lake
        if lake.columns() is None:
            return
        if lake.properties().get(_owner(writer), writer.query) != writer.query:
            raise WrittenError(
                f"{lake.what} has rows of sink {writer.sink} of pipeline {writer.pipeline} with another checkpoint "
                f"than {writer.checkpoint}. They would be written a second time. Restore the other checkpoint. Or, to "
                f"start again from the beginning, {writer.reset}, or write to another table"
            )
        check_written(lake.what, lake.last_batch(writer.query), writer)

    # ── Batches ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, frame: DataFrame, batch: int) -> None:
        """Write a batch, unless it was written before."""
        lake = self._lake
        lake.refresh()
        if lake.last_batch(self._query) >= batch:
            # Spark updates the state of dedupes and windows only if the batch is computed.
            frame.write.format("noop").mode("overwrite").save()
        elif self._sink.keys:
            self._upsert(frame, batch)
        else:
            self._replace(frame, batch)

    def _replace(self, frame: DataFrame, batch: int) -> None:
        """Append the rows, or replace all rows by them."""
        replaces_all = self._sink.mode == "overwrite"
        added = self._written(frame.select(*map(quoted, self._columns)))
        if added or replaces_all:
            self._commit(batch, lambda: Change(self._query, batch, added, replaces_all=replaces_all), again=False)

    def replace(self, frame: DataFrame, ranges: Sequence[Range]) -> None:
        """Replace the rows of these records, or merge them with keys, in one commit."""
        lake = self._lake
        lake.refresh()
        batch = lake.last_batch(self._query) + 1
        if self._sink.keys:
            self._upsert(frame, batch)
        else:
            self._commit(batch, lambda: self._replaced(frame, ranges, batch))

    def _replaced(self, frame: DataFrame, ranges: Sequence[Range], batch: int) -> Change:
        """Write files without the rows of the records, and files with the new ones."""
        files, context = self._lake.files(), frame.sparkSession.sparkContext
        found = self._lake.candidates(bounds_of_ranges(ranges))
        tasks = context.parallelize(found, max(len(found), 1)).map(lambda file: remove(files, file, ranges))
        changed = [one for one in tasks.collect() if one.added is not None] if found else []
        added = [file for one in changed for file in one.added]
        try:
            added += self._written(frame.select(*map(quoted, self._columns)))
        except BaseException:
            files.discard(added)
            raise
        return Change(self._query, batch, added, [one.file for one in changed])

    def _upsert(self, frame: DataFrame, batch: int) -> None:
        from pyspark import StorageLevel

        rows = staged(self._sink, frame).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            keys = self._changed_keys(rows)
            if len(keys):
                self._commit(batch, lambda: self._change(rows, keys, batch))
        finally:
            rows.unpersist()

    def _changed_keys(self, rows: DataFrame) -> pa.Table:
        """The keys of a batch with their sequences, in memory, with the types of the table."""
        import pyarrow as pa

        names = list(dict.fromkeys([*self._keys, *([self._sequence] if self._sequence else [])]))
        found = rows.select(*map(quoted, names)).toArrow()
        schema = self._lake.columns()
        assert schema is not None
        found = conformed(found, pa.schema([(name, schema.field(name).type) for name in names]))
        if not self._ordered and len(found.group_by(self._keys).aggregate([])) < len(found):
            raise LakeError(
                f"{self._lake.what}: a micro-batch has two rows with the same keys ({', '.join(self._sink.keys)}), and "
                "nothing says which is newer: set sequence in the sink"
            )
        return found

    def _change(self, rows: DataFrame, keys: pa.Table, batch: int) -> Change | None:
        """What a batch does to the table as it is now; None if nothing."""
        if not is_history(self._columns):
            return self._merged(rows, keys, batch)
        names = [name for name in self._keys if name != VALID_FROM]
        touched = rows.select(*map(quoted, names)).distinct()
        near = read_lake(rows.sparkSession, self._lake, bounds_of(keys, names))
        # With all columns of the table: the pipeline may have fewer, and their values must stay.
        stored = near.join(touched, names, "left_semi").select(*map(quoted, near.columns))
        new = rows.select(*map(quoted, self._columns))
        found = with_later_versions(new, stored, names).selectExpr("*", f"0 AS {DELETED}").persist()
        try:
            keys = self._changed_keys(found)
            return self._merged(found, keys, batch) if len(keys) else None
        finally:
            found.unpersist()

    def _merged(self, rows: DataFrame, keys: pa.Table, batch: int) -> Change:
        """Write files without the replaced rows, and files with the new ones."""
        import pyarrow as pa

        lake, names, sequence = self._lake, self._keys, self._sequence
        files = lake.files()
        found = lake.candidates(bounds_of(keys, names))
        context = rows.sparkSession.sparkContext
        shared = context.broadcast(_packed(keys))
        added: list[Any] = []
        columns = [quoted(name) for name in rows.columns if name != DELETED]

        def task(file: Any) -> Any:
            return rewrite(files, file, _unpacked(shared.value), names, sequence)

        try:
            done = context.parallelize(found, len(found)).map(task).collect() if found else []
            changed = [one for one in done if one.added is not None]
            newer = [one.newer for one in done if one.newer is not None]
            added += [file for one in changed for file in one.added]
            kept = rows.where(f"{DELETED} = 0").select(*columns)
            if newer:
                stored = rows.sparkSession.createDataFrame(pa.concat_tables(newer))
                kept = kept.join(stored, names, "left_anti").select(*columns)
            added += self._written(kept)
        except BaseException:
            files.discard(added)
            raise
        finally:
            shared.destroy()
        return Change(self._query, batch, added, [one.file for one in changed])

    def _written(self, rows: DataFrame) -> list[Any]:
        """Write rows to files, in tasks."""
        files, known = self._lake.files(), {name.lower() for name in rows.columns}
        partitions = [name for name in self._lake.partitions if name.lower() in known]
        if partitions:  # each value is written by one task: fewer and larger files
            rows = rows.repartition(*map(quoted, partitions)).sortWithinPartitions(*map(quoted, partitions))
        found = rows.mapInArrow(writing(files, self._lake.what), "file binary").collect()
        return [pickle.loads(bytes(row[0])) for row in found]

    def _commit(self, batch: int, make: Callable[[], Change | None], *, again: bool = True) -> None:
        """Commit a change. If another writer was first, make it `again` from the new table, if it depends on that."""
        lake = self._lake
        change = make()
        for attempt in range(_ATTEMPTS):
            if change is None:
                return
            try:
                lake.commit(change)
                return
            except Conflict as error:
                lake.refresh()
                if lake.last_batch(self._query) >= batch:
                    return  # the answer was lost, or the same query runs elsewhere, too
                if attempt == _ATTEMPTS - 1:
                    lake.files().discard(change.added)
                    raise LakeError(f"{error}. Other writers were faster {_ATTEMPTS} times: run it again") from None
                time.sleep(_WAIT_SECONDS * (attempt + 1) * random.random())
                if again:  # the files of the table are others now
                    lake.files().discard(change.added)
                    change = make()


def writing(files: TableFiles, what: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: writes the rows of a task, and returns the pickled files."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        written: list[Any] = []
        try:
            for rows in chunks(batches, PIECE_BYTES):
                written += files.write(conformed(rows, files.schema, what))
        except BaseException:
            files.discard(written)
            raise
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(one) for one in written], pa.binary())], ["file"])

    return write


def arrow_schema(rows: DataFrame) -> pa.Schema:
    """The columns of rows as Arrow's; all may be null, because a table outlives a pipeline."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    found = to_arrow_schema(rows.schema, timezone="UTC")
    return pa.schema([pa.field(one.name, one.type) for one in found])


def _packed(table: pa.Table) -> bytes:
    import pyarrow as pa

    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return bytes(out.getvalue())


def _unpacked(data: bytes) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()


def _owner(writer: Writer) -> str:
    """The table property with the query of a sink."""
    return f"{WRITER}.{writer.pipeline}.{writer.sink}"


def _sequence(sink: LakeSink) -> list[str]:
    return [sink.sequence] if sink.sequence else []


def _list(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
