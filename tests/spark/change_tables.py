"""Tables of every format that applies changes: how a sink is declared, and how its rows are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ottla.spark.pipelines import DatabaseSink, JdbcSink, LakeSink, Pipeline
from ottla.spark.pipelines.databases.connections import opened
from ottla.spark.pipelines.databases.sink import place_of
from ottla.spark.pipelines.declaration import Sink
from ottla.spark.pipelines.lakes.opening import open_lake
from ottla.spark.pipelines.lakes.reading import read_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: SQLite is the quickest, and the others are for `make spark`. Derby is a database of the jdbc sink.
OTHERS = [pytest.param(one, marks=pytest.mark.long) for one in ("derby", "delta", "iceberg", "duckdb")]
FORMATS = ["sqlite", *OTHERS]


@dataclass(frozen=True)
class Tables:
    """Tables in a directory."""

    kind: str
    directory: Path
    spark: SparkSession
    base: str = field(default_factory=lambda: uuid4().hex)

    def sink(self, name: str, **more: Any) -> Sink:
        """A sink of this kind, whose table has its name."""
        where = str(self.directory)
        if self.kind == "delta":
            return LakeSink(name=name, format="delta", path=f"{where}/{name}", **more)
        if self.kind == "iceberg":
            catalog = {"type": "sql", "uri": f"sqlite:///{where}/catalog.db", "warehouse": f"file://{where}/tables"}
            return LakeSink(name=name, format="iceberg", table=f"shop.{name}", catalog=catalog, **more)
        if self.kind != "derby":
            return DatabaseSink(name=name, format=self.kind, path=f"{where}/{self.kind}.db", table=name, **more)
        return JdbcSink(name=name, url=f"jdbc:derby:memory:{self.base};create=true", table=name, **more)

    def rows(self, pipeline: Pipeline, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows of the table of a sink."""
        frame = self._frame(pipeline, next(one for one in pipeline.sinks if one.name == name))
        return sorted(map(tuple, frame.selectExpr(*columns or frame.columns).collect()), key=str)

    def _frame(self, pipeline: Pipeline, sink: Sink) -> DataFrame:
        if isinstance(sink, LakeSink):
            return read_lake(self.spark, open_lake(pipeline, sink))
        if isinstance(sink, DatabaseSink):
            with opened(place_of(sink, pipeline)) as connection, connection.transaction():
                return self.spark.createDataFrame(connection.table(f"SELECT * FROM {sink.table}"))
        assert isinstance(sink, JdbcSink)
        return self.spark.read.format("jdbc").options(url=sink.url, dbtable=sink.table).load()
