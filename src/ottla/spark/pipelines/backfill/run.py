"""Run a backfill: plan the offsets of each sink, and write its rows in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from ottla.spark.pipelines.audit.declared import missing_origin
from ottla.spark.pipelines.backfill.lease import lease
from ottla.spark.pipelines.backfill.plan import (
    NotPossible,
    Plan,
    Range,
    check_sink,
    check_stateless,
    plan_backfill,
)
from ottla.spark.pipelines.backfill.rows import rows_of
from ottla.spark.pipelines.changes.sinks import with_keys
from ottla.spark.pipelines.databases.sink import DatabaseWriter, place_of
from ottla.spark.pipelines.declaration import DatabaseSink, JdbcSink, LakeSink, Pipeline, Sink
from ottla.spark.pipelines.jdbc.sink import JdbcWriter
from ottla.spark.pipelines.lakes.opening import open_lake
from ottla.spark.pipelines.lakes.sink import LakeWriter
from ottla.spark.pipelines.places import Local, place
from ottla.spark.pipelines.run_lock import AlreadyRunning, run_lock
from ottla.spark.pipelines.written import Writer
from ottla.types import Millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A directory in the checkpoint, for the lock.
_LOCK = "backfill"
Replace = Callable[["DataFrame", Sequence[Range]], None]


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a backfill of a sink has written, or would write."""

    plan: Plan
    rows: int
    broken: int


def backfill(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    since: Millis,
    until: Millis | None = None,
    sinks: Sequence[str] = (),
    dry_run: bool = False,
) -> list[Backfilled]:
    """Process the records from `since` to before `until` again, for all sinks or those in `sinks`.

    Raises NotPossible before anything is written, if it would not be exact for one of them.

    >>> backfill(load("orders.toml"), spark, since=parse_time("2026-11-01"), sinks=["table"])   # doctest: +SKIP
    """
    declared, pipeline = pipeline, with_keys(pipeline)
    chosen = [one for one in pipeline.sinks if not sinks or one.name in sinks]
    for sink in chosen:
        check_sink(pipeline, sink)
    check_stateless(declared, [one.name for one in chosen], spark)
    with alone(pipeline, spark) as check:
        plans = [plan_backfill(pipeline, sink, spark, since, until) for sink in chosen]
        last = None if dry_run else check
        return [_one(pipeline, sink, spark, plan, last) for sink, plan in zip(chosen, plans, strict=True)]


def _one(
    pipeline: Pipeline, sink: Sink, spark: SparkSession, plan: Plan, check: Callable[[], None] | None
) -> Backfilled:
    """Write the rows of one sink after a last `check`; without that, only count them."""
    if not any(one.offsets for one in plan.ranges):
        return Backfilled(plan, 0, 0)
    frame, broken = rows_of(pipeline, sink, spark, plan.ranges)
    missing = missing_origin(frame.columns)
    if missing and not getattr(sink, "keys", ()):
        raise NotPossible(f"sink {sink.name}: its rows have no {missing}: add it to the SELECT of the steps before it")
    kept = frame.persist()
    try:
        rows = kept.count()
        if check is not None:
            check()
            _replace(pipeline, sink, kept)(kept, plan.ranges)
    finally:
        kept.unpersist()
    return Backfilled(plan, rows, sum(one.count() for one in broken))


def _replace(pipeline: Pipeline, sink: Sink, frame: DataFrame) -> Replace:
    """What replaces the rows of ranges in a table, in one transaction."""
    # Always the same for a sink, so that the staging table of a killed backfill is replaced by the next one.
    query = str(uuid5(NAMESPACE_URL, f"{_directory(pipeline)}/{sink.name}"))
    if isinstance(sink, LakeSink):
        name = f"backfill.{pipeline.name}.{sink.name}"
        return LakeWriter(sink, open_lake(pipeline, sink), frame, name).replace
    if isinstance(sink, DatabaseSink):
        database = DatabaseWriter(sink, place_of(sink, pipeline), Writer(pipeline.name, sink.name, query, ""))
        database.prepare(frame, claims=False)
        return database.replace
    assert isinstance(sink, JdbcSink)
    return JdbcWriter(sink, frame, query).replace


def _directory(pipeline: Pipeline) -> str:
    return f"{pipeline.path(pipeline.checkpoint).rstrip('/')}/{_LOCK}"


@contextmanager
def alone(pipeline: Pipeline, spark: SparkSession) -> Iterator[Callable[[], None]]:
    """Refuse two backfills of one pipeline at the same time: they share staging tables.

    Yields a function that raises NotPossible if another backfill has begun in the meantime, because this one did not
    give a sign of life.
    """
    where = _directory(pipeline)
    directory = place(where, spark)
    held = nullcontext(_nothing) if directory is None or isinstance(directory, Local) else lease(directory)
    try:
        with run_lock(where), held as check:
            yield check
    except AlreadyRunning as error:
        who = str(error).partition(" (")[2].removesuffix(")")
        raise NotPossible(f"another backfill of this pipeline is running{f' ({who})' if who else ''}") from None


def _nothing() -> None:
    """A local lock cannot be lost."""
