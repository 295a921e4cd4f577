"""The rows of a range of records: the sources, rules and steps of a pipeline as a batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.spark.offsets import to_json
from ottla.spark.pipelines import rules, sinks, sources
from ottla.spark.pipelines.audit.declared import upstream_of
from ottla.spark.pipelines.backfill.plan import Range
from ottla.spark.pipelines.changes.rows import corrected
from ottla.spark.pipelines.changes.sinks import latest_before
from ottla.spark.pipelines.checks.modes import input_of
from ottla.spark.pipelines.declaration import Pipeline, Sink, Source
from ottla.spark.pipelines.options import read_options
from ottla.spark.pipelines.runner import reads
from ottla.spark.pipelines.shared.plans import frames
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READING = ("kafka.", "includeHeaders")


def rows_of(
    pipeline: Pipeline, sink: Sink, spark: SparkSession, ranges: Sequence[Range]
) -> tuple[DataFrame, list[DataFrame]]:
    """What the sink writes of these records, and the broken records of each source.

    A rule that sends dead letters makes records broken; one with otherwise = fail fails the job.
    """
    upstream = upstream_of(pipeline, sink)
    broken: list[DataFrame] = []
    given: dict[str, DataFrame] = {}
    for source in upstream.sources:
        good, bad = sources.batch(pipeline, source, _records(pipeline, source, spark, ranges))
        given[source.name] = rules.apply(pipeline, source.name, good)
        broken.append(bad)
    tables = {one.name: sources.table(pipeline, one, spark) for one in pipeline.tables}
    views = frames(
        pipeline, spark, tables, given, upstream.steps, after=lambda name, frame: rules.apply(pipeline, name, frame)
    )
    rows = sinks.shape(sink, views[input_of(pipeline, sink) or ""])
    return corrected(rows) if latest_before(pipeline, sink) else rows, broken


def _records(pipeline: Pipeline, source: Source, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
    """The records. One that was deleted in the meantime fails the job: its row could not be replaced."""
    known = read_options(pipeline, source, None)
    options = {name: value for name, value in known.items() if name.startswith(_READING)}
    own = [one for one in ranges if reads(source, one.topic)]
    places = {TopicPartition(one.topic, one.partition): one for one in own}
    partitions: dict[str, list[int]] = {}
    for key in sorted(places):
        partitions.setdefault(key.topic, []).append(key.partition)
    options |= {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(to_json({key: one.start for key, one in places.items()})),
        "endingOffsets": json.dumps(to_json({key: one.end for key, one in places.items()})),
        "failOnDataLoss": "true",
    }
    return spark.read.format("ottla").options(**options).load()
