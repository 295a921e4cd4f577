"""Read the origins of the rows of a table back, for the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.audit.positions import AuditError
from ottla.spark.pipelines.databases.connections import DatabaseError
from ottla.spark.pipelines.databases.names import Name
from ottla.spark.pipelines.databases.sink import place_of
from ottla.spark.pipelines.databases.tables import read_columns
from ottla.spark.pipelines.declaration import ORIGIN, DatabaseSink, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_origin(sink: DatabaseSink, pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """A frame with `_topic`, `_partition` and `_offset`, or an empty one with the columns that the table has."""
    try:
        known, found = read_columns(place_of(sink, pipeline), Name.of(sink.table), ORIGIN[:3])
    except DatabaseError as error:
        raise AuditError(str(error)) from None
    if found is None:
        return spark.createDataFrame([], ", ".join(f"`{name}` string" for name in known or ["nothing"]))
    frame: DataFrame = spark.createDataFrame(found)
    return frame
