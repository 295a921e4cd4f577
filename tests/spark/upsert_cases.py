"""Changes of rows as records, and what a table must contain after them; for Derby here and Postgres in compat."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines import DatabaseSink, JdbcSink, Pipeline, Source
from ottla.spark.pipelines.databases.connections import Place, opened
from ottla.spark.pipelines.databases.names import Name
from ottla.spark.pipelines.jdbc.drivers import driver_of, spark_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING, region INT, ts BIGINT, name STRING, op STRING"


@dataclass
class Changes:
    """Random changes of a few rows: repeated keys, older versions, deletes."""

    seed: int
    newest: dict[tuple[str, int], tuple[int, str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._version = 0

    def records(self, count: int) -> list[str]:
        return [self._record() for _ in range(count)]

    def _record(self) -> str:
        key = (f"k{self._random.randrange(12)}", self._random.randrange(2))
        self._version += 1
        # A deleted row leaves no version behind, so that only living rows get older changes.
        known = self.newest.get(key)
        late = known is not None and known[2] != "d" and self._random.random() < 0.3
        ts = self._random.randrange(known[0]) if late and known and known[0] else self._version
        op = "d" if self._random.random() < 0.15 else "u"
        value = (ts, f"v{self._version}", op)
        if known is None or ts >= known[0]:
            self.newest[key] = value
        return json.dumps({"id": key[0], "region": key[1], "ts": ts, "name": value[1], "op": op})

    @property
    def rows(self) -> list[tuple[str, int, int, str]]:
        """The rows of the table."""
        return sorted((*key, ts, name) for key, (ts, name, op) in self.newest.items() if op != "d")


def pipeline(directory: Path, servers: str, topic: str, *, most: int = 25, **sink: Any) -> Pipeline:
    return Pipeline(
        name="changes",
        checkpoint=str(directory / "state"),
        bootstrap_servers=servers,
        sources=[Source(name="changes", topics=[topic], schema=SCHEMA, max_offsets_per_trigger=most)],
        sinks=[(DatabaseSink if "format" in sink else JdbcSink)(name="base", **sink)],
    )


def upserts(**more: Any) -> dict[str, Any]:
    return {"keys": ["id", "region"], "sequence": "ts", "delete_when": "op = 'd'", "exclude": ["op"], **more}


def table_rows(sink: DatabaseSink) -> list[tuple[Any, ...]]:
    """The rows of a table of Postgres, SQLite or DuckDB."""
    where = sink.url if sink.format == "postgres" else sink.path
    place = Place(sink.format, where or "", sink.user, sink.password)
    with opened(place) as connection, connection.transaction():
        found = connection.table(f"SELECT * FROM {Name.of(sink.table)}")
    rows = [tuple(row.values()) for row in found.to_pylist()]
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


def stored(spark: SparkSession, sink: JdbcSink) -> list[tuple[Any, ...]]:
    driver = driver_of(sink.url)
    options = {"url": spark_url(sink.url), "dbtable": sink.table, "driver": driver and driver.name, "user": sink.user}
    frame = spark.read.format("jdbc").options(**{name: value for name, value in options.items() if value}).load()
    return sorted(map(tuple, frame.collect()))
