"""Run a pipeline over sample records, on a real Spark and an embedded broker.

    with Bench() as bench:
        result = bench.run(load("orders.toml"), [{"orders": [{"id": 1}]}])

Every run has its own broker and its own directory, so runs do not see each other. The session stays warm.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ottla.broker.broker import Broker
from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.values import NewTopic
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.consumer.dead_letter_steps import DeadLetter
from ottla.clients.producer.blocking import Producer
from ottla.consuming.values import ConsumerRecord
from ottla.errors import OttlaError
from ottla.spark.pipelines.compile import Flow, compile_pipeline
from ottla.spark.pipelines.declaration import (
    DatabaseSink,
    DeclarationError,
    FileSink,
    JdbcSink,
    LakeSink,
    Pipeline,
    Sink,
    TopicSink,
)
from ottla.spark.pipelines.failures import Failure
from ottla.spark.pipelines.keyed import DELETED, staged
from ottla.spark.pipelines.options import as_settings
from ottla.spark.pipelines.progress import Board
from ottla.spark.pipelines.runner import Runner, reads
from ottla.spark.sessions import activate, session
from ottla.suggestions import did_you_mean
from ottla.testing.pipelines.records import Batch, Encoded, encoded
from ottla.testing.pipelines.registered import Files, Schemas, register, with_registry
from ottla.testing.pipelines.relocation import is_captured, relocated, session_settings
from ottla.testing.pipelines.results import Result, Row, in_log_order, record_row
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: With a few rows, compiling and planning a query takes longer than running it.
CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
_BROKER = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
_POLL_SECONDS = 0.02


class PipelineFailed(OttlaError):
    """A flow of the pipeline failed during a test."""

    def __init__(self, failure: Failure) -> None:
        super().__init__("\n".join(failure.lines))
        self.failure = failure


class Bench:
    """A session for many runs: the active one, or a fast one that is stopped at the end."""

    def __init__(self, spark: SparkSession | None = None, *, conf: Mapping[str, str] | None = None) -> None:
        self._conf = conf or {}
        self._spark = spark
        self._is_own = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._is_own and self._spark is not None:
            self._spark.stop()
            self._spark = None

    @property
    def spark(self) -> SparkSession:
        """The session; started when it is first needed."""
        if self._spark is None:
            self._spark = _active()
        if self._spark is None:
            self._spark = session("ottla tests", fast=True, log_level="off", conf={**CONF, **self._conf})
            self._is_own = True
        return self._spark

    def run(
        self,
        pipeline: Pipeline,
        batches: Sequence[Batch],
        *,
        tables: Mapping[str, Sequence[Any]] | None = None,
        schemas: Files | None = None,
    ) -> Result:
        """Send each batch and run the pipeline over it; raises PipelineFailed, or DeclarationError for invalid SQL."""
        started = time.monotonic()
        files = schemas or {}
        _check_tables(pipeline, tables or {})
        with (
            Broker(config=_BROKER, registry=bool(files)) as broker,
            tempfile.TemporaryDirectory(prefix="ottla-test-") as directory,
        ):
            registered = register(broker.registry_url, pipeline, files) if files else {}
            sent = [[*_encoded(pipeline, batch, registered)] for batch in batches]
            moved = relocated(pipeline, broker.bootstrap_servers, Path(directory), tables or {})
            moved = with_registry(moved, files, broker.registry_url) if files else moved
            with _own_session(self.spark, moved) as spark, Admin(bootstrap_servers=moved.bootstrap_servers) as admin:
                run = _Run(moved, spark, admin)
                run.make_topics(sent)
                run.batches(sent)
                return run.result(time.monotonic() - started)


def _active() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None  # `session` says how to install it
    return SparkSession.getActiveSession()


@contextmanager
def _own_session(spark: SparkSession, pipeline: Pipeline) -> Iterator[SparkSession]:
    """A session with the pipeline's settings and its own views, in the same Java."""
    from pyspark.errors import PySparkException

    found = spark.newSession()
    for name, value in session_settings(pipeline).items():
        try:
            found.conf.set(name, value)
        except PySparkException:
            continue  # fixed when Spark starts
    activate(found)
    try:
        yield found
    finally:
        activate(spark)


