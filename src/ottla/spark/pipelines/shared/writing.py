"""Write a micro-batch of a shared read: keep it in memory, and let every sink write its rows.

The batch is computed once, even if every sink has written it before (Spark would miss the state of a dedupe). It stays
in memory, or on disk if it is too large, until all sinks are done. They run at the same time. If one fails, Spark
repeats the batch in the next run, and the sinks that are done skip it by its number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines import rules
from ottla.spark.pipelines.declaration import DeadLetters, Pipeline, Sink
from ottla.spark.pipelines.limits import Counted
from ottla.spark.pipelines.shared.backlog import Backlog
from ottla.spark.pipelines.shared.plans import Shareable
from ottla.spark.pipelines.sources import BROKEN, broken_rows, good_rows
from ottla.spark.sessions import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Write = Callable[["DataFrame", int], None]
CountedRules = Callable[[str, int, Mapping[str, Counted]], None]
"""Takes a sink, a batch and the counts of rules."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A sink of a shared read, or its dead letters."""

    name: str
    sink: Sink | DeadLetters
    write: Write
    backlog: Backlog | None = None


class SharedWriter:
    """The function for `foreachBatch`."""

    def __init__(
        self,
        pipeline: Pipeline,
        shared: Shareable,
        readers: Sequence[Reader],
        tables: Mapping[str, DataFrame],
        counted: CountedRules = lambda sink, batch, rules: None,
    ) -> None:
        """`counted` is called with the counts of the rules of each sink's steps."""
        self._pipeline = pipeline
        self._shared = shared
        self._readers = readers
        self._tables = tables
        self._counted = counted
        # Threads are kept: each has a connection to Java, which is not closed with it.
        self._threads = ThreadPoolExecutor(max_workers=max(len(readers), 1), thread_name_prefix="sink")
        self.culprit: str | None = None
        """The reader that failed."""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        from pyspark import StorageLevel

        activate(frame.sparkSession)
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        ruled: dict[str, DataFrame] = {}
        try:
            self._all([*self._jobs(kept, _count_broken(kept), batch, ruled)], kept.sparkSession)
            self._count(ruled, batch)
        finally:
            kept.unpersist()
        since = time.monotonic()
        for one in self._readers:
            if one.backlog is not None:
                self._blaming(one.name, partial(one.backlog.wait, since))

    def close(self) -> None:
        """End the threads after their current jobs."""
        self._threads.shutdown(wait=False)

    def _count(self, ruled: Mapping[str, DataFrame], batch: int) -> None:
        """Count the rules of the steps, for each sink that uses them."""
        found = {name: rules.count(self._pipeline, name, frame) for name, frame in ruled.items()}
        for one in self._readers:
            steps = self._shared.steps.get(one.name, ())
            own = {rule: count for step in steps for rule, count in found.get(step.name, {}).items()}
            if own:
                self._counted(one.name, batch, own)

    def _jobs(
        self, kept: DataFrame, broken: int, batch: int, ruled: dict[str, DataFrame]
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        """What each reader does with the batch; `ruled` gets the results of steps with rules."""
        pipeline, good = self._pipeline, good_rows(kept)
        now = [one.sink for one in self._readers if one.backlog is None and isinstance(one.sink, Sink)]
        rows = self._shared.rows(pipeline, now, good, moved(self._tables, kept.sparkSession), ruled=ruled)
        for one in self._readers:
            if one.backlog is not None:
                yield one.name, partial(one.backlog.add, good, batch)
            elif isinstance(one.sink, Sink):
                yield one.name, partial(one.write, rows[one.name], batch)
            elif broken:
                letters = broken_rows(pipeline, self._shared.head.source, one.sink, kept)
                yield one.name, partial(one.write, letters, batch)

    def _all(self, jobs: Sequence[tuple[str, Callable[[], None]]], spark: SparkSession) -> None:
        """Run all jobs at the same time, and wait for all; raises the first error."""
        from pyspark import inheritable_thread_target

        def run(name: str, job: Callable[[], None]) -> None:
            activate(spark)
            self._blaming(name, job)

        # The threads inherit the query's job group, so that stopping the query cancels their jobs.
        futures = [self._threads.submit(inheritable_thread_target(spark)(run), name, job) for name, job in jobs]
        wait(futures)
        for future in futures:
            future.result()

    def _blaming(self, name: str, job: Callable[[], Any]) -> None:
        try:
            job()
        except BaseException:
            self.culprit = self.culprit or name
            raise


def _count_broken(kept: DataFrame) -> int:
    """Compute the batch, and count the broken records in it."""
    from pyspark.sql import functions as fn

    what = fn.col(BROKEN) if BROKEN in kept.columns else fn.when(fn.lit(False), 1)
    return int(kept.agg(fn.count(what)).collect()[0][0])


def moved(tables: Mapping[str, DataFrame], spark: SparkSession) -> dict[str, DataFrame]:
    """The same tables in another session: a query has its own, with its own views."""
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    session: Any = spark
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset
    return {
        name: Classic(dataset.ofRows(session._jsparkSession, frame._jdf.logicalPlan()), spark)
        for name, frame in tables.items()
    }
