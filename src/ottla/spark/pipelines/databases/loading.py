"""Bring the rows of a micro-batch to a staging table, as Arrow data.

Tasks copy their rows to Postgres themselves, at the same time. Files have one writer: the driver gets the rows of all
tasks in chunks, a few at a time.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.databases.connections import Place, opened
from ottla.spark.pipelines.databases.names import Name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ATTEMPT = "ottla_attempt"
#: The driver takes all rows of a batch at once if they are smaller than this, and otherwise parts of this size.
PART_BYTES = 16 << 20
_QUERY = "spark.sql.execution.id"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What tasks have copied: the attempts that succeeded, and how many rows they have."""

    attempts: tuple[int, ...]
    rows: int


def copy_from_tasks(frame: DataFrame, place: Place, stage: Name) -> Loaded:
    """Let every task copy its rows, with a number that tells its attempt from failed ones."""
    found = frame.mapInArrow(_copying(place, stage), "attempt bigint, count bigint").collect()
    return Loaded(tuple(row[0] for row in found if row[1]), sum(row[1] for row in found))


def _copying(place: Place, stage: Name) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        first = next((one for one in batches if one.num_rows), None)
        attempt, count = secrets.randbits(62), 0
        if first is not None:

            def numbered() -> Iterator[pa.RecordBatch]:
                nonlocal count
                for one in chain([first], batches):
                    count += one.num_rows
                    numbers = pa.repeat(pa.scalar(attempt, pa.int64()), one.num_rows)
                    yield pa.RecordBatch.from_arrays([*one.columns, numbers], names=[*one.schema.names, ATTEMPT])

            schema = first.schema.append(pa.field(ATTEMPT, pa.int64()))
            with opened(place) as connection, connection.transaction():
                connection.ingest(stage, pa.RecordBatchReader.from_batches(schema, _as(schema, numbered())))
        yield pa.RecordBatch.from_pydict({"attempt": [attempt], "count": [count]})

    return copy


def _as(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same data with one schema: batches may differ in what may be null."""
    import pyarrow as pa

    for one in batches:
        yield pa.RecordBatch.from_arrays(one.columns, schema=schema)


def chunks(frame: DataFrame) -> Iterator[pa.Table]:
    """The rows as Arrow tables of some thousand rows. All tasks compute them first; few chunks are here at a time."""
    import pyarrow as pa
    from pyspark import StorageLevel
    from pyspark.sql import functions as fn

    packed = frame.mapInArrow(_pack, "size bigint, data binary").persist(StorageLevel.MEMORY_AND_DISK)
    try:
        size = packed.agg(fn.sum("size")).collect()[0][0] or 0
        data = packed.select("data")
        for row in data.collect() if size <= PART_BYTES else _in_parts(data, math.ceil(size / PART_BYTES)):
            with pa.ipc.open_stream(row[0]) as reader:
                yield reader.read_all()
    finally:
        packed.unpersist()


def _in_parts(data: DataFrame, parts: int) -> Iterator[Any]:
    """The rows, with one part of them in the driver at a time.

    Spark keeps the results of the jobs of a query until the query ends. With `DataFrame.toLocalIterator` the query ends
    before its jobs begin, so that their results would stay in Java's memory. Jobs without a query are not kept.
    """
    context = data.sparkSession.sparkContext
    query = context.getLocalProperty(_QUERY)
    rdd = data.repartition(parts).rdd
    context.setLocalProperty(_QUERY, None)  # removes it
    try:
        rows: Iterator[Any] = rdd.toLocalIterator()
    finally:
        context.setLocalProperty(_QUERY, query)
    return rows


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        if batch.num_rows:
            target = pa.BufferOutputStream()
            with pa.ipc.new_stream(target, batch.schema) as writer:
                writer.write_batch(batch)
            data = target.getvalue()
            yield pa.RecordBatch.from_pydict({"size": [data.size], "data": [data.to_pybytes()]})
