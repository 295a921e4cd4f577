"""The Spark part of ``ottla demo``: the declared pipeline and its audit.

Spark calls block, so all of them run in one `SparkThread`. The status can be read from any thread.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from ottla.cli.demo.events import Events, Lines
from ottla.errors import OttlaError
from ottla.spark.pipelines.progress import Board
from ottla.spark.pipelines.runner import Runner, Stop, board_of, commit_groups, listen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.spark.audit.report import AuditReport

T = TypeVar("T")
CONF = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
MOST_REASONS = 3
_FORM = """\
# The pipeline of the demo. To run it again, start the {what}:
#   {start}
#   ottla pipeline run {directory}/pipeline.toml --bootstrap-server localhost:9092
name = "demo"
checkpoint = "checkpoint"
bootstrap_servers = {servers}

[[source]]
name = "events"
topics = [{topic}]
format = "json"
schema = {schema}
group_id = "pipeline"

[[step]]
name = "unique"
dedupe = [{dedupe}]
within = "10 minutes"

[[sink]]
name = "table"
format = "parquet"
path = "table"

[dead_letters]
topic = {dead}
"""


def check_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise OttlaError(
            "the demo requires Spark: install it with  pip install 'ottla[spark]'  (ottla perf works without it)"
        )


class SparkThread:
    """The thread that talks to Spark."""

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(1, "spark")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown()

    async def call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of the pipeline."""

    report: AuditReport
    rows: int
    distinct: int
    """Distinct keys in the table."""
    dead: int
    """Broken events, each counted once."""
    reasons: tuple[tuple[str, int], ...]
    """Reasons with their counts, most frequent first."""


class DemoPipeline:
    """Run the pipeline like ``ottla pipeline run``, then audit it."""

    def __init__(self, directory: Path, master: str, servers: str, events: Events, *, is_clustered: bool) -> None:
        self._file = directory / "pipeline.toml"
        self._directory = directory
        self._master = master
        self._servers = servers
        self._events = events
        self._is_clustered = is_clustered
        self._stop = Stop()
        self._board: Board | None = None
        self._spark: SparkSession | None = None
        self.dead_topic = f"{events.topic}.dead"
        self.table = directory / "table"
        self.chart = directory / "chart.svg"

    # ── In Spark's thread ─────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Run until `enough` is called; raises if the pipeline fails."""
        from ottla.spark import session
        from ottla.spark.pipelines import compile_pipeline, load

        self._file.write_text(self._form())
        pipeline = load(self._file)
        self._spark = spark = session("ottla demo", master=self._master, conf=CONF, log_level="off")
        if self._stop.signal is not None:
            return
        flows = compile_pipeline(pipeline, spark)
        self._board = board_of(pipeline, flows)
        listen(spark, self._board)
        runner = Runner(flows, self._board, stop=self._stop)
        ending = runner.run()
        if ending.failure is not None:
            raise OttlaError(f"the pipeline failed: {'; '.join(ending.failure.lines)}")
        commit_groups(pipeline, flows, runner.queries)

    def audit(self) -> Outcome:
        from ottla.spark.audit import audit

        assert self._spark is not None, "the pipeline has run"
        spark, events = self._spark, self._events
        report = audit(
            spark,
            events.topic,
            bootstrap_servers=self._servers,
            table=str(self.table),
            key=events.source_key,
            target_key=events.table_key,
            dead_letters=self.dead_topic,
        )
        self.chart.write_text(report.to_svg())
        table = spark.read.parquet(str(self.table))
        (counted,) = table.selectExpr("count(*)", f"count(DISTINCT {events.table_key})").collect()
        return Outcome(report, counted[0], counted[1], *self._dead_letters(spark))

    def _dead_letters(self, spark: SparkSession) -> tuple[int, tuple[tuple[str, int], ...]]:
        """The number of broken events, and the reasons."""
        options = {"kafka.bootstrap.servers": self._servers, "subscribe": self.dead_topic}
        letters = spark.read.format("ottla").options(**options, includeHeaders="true").load()
        # A broken line that was sent twice has two dead letters.
        if isinstance(self._events, Lines):
            letters = letters.dropDuplicates(["key"])
        reason = "cast(filter(headers, one -> one.key = 'dead-letter-error-message')[0].value AS STRING) reason"
        counted = letters.selectExpr(reason).groupBy("reason").count().orderBy("count", ascending=False).collect()
        reasons = tuple((str(row["reason"]), int(row["count"])) for row in counted)
        return sum(count for _, count in reasons), reasons[:MOST_REASONS]

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()

    # ── From any thread ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_running(self) -> bool:
        return self._board is not None

    def has_read(self, records: int) -> bool:
        """Whether every flow has read this many records."""
        return self._board is not None and all(flow.rows >= records for flow in self._board.flows())

    def enough(self) -> None:
        self._stop.request(signal.SIGTERM)

    def state(self) -> str:
        if self._board is None:
            return "Spark is starting"
        flows = self._board.flows()
        rows = min(flow.rows for flow in flows)
        batches = sum(flow.batches for flow in flows)
        return f"pipeline read {rows:,} in {batches} batches, {self._board.dead_letters:,} dead letters"

    def _form(self) -> str:
        """A JSON string is a valid TOML string."""
        what, start = "broker", f"ottla broker --data-dir {self._directory}/broker"
        if self._is_clustered:
            what, start = "brokers", f"ottla cluster start --data-dir {self._directory}/cluster"
        return _FORM.format(
            what=what,
            start=start,
            directory=self._directory,
            servers=json.dumps(self._servers),
            topic=json.dumps(self._events.topic),
            schema=json.dumps(self._events.schema, ensure_ascii=False),
            dedupe=json.dumps(self._events.dedupe),
            dead=json.dumps(self.dead_topic),
        )
