"""Audit the sinks of a pipeline: `ottla.spark.audit` with all that the declaration knows.

    found = audit_pipeline(load("orders.toml"), spark)
    print(found)
    assert found.ok

The declaration knows the topics, the start of the source, the dead letters, the checkpoint, the keys of a dedupe, and
the rules and steps that remove records.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.clients.admin.blocking import Admin
from ottla.spark.audit.plan import ORIGIN, Rules, dead_side
from ottla.spark.audit.positions import AuditError, Bounds, checkpoint_positions, source_bounds, with_positions
from ottla.spark.audit.report import AuditReport
from ottla.spark.audit.run import Comparison
from ottla.spark.audit.sides import Cluster, Target, read_table, table_target, topic_target
from ottla.spark.pipelines.audit.declared import (
    NotAuditable,
    Upstream,
    check_fits,
    missing_origin,
    notes_of,
    since_of,
    starts_of,
    upstream_of,
)
from ottla.spark.pipelines.audit.expected import expected_records
from ottla.spark.pipelines.audit.report import PipelineAudit, SinkAudit
from ottla.spark.pipelines.changes.sinks import with_keys
from ottla.spark.pipelines.databases.reading import read_origin
from ottla.spark.pipelines.declaration import (
    DatabaseSink,
    DeadLetters,
    FileSink,
    JdbcSink,
    LakeSink,
    Pipeline,
    Sink,
    Source,
    TopicSink,
)
from ottla.spark.pipelines.lakes.opening import open_lake
from ottla.spark.pipelines.lakes.reading import read_lake
from ottla.spark.pipelines.options import as_settings, cluster_options
from ottla.spark.pipelines.run_lock import local_path
from ottla.spark.pipelines.runner import admin_config, reads
from ottla.spark.pipelines.shared.layout import letters_name
from ottla.spark.pipelines.status import status_of
from ottla.types import Millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ASK_MS = 10_000


def audit_pipeline(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    sinks: Sequence[str] = (),
    since: Millis | None = None,
    until: Millis | None = None,
    limit: int = 10,
) -> PipelineAudit:
    """Audit all sinks, or those in `sinks`. A sink that cannot be audited has a reason in the result.

    `since` and `until` limit the records by their time, and `limit` the examples of each kind of problem.
    """
    pipeline = with_keys(pipeline)
    audits: list[SinkAudit] = []
    left: dict[str, str] = {}
    for sink in pipeline.sinks:
        if sinks and sink.name not in sinks:
            continue
        try:
            check_fits(sink)
            audits += _SinkAudits(pipeline, sink, spark, since, until, limit).run()
        except NotAuditable as error:
            left[sink.name] = str(error)
    return PipelineAudit(pipeline.name, tuple(audits), left)


@dataclass(frozen=True)
class _SinkAudits:
    """The audits of a sink, one for each topic."""

    pipeline: Pipeline
    sink: Sink
    spark: SparkSession
    since: Millis | None
    until: Millis | None
    limit: int

    def run(self) -> list[SinkAudit]:
        upstream = upstream_of(self.pipeline, self.sink)
        return [
            SinkAudit(self.sink.name, self._report(source, topic, upstream))
            for source in upstream.sources
            for topic in topics_of(self.pipeline, source)
        ]

    def _report(self, source: Source, topic: str, upstream: Upstream) -> AuditReport:
        cluster = Cluster(self.spark, cluster_options(self.pipeline, source), source.isolation)
        since = since_of(source, topic, self.since)
        # The order matters while the pipeline runs: see audit/positions.py.
        bounds = self._bounds(cluster, source, topic, since)
        at = int(time.time() * 1000)
        bounds = with_positions(bounds, self._positions(source, topic))
        expected = expected_records(self.pipeline, self.sink, self.spark, since=since, until=self.until)
        target = self._target(topic)
        dedupe = upstream.dedupe
        rules = Rules(match=ORIGIN, has_key=dedupe is not None, is_cut=any(one.start > 0 for one in bounds))
        if dedupe is not None:
            target = replace(target, matched_by=f"{target.matched_by}, duplicates by {', '.join(dedupe.keys)}")
        dead = self._dead(source, topic)
        found = Comparison(cluster, topic, target, bounds, rules, dead, _of_topic(expected, topic))
        report = found.report(at, self.limit)
        return replace(report, notes=(*report.notes, *notes_of(report, upstream)))

    def _bounds(self, cluster: Cluster, source: Source, topic: str, since: Millis | None) -> list[Bounds]:
        given = {} if since is None else {"startingTimestamp": str(since)}
        if since is not None:
            given["startingOffsetsByTimestampStrategy"] = "latest"
        if self.until is not None:
            given["endingTimestamp"] = str(self.until)
        found = source_bounds(cluster.read_options(topic, **given))
        if source.assign is not None:
            found = [one for one in found if one.partition in source.assign[topic]]
        starts = starts_of(source, topic)
        return [replace(one, start=min(max(one.start, starts.get(one.partition, 0)), one.end)) for one in found]

    def _positions(self, source: Source, topic: str) -> dict[int, int]:
        """How far the sink and the dead letters are: a record is pending until both have seen it."""
        try:
            own = sink_position(self.pipeline, self.spark, self.sink.name, topic)
        except AuditError as error:
            raise NotAuditable(str(error)) from None
        if not self.pipeline.sends_dead_letters(source):
            return own
        try:
            letters = sink_position(self.pipeline, self.spark, letters_name(source.name), topic)
        except AuditError:
            letters = {}
        return {partition: min(offset, letters.get(partition, 0)) for partition, offset in own.items()}

    def _target(self, topic: str) -> Target:
        sink, name = self.sink, f"sink {self.sink.name}"
        if isinstance(sink, TopicSink):
            isolation = "read_committed" if sink.deliver == "exactly-once" else "read_uncommitted"
            there = Cluster(self.spark, cluster_options(self.pipeline, sink), isolation)
            found = topic_target(there, sink.topic, topic, origin_headers=True, key=None, target_key=None)
            return replace(found, name=f"{name} (topic {sink.topic})")
        rows, what = self._rows()
        missing = missing_origin(rows.columns)
        if missing:
            raise NotAuditable(f"{what} has no {missing}: add it to the SELECT of the steps before the sink")
        return table_target(rows, f"{name} ({what})", topic, origin=None, key=None, target_key=None, arrival=None)

    def _rows(self) -> tuple[DataFrame, str]:
        sink = self.sink
        if isinstance(sink, JdbcSink):
            given = {"url": sink.url, "dbtable": sink.table, "driver": sink.driver, "user": sink.user}
            # Databases that cannot compare unlimited text refuse a filter by topic.
            options = {**sink.options, **given, "password": sink.password, "pushDownPredicate": False}
            known = as_settings({name: value for name, value in options.items() if value is not None})
            return self.spark.read.format("jdbc").options(**known).load(), f"table {sink.table}"
        if isinstance(sink, DatabaseSink):
            return read_origin(sink, self.pipeline, self.spark), f"table {sink.table}"
        if isinstance(sink, LakeSink):
            lake = open_lake(self.pipeline, sink)
            return read_lake(self.spark, lake), lake.what.removeprefix("the ")
        assert isinstance(sink, FileSink)
        path = self.pipeline.path(sink.path or "")
        return read_table(self.spark, path, sink.format, {}), f"table {path}"

    def _dead(self, source: Source, topic: str) -> DataFrame | None:
        """The origins of the dead letters; None if there are none yet."""
        letters = self.pipeline.dead_letters
        if letters is None or not self.pipeline.sends_dead_letters(source):
            return None
        name = letters.topic.replace("{topic}", topic)
        with Admin({**admin_config(self.pipeline, letters), "default.api.timeout.ms": ASK_MS}) as admin:
            if name not in admin.list_topics():
                return None
        return dead_side(_dead_cluster(self.pipeline, letters, self.spark).topic(name, headers=True), topic)


def _dead_cluster(pipeline: Pipeline, letters: DeadLetters, spark: SparkSession) -> Cluster:
    isolation = "read_committed" if letters.deliver == "exactly-once" else "read_uncommitted"
    return Cluster(spark, cluster_options(pipeline, letters), isolation)


def sink_position(pipeline: Pipeline, spark: SparkSession, flow: str, topic: str) -> dict[int, int]:
    """The end of the last batch that a sink has written: a late sink is behind its shared read."""
    (found,) = [one for one in status_of(pipeline, ask=False).flows if one.name == flow]
    if local_path(found.directory) is None:
        return checkpoint_positions(spark, found.directory, topic)
    offsets = {} if found.checkpoint is None else found.checkpoint.offsets
    known = {key.partition: offset for key, offset in offsets.items() if key.topic == topic}
    if not known:
        raise AuditError(f"{flow} has not finished a micro-batch with topic {topic} yet")
    return known


def _of_topic(expected: DataFrame, topic: str) -> DataFrame:
    named = {"_partition": "partition", "_offset": "offset"}
    found = expected.where(expected["_topic"] == topic).drop("_topic").withColumnsRenamed(named)
    if "id" in found.columns:
        return found
    from pyspark.sql import functions as fn

    return found.withColumn("id", fn.lit(None).cast("string"))


def topics_of(pipeline: Pipeline, source: Source) -> list[str]:
    """The topics that a source reads now."""
    if source.pattern is None:
        return [*source.topics, *(source.assign or {})]
    with Admin({**admin_config(pipeline, source), "default.api.timeout.ms": ASK_MS}) as admin:
        return sorted(name for name in admin.list_topics() if reads(source, name))
