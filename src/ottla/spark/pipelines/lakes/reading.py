"""Read a Delta or Iceberg table as a DataFrame, without jars: tasks read its files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.spark.pipelines.lakes.contract import Bounds, Lake, LakeError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def read_lake(spark: SparkSession, lake: Lake, bounds: Mapping[str, Bounds] | None = None) -> DataFrame:
    """The rows of the current version of a table, or of the files that may have rows within bounds."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = lake.columns()
    if schema is None:
        raise LakeError(f"{lake.what} does not exist")
    files, found = lake.files(), lake.candidates(bounds or {})

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for one in batch.column(0).to_pylist():
                yield from files.read(pickle.loads(one))

    packed = [(pickle.dumps(one),) for one in found]
    tasks = spark.createDataFrame(packed, "file binary").repartition(max(len(packed), 1))
    return tasks.mapInArrow(read, from_arrow_schema(schema))
