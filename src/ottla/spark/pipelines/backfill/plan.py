"""Which offsets a backfill reads, and which sinks it can write exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.clients.admin.blocking import Admin
from ottla.errors import OttlaError
from ottla.spark.audit.positions import AuditError, source_bounds
from ottla.spark.audit.sides import Cluster
from ottla.spark.pipelines.audit.declared import upstream_of
from ottla.spark.pipelines.audit.run import sink_position, topics_of
from ottla.spark.pipelines.changes.sinks import can_merge
from ottla.spark.pipelines.compile import compile_pipeline
from ottla.spark.pipelines.declaration import DatabaseSink, Dedupe, JdbcSink, LakeSink, Pipeline, Sink, Source
from ottla.spark.pipelines.keyed import keeps_origin
from ottla.spark.pipelines.options import cluster_options
from ottla.spark.pipelines.runner import admin_config
from ottla.spark.pipelines.shared.plans import keeps_no_state
from ottla.types import Millis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NotPossible(OttlaError):
    """A backfill of a sink would not be exact."""


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Offsets of a partition, from `start` to before `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Plan:
    """What a backfill of a sink reads."""

    sink: str
    ranges: tuple[Range, ...]
    notes: tuple[str, ...] = ()


def check_sink(pipeline: Pipeline, sink: Sink) -> None:
    """Raise NotPossible if a backfill of a sink would lose, repeat or bring back rows.

    The sinks of `pipeline` have the keys of steps with latest (`with_keys`).
    """
    problem = _sink_problem(sink) or _steps_problem(pipeline, sink)
    if problem:
        raise NotPossible(f"sink {sink.name}: {problem}")


def _sink_problem(sink: Sink) -> str | None:
    if not can_merge(sink):
        return (
            "it cannot replace rows. Set another path or topic, and run `ottla pipeline reset` to write all rows "
            'there. Or use a table, such as format = "delta"'
        )
    if sink.mode in ("update", "complete", "overwrite"):
        return f"with mode {sink.mode}, its rows are results of all records, and a range of them has other results"
    assert isinstance(sink, JdbcSink | LakeSink | DatabaseSink)
    keys, sequence = sink.keys, sink.sequence
    if keys and sequence is None:
        return "it has keys and no sequence, so an old row would replace a newer one: set sequence"
    if keys and sink.delete_when:
        return (
            "a row that delete_when has deleted leaves nothing behind, so an older change would bring it back: use a "
            "step with latest and deletes instead"
        )
    if not keys and not keeps_origin(sink):
        return (
            "its rows do not say from which record they are, so those of the range cannot be replaced: set origin = "
            "true, and run `ottla pipeline reset` to write the table again"
        )
    return None


def _steps_problem(pipeline: Pipeline, sink: Sink) -> str | None:
    upstream = upstream_of(pipeline, sink)
    dedupes = [one.name for one in upstream.steps if isinstance(one, Dedupe)]
    if dedupes:
        return f"step {dedupes[0]} keeps state, and a range of the records does not have it: {_INSTEAD}"
    return None


_INSTEAD = "run `ottla pipeline reset` to process all records again"


def check_stateless(pipeline: Pipeline, names: Sequence[str], spark: SparkSession) -> None:
    """Raise NotPossible if the steps before a sink keep state, as Spark's plan of the stream says."""
    for flow in compile_pipeline(pipeline, spark):
        if flow.shared is None and flow.name in names and not keeps_no_state(flow.frame):
            raise NotPossible(
                f"sink {flow.name}: a step before it keeps state (a window, an aggregation, a join of streams), and a "
                f"range of the records does not have it: {_INSTEAD}"
            )


def plan_backfill(pipeline: Pipeline, sink: Sink, spark: SparkSession, since: Millis, until: Millis | None) -> Plan:
    """The offsets of the records from `since` to before `until` that the sink has seen already."""
    ranges: list[Range] = []
    notes: list[str] = []
    for source in upstream_of(pipeline, sink).sources:
        for topic in topics_of(pipeline, source):
            if not getattr(sink, "keys", ()):
                _check_compaction(pipeline, source, topic, sink)
            ranges += _ranges(pipeline, sink, spark, source, topic, since, until, notes)
    return Plan(sink.name, tuple(sorted(ranges)), tuple(dict.fromkeys(notes)))


def _ranges(
    pipeline: Pipeline,
    sink: Sink,
    spark: SparkSession,
    source: Source,
    topic: str,
    since: Millis,
    until: Millis | None,
    notes: list[str],
) -> Iterator[Range]:
    cluster = Cluster(spark, cluster_options(pipeline, source), source.isolation)
    times = {"startingTimestamp": str(since), "startingOffsetsByTimestampStrategy": "latest"}
    if until is not None:
        times["endingTimestamp"] = str(until)
    bounds = source_bounds(cluster.read_options(topic, **times))
    try:
        finished = sink_position(pipeline, spark, sink.name, topic)
    except AuditError as error:
        raise NotPossible(f"sink {sink.name}: {error}: run the pipeline first") from None
    for one in bounds:
        if source.assign is not None and one.partition not in source.assign[topic]:
            continue
        end = max(min(one.end, finished.get(one.partition, 0)), one.earliest)
        if end < one.end:
            notes.append(f"{topic}-{one.partition}: the pipeline itself writes the records from offset {end} on")
        if one.start == one.earliest > 0:
            notes.append(
                f"{topic}-{one.partition}: records before offset {one.earliest} no longer exist, and their rows stay"
            )
        yield Range(topic, one.partition, min(one.start, end), end)


def _check_compaction(pipeline: Pipeline, source: Source, topic: str, sink: Sink) -> None:
    with Admin(admin_config(pipeline, source)) as admin:
        (configs,) = admin.describe_configs(topic).values()
    if "compact" in str(configs["cleanup.policy"].value):
        raise NotPossible(
            f"sink {sink.name}: topic {topic} is compacted, so records of the range are missing, and their rows would "
            "be lost: use a sink with keys and a step with latest"
        )
