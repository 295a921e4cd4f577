"""Find lost, repeated, out-of-order and late records between a topic and a table or another topic.

    report = audit(spark, "orders", bootstrap_servers="localhost:9092", table="/data/orders", group="orders-to-table")
    print(report)                              # a table by partition, examples, and a verdict
    assert report.ok
    Path("audit.svg").write_text(report.to_svg())

This is a batch job over both sides. It may run while the pipeline is running. Only the report and a few examples come
to the driver. `sides.py` reads the sides, `plan.py` compares them, and `report.py` has the report. See docs/audit.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from ottla.charts import bucket_width
from ottla.spark.audit.plan import (
    KEY,
    SLOT_MS,
    Rules,
    classify,
    dead_side,
    examples,
    source_side,
    summed,
    with_expected,
)
from ottla.spark.audit.positions import (
    AuditError,
    Bounds,
    checkpoint_positions,
    group_positions,
    source_bounds,
    with_positions,
)
from ottla.spark.audit.report import COUNTS, AuditReport, Bucket, Counts, Delay, Example, PartitionAudit
from ottla.spark.audit.sides import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Cluster,
    Origin,
    Target,
    comparable,
    expression,
    mentions_headers,
    read_table,
    table_target,
    topic_target,
)
from ottla.types import Millis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = ("key", "partition", "none")


def audit(
    spark: SparkSession,
    source: str,
    *,
    bootstrap_servers: str | None = None,
    options: Mapping[str, str] | None = None,
    table: str | DataFrame | None = None,
    format: str = "parquet",  # noqa: A002 - Spark's name
    table_options: Mapping[str, str] | None = None,
    topic: str | None = None,
    origin: Origin | None = None,
    origin_headers: bool = False,
    key: str | None = None,
    target_key: str | None = None,
    keep_repeats: bool = False,
    dead_letters: str | None = None,
    group: str | None = None,
    checkpoint: str | None = None,
    since: datetime | Millis | None = None,
    until: datetime | Millis | None = None,
    order: str = "key",
    late_after: Millis | None = None,
    arrival: str | None = None,
    limit: int = 10,
    isolation: str = READ_COMMITTED,
) -> AuditReport:
    """Check that the records of topic `source` are in a `table` (a path, or a frame) or in a `topic`.

    - `options` are data source options, such as ``{"kafka.security.protocol": "SSL"}``.
    - A table is matched by its `origin` columns, a topic by `origin_headers`. Otherwise `key` is SQL over the source's
      columns (key, value, headers, …), and `target_key` is SQL over those of the target. For a topic, the default of
      `target_key` is `key`, and without a `key`, the whole record (key and value) is compared.
    - Records with the same `key` count once (`duplicates`), unless `keep_repeats`.
    - `dead_letters` is the dead letter topic; `group` or `checkpoint` gives the position of the pipeline.
    - `since` and `until` limit the records by time.
    - `order` is what must stay in order in a topic: records of one `key`, of one `partition`, or `none`.
    - `late_after` is in milliseconds, from the record's time to `arrival` (SQL over a table; a topic's timestamp).
    - `limit` is the number of examples of each kind.
    """
    _check_target(source, table, topic, key=key, target_key=target_key, origin_headers=origin_headers)
    if group is not None and checkpoint is not None:
        raise AuditError("set either group or checkpoint, not both")
    _check_order_and_arrival(topic, order=order, arrival=arrival, late_after=late_after)
    servers = {} if bootstrap_servers is None else {"kafka.bootstrap.servers": bootstrap_servers}
    cluster = Cluster(spark, {**(options or {}), **servers}, isolation)
    bounds = _bounds(cluster, source, since, until)
    at = int(time.time() * 1000)
    bounds = _with_positions(cluster, bounds, source, group, checkpoint)
    # The target is read after the positions: see positions.py.
    if topic is not None:
        target = topic_target(cluster, topic, source, origin_headers=origin_headers, key=key, target_key=target_key)
    else:
        rows = read_table(spark, table, format, table_options or {}) if isinstance(table, str) else table
        name = f"table {table}" if isinstance(table, str) else "a table"
        target = table_target(rows, name, source, origin=origin, key=key, target_key=target_key, arrival=arrival)
    rules = Rules(
        match=target.match,
        has_key=target.source_key is not None,
        keep_repeats=keep_repeats,
        is_cut=any(one.start > 0 for one in bounds),
        order=order if topic is not None and order != "none" else None,
        late_after=late_after,
    )
    dead = None if dead_letters is None else dead_side(cluster.topic(dead_letters, headers=True), source)
    return Comparison(cluster, source, target, bounds, rules, dead).report(at, limit)


def _check_target(
    source: str,
    table: str | DataFrame | None,
    topic: str | None,
    *,
    key: str | None,
    target_key: str | None,
    origin_headers: bool,
) -> None:
    if (table is None) == (topic is None):
        raise AuditError("set either table or topic as the target")
    if topic == source:
        raise AuditError(f"source and target are the same topic: {topic}")
    if target_key is not None and key is None:
        raise AuditError("target_key requires key, the key of the source records")
    if origin_headers and (topic is None or target_key is not None):
        raise AuditError("origin_headers requires a topic, and excludes target_key")


def _check_order_and_arrival(topic: str | None, *, order: str, arrival: str | None, late_after: Millis | None) -> None:
    if order not in ORDERS:
        raise AuditError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
    if arrival is not None and topic is not None:
        raise AuditError("arrival requires a table; for a topic, the record timestamp is the arrival time")
    if late_after is not None and topic is None and arrival is None:
        raise AuditError("late_after requires arrival, the column with the arrival time")


def _with_positions(
    cluster: Cluster, bounds: list[Bounds], source: str, group: str | None, checkpoint: str | None
) -> list[Bounds]:
    """The bounds with the position of the pipeline, if it is known."""
    if group is not None:
        return with_positions(bounds, group_positions(cluster.read_options(source), group, source))
    if checkpoint is not None:
        return with_positions(bounds, checkpoint_positions(cluster.spark, checkpoint, source))
    return bounds


def _bounds(
    cluster: Cluster, source: str, since: datetime | Millis | None, until: datetime | Millis | None
) -> list[Bounds]:
    given: dict[str, str] = {}
    if since is not None:
        given["startingTimestamp"] = str(_millis(since))
        given["startingOffsetsByTimestampStrategy"] = "latest"
    if until is not None:
        given["endingTimestamp"] = str(_millis(until))
    return source_bounds(cluster.read_options(source, **given))


def _millis(moment: datetime | Millis) -> Millis:
    return int(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment


@dataclass(frozen=True, slots=True)
class Comparison:
    """Run the jobs and build the report."""

    cluster: Cluster
    source: str
    target: Target
    bounds: list[Bounds]
    rules: Rules
    dead: DataFrame | None = None
    """The origins of the dead letters: see `dead_side`."""
    expected: DataFrame | None = None
    """The records (partition, offset, id) that must be in the target or the dead letters, if not all."""

    def report(self, at: Millis, limit: int) -> AuditReport:
        classified, delays = self._classified(), Observation()
        seen = F.percentile_approx("delay", [0.5, 0.95], 1000).alias("parts"), F.max("delay").alias("longest")
        # Read both sides once for all counts. Percentiles cannot be summed, so they are observed on the way.
        sums = summed(classified.observe(delays, *seen)).persist()
        try:
            by_partition, first, last = _by_partition(sums, self.bounds)
            buckets, width = _by_time(sums, first, last)
        finally:
            sums.unpersist()
        if any(one.counts.unknown for one in by_partition) and self.cluster.isolation == READ_COMMITTED:
            by_partition = self._with_aborted(classified, by_partition)
        found = AuditReport(
            source=self.source,
            target=self.target.name,
            matched_by=self.target.matched_by,
            at=at,
            partitions=tuple(by_partition),
            buckets=tuple(buckets),
            bucket_ms=width,
            delay=_delay(delays)
            if self.target.has_arrival and any(one.counts.arrived for one in by_partition)
            else None,
            order=self.rules.order,
            late_after=self.rules.late_after,
        )
        shown = () if found.ok else tuple(self._examples(classified, limit))
        return replace(found, examples=shown, notes=tuple(_notes(found, self.bounds, self.rules)))

    def _records(self, isolation: str) -> DataFrame:
        key = self.target.source_key
        records = self.cluster.records(self.source, self.bounds, headers=mentions_headers(key), isolation=isolation)
        if key is not None:
            expression(records, key, "id", f"topic {self.source}")
        found = source_side(records, key, ordered_by_key=self.rules.order == "key")
        return found if self.expected is None else with_expected(found, self.expected)

    def _classified(self) -> DataFrame:
        records, rows = self._records(self.cluster.isolation), self.target.rows
        if self.rules.match == KEY:
            records, rows = comparable(records, rows)
        return classify(self.cluster.spark, records, rows, self.dead, self.bounds, self.rules)

    def _with_aborted(self, classified: DataFrame, found: Sequence[PartitionAudit]) -> list[PartitionAudit]:
        """Separate rows of aborted transactions from other unknown rows, by reading uncommitted records."""
        unknown = classified.where("status = 'unknown'").select("partition", "offset", "id", "rows")
        everything = self._records(READ_UNCOMMITTED)
        columns = ["partition", "offset"]
        if self.rules.match == KEY:
            columns = ["id"]
            everything, unknown = comparable(everything, unknown)
        aborted = unknown.join(everything.select(*columns).distinct(), columns, "left_semi")
        rows = aborted.groupBy("partition").agg(F.sum("rows").alias("rows")).collect()
        counted = {row["partition"]: row["rows"] for row in rows}
        return [
            replace(one, counts=_moved(one.counts, counted[one.partition])) if counted.get(one.partition) else one
            for one in found
        ]

    def _examples(self, classified: DataFrame, limit: int) -> Iterable[Example]:
        rows = examples(classified, limit).orderBy("kind", "partition", "offset").collect()
        places = {(row["partition"], row["offset"]) for row in rows}
        content = self.cluster.content(self.source, places)
        for row in rows:
            key, value = content.get((row["partition"], row["offset"]), (None, None))
            yield Example(row["kind"], row["partition"], row["offset"], row["rows"], row["timestamp"], key, value)


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_partition(sums: DataFrame, bounds: Sequence[Bounds]) -> tuple[list[PartitionAudit], Millis | None, Millis]:
    """Counts by partition, and the times of the first and last record."""
    names = [name for name in COUNTS if name in sums.columns]
    edges = F.min("slot").alias("first"), F.max("slot").alias("last")
    rows = sums.groupBy("partition").agg(*(F.sum(name).alias(name) for name in names), *edges).collect()
    counts = {row["partition"]: _counts(row, names) for row in rows}
    found = [
        PartitionAudit(one.partition, counts.pop(one.partition, Counts()), one.start, one.end, one.position)
        for one in bounds
    ]
    others = sorted(counts, key=lambda partition: -1 if partition is None else partition)
    found += [PartitionAudit(partition, counts[partition]) for partition in others]
    timed = [row for row in rows if row["first"] is not None]
    return (
        found,
        min((row["first"] for row in timed), default=None),
        max((row["last"] for row in timed), default=0),
    )


def _by_time(sums: DataFrame, first: Millis | None, last: Millis) -> tuple[list[Bucket], Millis]:
    if first is None:
        return [], SLOT_MS
    width = bucket_width(first, last)
    timed = sums.where("slot is not null")
    names = [name for name in COUNTS if name in sums.columns]
    start = (F.floor(F.col("slot") / width) * width).cast("bigint").alias("start")
    rows = timed.groupBy(start).agg(*(F.sum(name).alias(name) for name in names)).orderBy("start").collect()
    return [Bucket(row["start"], _counts(row, names)) for row in rows], width


def _counts(row: Any, names: Iterable[str]) -> Counts:
    return Counts(**{name: int(row[name] or 0) for name in names})


def _moved(counts: Counts, aborted: int) -> Counts:
    return replace(counts, aborted=aborted, unknown=counts.unknown - aborted)


def _delay(observed: Observation) -> Delay | None:
    """Call this only if records arrived: `get` blocks otherwise."""
    found = observed.get
    return None if found["longest"] is None else Delay(found["parts"][0], found["parts"][1], found["longest"])


def _notes(found: AuditReport, bounds: Sequence[Bounds], rules: Rules) -> Iterable[str]:
    total = found.total
    gone = [one for one in bounds if one.earliest > 0]
    if gone:
        places = ", ".join(f"{one.partition} before {one.earliest}" for one in gone[:5])
        more = f" and {len(gone) - 5} more" if len(gone) > 5 else ""
        yield f"retention removed records of the source, which are not audited: partition {places}{more}"
    if total.unknown:
        why = "compaction or retention removed it, or it never existed"
        if rules.match == KEY and rules.is_cut:
            why = "it is before the audited offsets, compaction or retention removed it, or it never existed"
        yield f"{total.unknown:,} rows of the target have no record in the source: {why}"
    if total.lost and all(one.position is None for one in bounds):
        yield (
            "the position of the pipeline is unknown (no group or checkpoint), so records that it has not read yet "
            "count as lost"
        )