class _Run:
    """One run of a moved pipeline."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, admin: Admin) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._admin = admin
        self._captured: dict[str, list[Row]] = {}
        self._flows: list[Flow] = []
        self._broken: Counter[tuple[str, str]] = Counter()
        """Rows that broke a rule, by rule and flow."""

    def make_topics(self, batches: Iterable[Iterable[Encoded]]) -> None:
        """The topics of sources, sinks, tables and dead letters, with as many partitions as the records need."""
        sizes: dict[str, int] = {}

        def need(topic: str, partitions: int = 1) -> None:
            sizes[topic] = max(sizes.get(topic, 1), partitions)

        for record in (one for batch in batches for one in batch):
            need(record.topic, record.partition + 1)
        for source in self._pipeline.sources:
            for topic in source.topics:
                need(topic)
            for topic, partitions in (source.assign or {}).items():
                need(topic, max(partitions, default=0) + 1)
        for topic in [*self._dead_letter_topics([*sizes]), *self._other_topics()]:
            need(topic)
        self._admin.create_topics([NewTopic(name, size) for name, size in sizes.items()])

    def _dead_letter_topics(self, topics: Iterable[str]) -> list[str]:
        letters = self._pipeline.dead_letters
        if letters is None:
            return []
        return list(dict.fromkeys(letters.topic.replace("{topic}", topic) for topic in topics))

    def _other_topics(self) -> list[str]:
        parts = (*self._pipeline.tables, *self._pipeline.sinks)
        return [topic for one in parts if (topic := getattr(one, "topic", None))]

    def batches(self, batches: Sequence[Sequence[Encoded]]) -> None:
        with Producer(bootstrap_servers=self._pipeline.bootstrap_servers) as producer:
            for batch in batches:
                futures = [
                    producer.send(
                        one.topic,
                        one.value,
                        key=one.key,
                        partition=one.partition,
                        timestamp=one.timestamp,
                        headers=list(one.headers),
                    )
                    for one in batch
                ]
                for future in futures:
                    future.result(30)
                self._run_flows()

    def _run_flows(self) -> None:
        """Process all records that are there, in one micro-batch per flow."""
        if not self._flows:
            self._flows = compile_pipeline(self._pipeline, self._spark, trigger="available-now")
        flows = [_Captured(flow, self._keep) if _takes(flow) else flow for flow in self._flows]
        board = Board(self._pipeline.name, [flow.name for flow in flows])
        ending = Runner(flows, board, ends=True, sleep=lambda _: time.sleep(_POLL_SECONDS)).run()
        if ending.failure is not None:
            raise PipelineFailed(ending.failure)
        for one in board.rules():
            self._broken[one.rule, one.flow] += one.total.violations

    def _keep(self, sink: str, rows: list[Row]) -> None:
        self._captured.setdefault(sink, []).extend(rows)

    def result(self, seconds: float) -> Result:
        rows = {sink.name: self._rows(sink) for sink in self._pipeline.sinks}
        there = set(self._admin.list_topics())
        read = [topic for topic in there if any(reads(source, topic) for source in self._pipeline.sources)]
        found = [topic for topic in self._dead_letter_topics(read) if topic in there]
        letters = [DeadLetter.of(record) for topic in found for record in self._records(topic)]
        letters.sort(key=lambda one: (one.topic, one.partition, one.offset))
        rules = {
            rule: max(count for (name, _), count in self._broken.items() if name == rule) for rule, _ in self._broken
        }
        return Result(rows, letters, rules, seconds)

    def _rows(self, sink: Sink) -> list[Row]:
        if is_captured(sink):
            return self._captured.get(sink.name, [])
        if isinstance(sink, TopicSink):
            return [record_row(record) for record in self._records(sink.topic)]
        assert isinstance(sink, FileSink)
        flow = next(flow for flow in self._flows if flow.name == sink.name)
        reader = self._spark.read.format(sink.format).options(**as_settings(sink.options)).schema(flow.frame.schema)
        return in_log_order(_plain_rows(reader.load(sink.path)))

    def _records(self, topic: str) -> list[ConsumerRecord]:
        """All committed records of a topic."""
        servers = self._pipeline.bootstrap_servers
        with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            partitions = [TopicPartition(topic, one.partition) for one in consumer.partitions_for(topic)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
            ends = consumer.end_offsets(partitions)
            found: list[ConsumerRecord] = []
            while any(consumer.position(one) < ends[one] for one in partitions):
                found += consumer.poll(0.2)
        return found


@dataclass(frozen=True, slots=True)
class _Captured:
    """A flow whose rows the test takes instead of a system that is not there."""

    flow: Flow
    keep: Callable[[str, list[Row]], None]

    @property
    def name(self) -> str:
        return self.flow.name

    @property
    def sources(self) -> Sequence[Any]:
        return self.flow.sources

    @property
    def groups(self) -> Mapping[str, str]:
        return self.flow.groups

    @property
    def readers(self) -> Mapping[str, Any]:
        return self.flow.readers

    @property
    def shared(self) -> None:
        return None

    def start(self) -> StreamingQuery:
        sink = self.flow.sink
        assert isinstance(sink, Sink)
        activate(self.flow.frame.sparkSession)
        writer = self.flow.frame.writeStream.option("checkpointLocation", self.flow.checkpoint)
        writer = writer.outputMode(sink.mode or "append").trigger(availableNow=True)
        return writer.foreachBatch(lambda frame, _: self.keep(self.name, _given_rows(sink, frame))).start()


def _takes(flow: Flow) -> bool:
    return isinstance(flow.sink, Sink) and is_captured(flow.sink)


def _given_rows(sink: Sink, frame: DataFrame) -> list[Row]:
    """The rows of a batch that a sink would get; `_deleted` marks those that delete a row of a database."""
    if not isinstance(sink, JdbcSink | LakeSink | DatabaseSink):
        return _plain_rows(frame)
    rows = _plain_rows(staged(sink, frame))
    deleted = [bool(row.pop(DELETED, 0)) for row in rows]
    return [{**row, "_deleted": True} if gone else row for row, gone in zip(rows, deleted, strict=True)]


def _plain_rows(frame: DataFrame) -> list[Row]:
    """Rows as plain Python: times have a zone, maps and structs are dicts."""
    rows: list[Row] = frame.toArrow().to_pylist(maps_as_pydicts="strict")
    return rows


def _encoded(pipeline: Pipeline, batch: Batch, schemas: Schemas) -> Iterator[Encoded]:
    sources = {source.name: source for source in pipeline.sources}
    for name, records in batch.items():
        if name not in sources:
            near = did_you_mean(name, sources) or f" The sources are {', '.join(sources)}."
            raise DeclarationError([pipeline.where.problem(f"the pipeline has no source {name}.{near}")])
        for one in records:
            yield encoded(one, sources[name], pipeline, schemas)


def _check_tables(pipeline: Pipeline, tables: Mapping[str, Any]) -> None:
    known = [table.name for table in pipeline.tables]
    for name in tables:
        if name not in known:
            near = did_you_mean(name, known) or (f" The tables are {', '.join(known)}." if known else "")
            raise DeclarationError([pipeline.where.problem(f"the pipeline has no table {name}.{near}")])
