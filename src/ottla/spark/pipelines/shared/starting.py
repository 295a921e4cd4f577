"""Start the query of a shared read, and the threads of its late sinks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

from ottla.spark.pipelines import sinks
from ottla.spark.pipelines.checkpoints import last_planned, planned_offsets
from ottla.spark.pipelines.declaration import DeadLetters, Pipeline, Sink
from ottla.spark.pipelines.places import Place, place
from ottla.spark.pipelines.progress import SHARED_METRICS
from ottla.spark.pipelines.runner import commit_offsets
from ottla.spark.pipelines.shared.backlog import Backlog, stored
from ottla.spark.pipelines.shared.layout import LATE, READERS, Readers, shared_directory, shared_name
from ottla.spark.pipelines.shared.plans import Shareable
from ottla.spark.pipelines.shared.writing import CountedRules, Reader, SharedWriter, moved
from ottla.spark.pipelines.sources import BROKEN, good_rows
from ottla.spark.pipelines.times import millis
from ottla.spark.pipelines.written import Writer, guard
from ottla.spark.sessions import clone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: A late sink commits to its group this often, and whenever it has caught up.
COMMIT_SECONDS = 5.0
FOR_EVER = 1e9


class SharedRead:
    """The shared read of one source."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        shared: Shareable,
        readers: Mapping[str, Sink | DeadLetters],
        tables: Mapping[str, DataFrame],
        frame: DataFrame,
        known: Readers | None,
    ) -> None:
        """`frame` has good and broken records; `known` is what the checkpoint says."""
        self._pipeline = pipeline
        self._spark = spark
        self._shared = shared
        self._readers = readers
        self._tables = tables
        self._frame = frame
        self._known = known
        self._backlogs: list[Backlog] = []
        self._writer: SharedWriter | None = None
        self.counted: CountedRules = lambda sink, batch, rules: None
        """Called with the counts of the rules of a sink's steps, before the end of each batch."""
        source = shared.head.source.name
        self.name = shared_name(source)
        self.where = shared_directory(pipeline, source)

    # ── Starting ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, trigger: str) -> StreamingQuery:
        """Start the query, unless the output of a sink belongs to another checkpoint."""
        pipeline, spark = self._pipeline, self._spark
        writers = {
            name: guard(spark, pipeline, sink, name, self.where, shared=True) for name, sink in self._readers.items()
        }
        directory = place(self.where, spark)
        assert directory is not None, "a shared read requires a classic session"
        run = uuid4().hex
        readers = [
            self._reader(name, self._readers[name], writer, run, directory)
            for name, writer in writers.items()
            if writer is not None
        ]
        self._remember(directory)
        self._backlogs = [one.backlog for one in readers if one.backlog is not None]
        self._writer = SharedWriter(pipeline, self._shared, readers, self._tables, self.counted)
        stream = self._observed().writeStream.queryName(f"{pipeline.name}.{self.name}")
        stream = sinks.triggered(stream.option("checkpointLocation", self.where).outputMode("append"), trigger)
        for backlog in self._backlogs:
            backlog.start()
        started: StreamingQuery = stream.foreachBatch(self._writer).start()
        return started

    def _remember(self, directory: Place) -> None:
        """Store who shares the read, before the first batch."""
        names = list(self._readers)
        now = (self._known or Readers(())).now(names, last_planned(directory.names("commits")))
        if now != self._known:
            directory.replace(READERS, now.text())
            self._known = now

    def _reader(self, name: str, sink: Sink | DeadLetters, writer: Writer, run: str, directory: Place) -> Reader:
        write = sinks.batch_writer(self._pipeline, sink, writer, run, lambda: self._sample(sink))
        where = f"{self.where}/{LATE}/{name}"
        late = place(where, self._spark)
        # Without max_delay, records may be stored since an earlier run: they come before new ones.
        if isinstance(sink, DeadLetters) or (sink.max_delay is None and not (late and stored(late))):
            return Reader(name, sink, write)
        # The session has its own views, for the SQL of the steps.
        spark = clone(self._spark)
        tables = moved(self._tables, spark)

        def write_late(records: DataFrame, batch: int) -> None:
            write(self._shared.rows(self._pipeline, [sink], records, tables)[name], batch)

        delay = FOR_EVER if sink.max_delay is None else millis(sink.max_delay) / 1000
        backlog = Backlog(name, where, spark, write_late, delay=delay, finished=self._committing(name, directory))
        return Reader(name, sink, write, backlog)

    def _sample(self, sink: Sink | DeadLetters) -> DataFrame:
        """No rows, with the columns that a sink gets. The session has its own views, for the SQL of the steps."""
        assert isinstance(sink, Sink)
        spark = clone(self._spark)
        good = spark.createDataFrame([], good_rows(self._frame).schema)
        return self._shared.rows(self._pipeline, [sink], good, moved(self._tables, spark))[sink.name]

    def _committing(self, name: str, directory: Place) -> Callable[[int, bool], None]:
        """Commit what a late sink has finished to its own group: it may be behind the shared read."""
        source = self._shared.head.source
        last = 0.0

        def finished(batch: int, caught_up: bool) -> None:
            nonlocal last
            if source.group_id is None or not (caught_up or time.monotonic() - last > COMMIT_SECONDS):
                return
            text = directory.read(f"offsets/{batch}")
            if text is not None:  # Spark keeps the last hundred
                last = time.monotonic()
                commit_offsets(self._pipeline, source, f"{source.group_id}.{name}", planned_offsets(text))

        return finished

    def _observed(self) -> DataFrame:
        """Count the broken records in Spark's progress."""
        from pyspark.sql import functions as fn

        if BROKEN not in self._frame.columns:
            return self._frame
        return self._frame.observe(SHARED_METRICS, fn.count(fn.col(BROKEN)).alias("broken"))

    # ── Running ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def culprit(self) -> str | None:
        """The sink that failed."""
        late = next((one.name for one in self._backlogs if one.error is not None), None)
        return late or (None if self._writer is None else self._writer.culprit)

    @property
    def error(self) -> BaseException | None:
        """The error of a late sink. Errors of other sinks end the query."""
        return next((one.error for one in self._backlogs if one.error is not None), None)

    @property
    def waiting(self) -> dict[str, int]:
        """The late sinks that are behind, with the number of batches that they have to write."""
        return {one.name: count for one in self._backlogs if (count := one.waiting)}

    def close(self, seconds: float) -> None:
        """Let late sinks catch up for so long, and stop their threads."""
        deadline = time.monotonic() + seconds
        for one in self._backlogs:
            one.close(max(deadline - time.monotonic(), 0))
        if self._writer is not None:
            self._writer.close()
