"""The sides of an audit as frames: the records of the source, the rows of the target, the dead letters.

What a user named wrongly (a column, an expression, a table that is not there) is told here, before anything runs.
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
from ottla.spark.audit.positions import AuditError, Bounds
from ottla.spark.offsets import to_json
from ottla.spark.options import ReadOptions
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
#: What makes two records of topics the same if nobody says otherwise.
WHOLE_RECORD = "struct(key, value)"
#: What a pipeline's topic sink with `origin = true` writes.
ORIGIN_HEADERS = "origin-"
_VALUE_BYTES = 200

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The columns of a table that say where a row comes from. One without the topic has rows of one topic only."""

    topic: str = "_topic"
    """Empty if there is no such column."""
    partition: str = "_partition"
    offset: str = "_offset"


@dataclass(frozen=True, slots=True)
class Target:
    """The other side, ready to be joined."""

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
        # Records that retention takes away while they are read are no reason to fail.
        return {**self._options, "kafka.isolation.level": self.isolation, "failOnDataLoss": "false", **more}

    def _load(self, more: Mapping[str, str]) -> DataFrame:
        return self.spark.read.format("ottla").options(**self._named(more)).load()

    def topic(self, topic: str, *, headers: bool = False) -> DataFrame:
        """All of a topic, up to its end when the query is planned."""
        self.read_options(topic)
        return self._load({"subscribe": topic, "includeHeaders": str(headers).lower()})

    def records(
        self, topic: str, bounds: Iterable[Bounds], *, headers: bool = False, isolation: str | None = None
    ) -> DataFrame:
        """What lies between the bounds of a topic."""
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
        """Key and the beginning of the value of a few records; only the stretches that they lie in are read."""
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
    """A topic, whose records have a time and an order; matched by a key, or by the headers that a pipeline writes."""
    wanted = target_key or key or WHOLE_RECORD
    rows = cluster.topic(topic, headers=origin_headers or mentions_headers(wanted))
    place = (F.col("partition"), F.col("offset"))
    if origin_headers:
        rows = rows.where(header(f"{ORIGIN_HEADERS}topic") == source)
        found = target_side(rows, header_place(ORIGIN_HEADERS), arrival=F.col("timestamp"), place=place)
        return Target(f"topic {topic}", found, ORIGIN, "origin headers" + _duplicates_by(key), key, has_arrival=True)
    match = [expression(rows, wanted, "id", f"topic {topic}")]
    found = target_side(rows, match, arrival=F.col("timestamp"), place=place)
    by = "key and value" if key is None else _said(key, target_key)
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
    """A table, matched by a key of it if one is named, and else by its columns of origin."""
    came = None if arrival is None else expression(rows, f"cast({arrival} as timestamp)", "at", name)
    if target_key is not None:
        match = [expression(rows, target_key, "id", name)]
        found = target_side(rows, match, arrival=came, place=None)
        return Target(name, found, KEY, _said(key or "", target_key), key, arrival is not None)
    columns = origin or Origin()
    for one in (columns.partition, columns.offset):
        if one not in rows.columns:
            raise AuditError(
                f"{name} has no column {one}, so that its rows cannot be matched by their origin: name the columns "
                "that have partition and offset, or give a key of the records and the column of the table that has it"
            )
    if columns.topic in rows.columns:
        rows = rows.where(F.col(f"`{columns.topic}`") == source)
    elif columns.topic not in ("", Origin().topic):
        raise AuditError(f"{name} has no column {columns.topic}, which should have the topic")
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
        raise AuditError(f"the table {path} cannot be read as {form}: {_first_line(error)}") from None


def expression(frame: DataFrame, text: str, name: str, where: str) -> Column:
    """A user's expression, or the reason why the frame has no such thing."""
    found: Column = F.expr(text).alias(name)
    try:
        _ = frame.select(found).schema
    except ParseException as error:
        raise AuditError(f"{text!r} is no expression of SQL: {_first_line(error)}") from None
    except AnalysisException as error:
        raise AuditError(f"{text!r} cannot be taken of {where}: {_first_line(error)}") from None
    return found


def comparable(source: DataFrame, target: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Ids of different types are compared as text."""
    if source.schema["id"].dataType == target.schema["id"].dataType:
        return source, target
    text = F.col("id").cast("string")
    return source.withColumn("id", text), target.withColumn("id", text)


def mentions_headers(text: str | None) -> bool:
    return text is not None and "headers" in text


def _said(key: str, target_key: str | None) -> str:
    return key if target_key is None or target_key == key else f"{key} = {target_key}"


def _duplicates_by(key: str | None) -> str:
    return "" if key is None else f", duplicates by {key}"


def _first_line(error: Exception) -> str:
    return next(line for line in str(error).splitlines() if line.strip()).split(" SQLSTATE")[0].rstrip(". ;")


def _text(value: Any) -> str | None:
    return None if value is None else bytes(value).decode("utf-8", "backslashreplace")
