"""The sides of an audit as frames: source records, target rows, dead letters.

Wrong columns, expressions and tables are reported here, before a job runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ottla.spark.audit.plan import KEY, ORIGIN, header, header_place, target_side
from ottla.spark.audit.positions import AuditError, Bounds, source_bounds
from ottla.spark.offsets import to_json
from ottla.spark.options import ReadOptions
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
#: The default key to compare two topics.
WHOLE_RECORD = "struct(key, value)"
#: The headers of a topic sink with `origin = true`.
ORIGIN_HEADERS = "origin-"
_VALUE_BYTES = 200

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The columns of a table with the origin of a row. Without a topic column, all rows must be of one topic."""

    topic: str = "_topic"
    """Empty if the table has no such column."""
    partition: str = "_partition"
    offset: str = "_offset"


@dataclass(frozen=True, slots=True)
class Target:
    """The target side, ready to join."""

    name: str
    rows: DataFrame
    match: str
    """ORIGIN or KEY."""
    matched_by: str
    source_key: str | None
    has_arrival: bool


class Cluster:
    """Topics as frames."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], isolation: str) -> None:
        self.spark = spark
        self.isolation = isolation
        self._options = dict(options)

    def read_options(self, topic: str, **more: str) -> ReadOptions:
        return ReadOptions.of(self._named({"subscribe": topic, **more}), streaming=False)

    def _named(self, more: Mapping[str, str]) -> dict[str, str]:
        # Retention may delete records while they are read.
        return {**self._options, "kafka.isolation.level": self.isolation, "failOnDataLoss": "false", **more}

    def _load(self, more: Mapping[str, str]) -> DataFrame:
        return self.spark.read.format("ottla").options(**self._named(more)).load()

    def topic(self, topic: str, *, headers: bool = False) -> DataFrame:
        """A whole topic up to its end now, the same for all queries of an audit."""
        return self.records(topic, source_bounds(self.read_options(topic)), headers=headers)

    def records(
        self, topic: str, bounds: Iterable[Bounds], *, headers: bool = False, isolation: str | None = None
    ) -> DataFrame:
        """The records within the bounds."""
        places = {TopicPartition(topic, one.partition): one for one in bounds}
        return self._load(
            {
                "assign": json.dumps({topic: sorted(key.partition for key in places)}),
                "startingOffsets": json.dumps(to_json({key: one.start for key, one in places.items()})),
                "endingOffsets": json.dumps(to_json({key: one.end for key, one in places.items()})),
                "includeHeaders": str(headers).lower(),
                "kafka.isolation.level": isolation or self.isolation,
            }
        )

    def content(self, topic: str, places: set[Place]) -> dict[Place, tuple[str | None, str | None]]:
        """The key and the start of the value of a few records; reads only the ranges around them."""
        if not places:
            return {}
        offsets: dict[int, list[int]] = {}
        for partition, offset in places:
            offsets.setdefault(partition, []).append(offset)
        stretches = [Bounds(one, min(found), min(found), max(found) + 1) for one, found in offsets.items()]
        wanted = self.spark.createDataFrame(sorted(places), "partition int, offset bigint")
        chosen = self.records(topic, stretches).join(F.broadcast(wanted), ["partition", "offset"], "left_semi")
        rows = chosen.selectExpr("partition", "offset", "key", f"substring(value, 1, {_VALUE_BYTES}) value").collect()
        return {(row["partition"], row["offset"]): (_text(row["key"]), _text(row["value"])) for row in rows}


def topic_target(
    cluster: Cluster, topic: str, source: str, *, origin_headers: bool, key: str | None, target_key: str | None
) -> Target:
    """A topic as target, matched by a key or by origin headers."""
    wanted = target_key or key or WHOLE_RECORD
    rows = cluster.topic(topic, headers=origin_headers or mentions_headers(wanted))
    place = (F.col("partition"), F.col("offset"))
    if origin_headers:
        rows = rows.where(header(f"{ORIGIN_HEADERS}topic") == source)
        found = target_side(rows, header_place(ORIGIN_HEADERS), arrival=F.col("timestamp"), place=place)
        return Target(f"topic {topic}", found, ORIGIN, "origin headers" + _duplicates_by(key), key, has_arrival=True)
    match = [expression(rows, wanted, "id", f"topic {topic}")]
    found = target_side(rows, match, arrival=F.col("timestamp"), place=place)
    by = "key and value" if key is None else _key_text(key, target_key)
    return Target(f"topic {topic}", found, KEY, by, key or WHOLE_RECORD, has_arrival=True)


def table_target(
    rows: DataFrame,
    name: str,
    source: str,
    *,
    origin: Origin | None,
    key: str | None,
    target_key: str | None,
    arrival: str | None,
) -> Target:
    """A table as target, matched by a key if there is one, or else by its origin columns."""
    came = None if arrival is None else expression(rows, f"cast({arrival} as timestamp)", "at", name)
    if target_key is not None:
        match = [expression(rows, target_key, "id", name)]
        found = target_side(rows, match, arrival=came, place=None)
        return Target(name, found, KEY, _key_text(key or "", target_key), key, arrival is not None)
    columns = origin or Origin()
    for one in (columns.partition, columns.offset):
        if one not in rows.columns:
            raise AuditError(
                f"{name} has no column {one}, so rows cannot be matched by origin: name the columns with partition and "
                "offset, or set key and target_key"
            )
    if columns.topic in rows.columns:
        rows = rows.where(F.col(f"`{columns.topic}`") == source)
    elif columns.topic not in ("", Origin().topic):
        raise AuditError(f"{name} has no column {columns.topic} for the topic")
    match = [
        F.col(f"`{columns.partition}`").cast("int").alias("partition"),
        F.col(f"`{columns.offset}`").cast("bigint").alias("offset"),
    ]
    found = target_side(rows, match, arrival=came, place=None)
    by = f"{columns.partition} and {columns.offset}" + _duplicates_by(key)
    return Target(name, found, ORIGIN, by, key, arrival is not None)


def read_table(spark: SparkSession, path: str, form: str, options: Mapping[str, str]) -> DataFrame:
    try:
        return spark.read.format(form).options(**options).load(path)
    except AnalysisException as error:
        raise AuditError(f"cannot read table {path} as {form}: {_first_line(error)}") from None


def expression(frame: DataFrame, text: str, name: str, where: str) -> Column:
    """Check and return a user's SQL expression."""
    found: Column = F.expr(text).alias(name)
    try:
        _ = frame.select(found).schema
    except ParseException as error:
        raise AuditError(f"{text!r} is not a valid SQL expression: {_first_line(error)}") from None
    except AnalysisException as error:
        raise AuditError(f"{text!r} does not work for {where}: {_first_line(error)}") from None
    return found


def comparable(source: DataFrame, target: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Compare ids of different types as text."""
    if source.schema["id"].dataType == target.schema["id"].dataType:
        return source, target
    text = F.col("id").cast("string")
    return source.withColumn("id", text), target.withColumn("id", text)


def mentions_headers(text: str | None) -> bool:
    return text is not None and "headers" in text


def _key_text(key: str, target_key: str | None) -> str:
    return key if target_key is None or target_key == key else f"{key} = {target_key}"


def _duplicates_by(key: str | None) -> str:
    return "" if key is None else f", duplicates by {key}"


def _first_line(error: Exception) -> str:
    return next(line for line in str(error).splitlines() if line.strip()).split(" SQLSTATE")[0].rstrip(". ;")


def _text(value: Any) -> str | None:
    return None if value is None else bytes(value).decode("utf-8", "backslashreplace")
