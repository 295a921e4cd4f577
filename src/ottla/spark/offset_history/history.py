"""The history of ``__consumer_offsets`` as tables: commits, lag over time, generations.

    history = offset_history(spark, bootstrap_servers="localhost:9092")          # the current topic
    history.commits.where("group_id = 'billing'").orderBy("time").show()
    history.lag("billing").show()

The topic is compacted: of older commits, only the last one of each partition remains. `record_history` keeps all of
them in a table with a streaming query, and ``offset_history(spark, path=…)`` reads that table. `rows.py` decodes
records; docs/audit.md defines lag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from ottla.charts import Line, bucket_width, line_chart
from ottla.clients.admin.blocking import Admin
from ottla.coordinator.serde import content
from ottla.errors import OttlaError, UnknownTopicOrPartition
from ottla.metadata.machine import CONSUMER_OFFSETS
from ottla.spark.offset_history.rows import COLUMNS, COMMIT, GROUP, MEMBER, REBALANCE, TopicNames, rows_of
from ottla.spark.options import ReadOptions
from ottla.types import Millis, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SAMPLES = 120
"""The default number of samples of the lag."""
CHECKPOINT = "_checkpoint"
_COMMITS = (
    *("time", "group_id", "topic", "partition", "offset", "metadata", "leader_epoch", "committed_at", "expires_at"),
    *("deleted", "log_partition", "log_offset"),
)
_GENERATIONS = (
    *("time", "group_id", "type", "generation", "protocol_type", "protocol", "leader", "members", "state", "deleted"),
    *("log_partition", "log_offset"),
)
_MEMBERS = (
    *("time", "group_id", "type", "generation", "member_id", "instance_id", "client_id", "client_host", "state"),
    *("protocol", "subscribed", "subscribed_regex", "assigned", "deleted", "log_partition", "log_offset"),
)
_REBALANCES = (
    *("time", "group_id", "number", "generation", "outcome", "protocol", "leader", "members", "started_at", "ended_at"),
    *("partitions_moved", "partitions_kept", "reasons"),
)


class HistoryError(OttlaError):
    """The history does not exist."""


def offset_history(
    spark: SparkSession,
    *,
    bootstrap_servers: str | None = None,
    options: Mapping[str, str] | None = None,
    path: str | None = None,
) -> OffsetHistory:
    """The history in the topic, or in the table at `path` written by `record_history`.

    `options` are data source options, such as security settings. A table needs the cluster only for the lag.
    """
    named = _options(bootstrap_servers, options)
    if path is not None:
        try:
            return OffsetHistory(spark.read.parquet(path), named)
        except AnalysisException:
            raise HistoryError(f"{path} has no history: create it with `ottla offsets history --out {path}`") from None
    source = spark.read.format("ottla").options(**_reading(named)).option("subscribe", CONSUMER_OFFSETS).load()
    return OffsetHistory(decoded(source, _topic_names(named)), named)


def record_history(
    spark: SparkSession,
    path: str,
    *,
    bootstrap_servers: str | None = None,
    options: Mapping[str, str] | None = None,
    every_ms: Millis | None = None,
) -> StreamingQuery:
    """Start a query that keeps the history in a table at `path`, partitioned by kind and day.

    It continues where the last query stopped. Without `every_ms`, it ends after the current records.
    """
    named = _options(bootstrap_servers, options)
    source = (
        spark.readStream.format("ottla")
        .options(**_reading(named))
        .option("subscribe", CONSUMER_OFFSETS)
        .option("startingOffsets", "earliest")
        .load()
    )
    rows = decoded(source, _topic_names(named)).withColumn("day", F.to_date("time"))
    writer = (
        rows.writeStream.format("parquet")
        .option("path", path)
        .option("checkpointLocation", f"{path.rstrip('/')}/{CHECKPOINT}")
        .partitionBy("kind", "day")
    )
    if every_ms is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_ms} milliseconds").start()


def _options(servers: str | None, options: Mapping[str, str] | None) -> dict[str, str]:
    return {**(options or {}), **({} if servers is None else {"kafka.bootstrap.servers": servers})}


def _reading(options: Mapping[str, str]) -> dict[str, str]:
    # Offsets of aborted transactions were never committed; compacted records are not an error.
    # The rebalances that ottla records are in headers.
    always = {"kafka.isolation.level": "read_committed", "failOnDataLoss": "false", "includeHeaders": "true"}
    return {**options, **always}


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────


def decoded(records: DataFrame, names: TopicNames) -> DataFrame:
    """Decode records of the topic, batch or stream, to rows with `COLUMNS`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
    empty = records.sparkSession.createDataFrame([], schema)
    headers = ["headers"] if "headers" in records.columns else []
    wanted = records.select("key", "value", "partition", "offset", "timestamp", *headers)
    return wanted.mapInArrow(_decoder(dict(names), to_arrow_schema(empty.schema, timezone="UTC")), schema)


def _decoder(
    names: dict[UUID, str], schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            times = batch.column("timestamp").cast(pa.int64()).to_pylist()
            columns = (batch.column(name).to_pylist() for name in ("key", "value", "partition", "offset"))
            rows = [
                row
                for key, value, partition, offset, time, headers in zip(*columns, times, _headers(batch), strict=True)
                for row in rows_of(
                    key, content(value, headers), time=time, partition=partition, offset=offset, names=names
                )
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return decode_batches


def _headers(batch: pa.RecordBatch) -> list[list[tuple[str, bytes]]]:
    if "headers" not in batch.schema.names:
        return [[] for _ in range(batch.num_rows)]
    found = batch.column("headers").to_pylist()
    return [[(each["key"], each["value"]) for each in headers or ()] for headers in found]


def _topic_names(options: Mapping[str, str]) -> dict[UUID, str]:
    """Topic names by id, for existing topics; consumer protocol assignments have only ids."""
    with Admin(_admin_config(options)) as admin:
        try:
            admin.describe_topics([CONSUMER_OFFSETS])
        except UnknownTopicOrPartition:
            raise HistoryError(f"{CONSUMER_OFFSETS} does not exist yet: no group has used this cluster") from None
        found = admin.describe_topics(admin.list_topics(), raise_errors=False)
        return {one.topic_id: one.name for one in found.values() if one.topic_id is not None}


def _admin_config(options: Mapping[str, str]) -> dict[str, str]:
    return ReadOptions.of({**options, "subscribe": CONSUMER_OFFSETS}, streaming=False).admin_config()


# ── the tables ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class OffsetHistory:
    """A history as frames. `rows` has all records."""

    rows: DataFrame
    options: Mapping[str, str]

    def _of(self, kind: str, columns: Iterable[str]) -> DataFrame:
        return self.rows.where(F.col("kind") == kind).select(*columns)

    @property
    def commits(self) -> DataFrame:
        """One row per commit; `deleted` marks deleted and expired offsets."""
        return self._of(COMMIT, _COMMITS)

    @property
    def generations(self) -> DataFrame:
        """One row per generation (or epoch) of a group."""
        return self._of(GROUP, _GENERATIONS)

    @property
    def members(self) -> DataFrame:
        """One row per member and generation, with subscription and assignment."""
        return self._of(MEMBER, _MEMBERS)

    @property
    def rebalances(self) -> DataFrame:
        """The reasons for rebalances, which only ottla's broker records."""
        return self._of(REBALANCE, _REBALANCES)

    def groups(self) -> DataFrame:
        """One row per group: its commits and its last generation."""
        commits = self.commits.groupBy("group_id").agg(
            F.count_if(~F.col("deleted")).alias("commits"),
            F.count_distinct("topic", "partition").alias("partitions"),
            F.min("time").alias("first_commit"),
            F.max("time").alias("last_commit"),
        )
        place = F.struct("time", "log_offset")
        generations = self.generations.where("type <> 'consumer_group_target_assignment_metadata'")
        last = generations.groupBy("group_id").agg(
            F.max_by("generation", place).alias("generation"), F.max_by("members", place).alias("members")
        )
        return commits.join(last, "group_id", "full").orderBy("group_id")

    def lag(
        self,
        group: str | None = None,
        *,
        step_ms: Millis | None = None,
        since: datetime | Millis | None = None,
        until: datetime | Millis | None = None,
    ) -> DataFrame:
        """The lag of each partition of a group (or of all groups) at regular times.

        Columns: time, group_id, topic, partition, committed, log_end, lag. The log end at a time is the offset of the
        first later record, which takes one request per time.
        """
        commits = self.commits if group is None else self.commits.where(F.col("group_id") == group)
        spark = self.rows.sparkSession
        edges = commits.agg(
            F.unix_millis(F.min("time")).alias("first"),
            F.unix_millis(F.max("time")).alias("last"),
            F.collect_set(F.struct("topic", "partition")).alias("places"),
        ).collect()[0]
        places = sorted(TopicPartition(one["topic"], one["partition"]) for one in edges["places"])
        if not places:
            return spark.createDataFrame([], _LAG)
        first = edges["first"] if since is None else _millis(since)
        last = edges["last"] if until is None else _millis(until)
        step = step_ms or bucket_width(first, max(last, first), at_most=SAMPLES)
        times = list(range(-(-first // step) * step, max(last, first) + step, step))
        ends = spark.createDataFrame(
            self._log_ends(places, times), "at bigint, topic string, partition int, log_end bigint"
        )
        return _lag(commits, ends, step)

    def _log_ends(self, places: list[TopicPartition], times: list[Millis]) -> list[tuple[Millis, str, int, int | None]]:
        found: list[tuple[Millis, str, int, int | None]] = []
        with Admin(_admin_config(self.options)) as admin:

            def offsets(what: str | Millis) -> dict[TopicPartition, int]:
                answer = admin.list_offsets(dict.fromkeys(places, what), raise_errors=False)
                return {key: one.offset for key, one in answer.items()}

            earliest, latest = offsets("earliest"), offsets("latest")
            for at in times:
                younger = offsets(at + 1)
                for key in places:
                    if key in latest and key in younger:
                        end = younger[key] if younger[key] >= 0 else latest[key]
                        # At the start of a truncated log, the log end at that time is unknown.
                        is_known = end > earliest.get(key, 0) or earliest.get(key, 0) == 0
                        found.append((at, key.topic, key.partition, end if is_known else None))
        return found

    def lag_chart(self, group: str, **bounds: Any) -> str:
        """A chart of the lag as SVG: one line for the total, and one for each partition with the highest lag."""
        rows = self.lag(group, **bounds).orderBy("time").selectExpr("unix_millis(time) at", "*").collect()
        lines: dict[str, list[tuple[Millis, float]]] = {}
        total: dict[Millis, float] = {}
        for row in rows:
            if row["lag"] is not None:
                lines.setdefault(f"{row['topic']}-{row['partition']}", []).append((row["at"], row["lag"]))
                total[row["at"]] = total.get(row["at"], 0) + row["lag"]
        worst = sorted(lines, key=lambda name: -max(value for _, value in lines[name]))[:_SHOWN]
        shown = [Line("all partitions", sorted(total.items()))] if len(lines) > 1 else []
        shown += [Line(name, lines[name]) for name in sorted(worst)]
        left_out = f"; the total includes {len(lines) - _SHOWN} more partitions" if len(lines) > _SHOWN else ""
        return line_chart(
            title=f"Lag of group {group}",
            subtitle=f"records between the committed offset and the end of the log{left_out}",
            lines=shown,
            unit="records",
        )


_LAG = "time timestamp, group_id string, topic string, partition int, committed bigint, log_end bigint, lag bigint"
_SHOWN = 7


def _lag(commits: DataFrame, ends: DataFrame, step: Millis) -> DataFrame:
    """The committed offset at a time is the last commit before it, unless it was deleted."""
    at = (F.ceil(F.unix_millis("time") / step) * step).cast("bigint").alias("at")
    last = commits.groupBy("group_id", "topic", "partition", at).agg(
        F.max_by(F.struct("offset", "deleted"), F.struct("time", "log_offset")).alias("last")
    )
    held = last.select("group_id", "topic", "partition").distinct()
    sampled = held.join(ends, ["topic", "partition"]).join(last, ["group_id", "topic", "partition", "at"], "full")
    before = (
        Window.partitionBy("group_id", "topic", "partition").orderBy("at").rowsBetween(Window.unboundedPreceding, 0)
    )
    known = sampled.withColumn("known", F.last("last", ignorenulls=True).over(before))
    committed = F.when(~F.col("known.deleted"), F.col("known.offset"))
    # Records with the same or older timestamps make the log end slightly too low.
    behind = F.greatest(F.col("log_end") - F.col("committed"), F.lit(0))
    return (
        known.join(ends.select("at").distinct(), "at", "left_semi")
        .withColumn("committed", committed)
        .where("committed is not null")
        .select(
            F.timestamp_millis("at").alias("time"),
            *("group_id", "topic", "partition", "committed", "log_end"),
            behind.alias("lag"),
        )
    )


def _millis(moment: datetime | Millis) -> Millis:
    return int(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
