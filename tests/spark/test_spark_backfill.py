"""Backfills: a range of records is processed again, and the tables are as if it had been right at first."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark.pipelines import JdbcSink, Latest, Pipeline, Source, Sql
from ottla.spark.pipelines.audit.run import audit_pipeline
from ottla.spark.pipelines.backfill import run as backfills
from ottla.spark.pipelines.backfill.lease import lease
from ottla.spark.pipelines.backfill.plan import NotPossible, Range
from ottla.spark.pipelines.backfill.run import backfill
from ottla.spark.pipelines.places import Remote
from ottla.spark.pipelines.run_lock import FILE, AlreadyRunning
from spark.change_tables import FORMATS, Tables
from spark.test_spark_pipelines import run, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark

HOUR = 3_600_000
START = 1_700_000_000_000


def declared(directory: Path, servers: str, topic: str, tables: Tables, total: str) -> Pipeline:
    return Pipeline(
        name="orders",
        checkpoint=str(directory / "state"),
        bootstrap_servers=servers,
        sources=[Source(name="orders", topics=[topic], schema="id BIGINT, total BIGINT", max_offsets_per_trigger=20)],
        steps=[
            Sql(name="totals", sql=f"SELECT id, {total} AS total, _topic, _partition, _offset, _timestamp FROM orders"),
            Latest(name="newest", input="totals", keys=["id"], sequence="_timestamp"),
        ],
        sinks=[tables.sink("everything", input="totals", origin=True), tables.sink("newest", input="newest")],
    )


def test_rows_of_a_range_are_replaced(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic, tables = topics.make(retention_ms="-1"), Tables("sqlite", tmp_path, spark)
    wrong, right = (declared(tmp_path, topics.servers, topic, tables, total) for total in ("-total", "total * 10"))
    for number in range(6):
        send(topics, topic, json.dumps({"id": number, "total": number}), timestamp=START + number * HOUR)
    run(wrong, spark)
    (found,) = backfill(right, spark, since=START + 2 * HOUR, until=START + 4 * HOUR, sinks=["everything"])
    assert (found.plan.ranges, found.rows) == ((Range(topic, 0, 2, 4),), 2)
    assert tables.rows(right, "everything", "_offset", "total") == [(0, 0), (1, -1), (2, 20), (3, 30), (4, -4), (5, -5)]
    backfill(right, spark, since=START, sinks=["newest"])
    assert tables.rows(right, "newest", "id", "total") == [(number, number * 10) for number in range(6)]


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
def test_a_range_is_processed_again_beside_the_running_pipeline(
    topics: Topics, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    topic, tables = topics.make(2, retention_ms="-1"), Tables(kind, tmp_path, spark)
    wrong, right = (declared(tmp_path, topics.servers, topic, tables, total) for total in ("-total", "total * 10"))

    def order(number: int) -> None:
        value = json.dumps({"id": number % 7, "total": number})
        send(topics, topic, value, partition=number % 2, timestamp=START + number * HOUR)

    for number in range(30):
        order(number)
    with pytest.raises(NotPossible, match=r"has not finished a micro-batch with topic .* yet: run the pipeline first"):
        backfill(right, spark, since=START)
    run(wrong, spark)
    # The pipeline goes on while the range is processed: here it has not seen the last records yet.
    for number in range(30, 34):
        order(number)
    since, until = START + 10 * HOUR, START + 40 * HOUR
    (planned,) = backfill(right, spark, since=since, until=until, sinks=["everything"], dry_run=True)
    assert planned.plan.ranges == (Range(topic, 0, 5, 15), Range(topic, 1, 5, 15))
    assert planned.rows == 20
    assert planned.plan.notes == tuple(
        f"{topic}-{one}: the pipeline itself writes the records from offset 15 on" for one in (0, 1)
    )
    assert all(total <= 0 for (total,) in tables.rows(right, "everything", "total")), "a dry run writes nothing"
    backfill(right, spark, since=since, until=until)
    backfill(right, spark, since=since, until=until, sinks=["everything"])  # it can be repeated
    run(right, spark)
    totals = {number: -number if number < 10 else number * 10 for number in range(34)}
    found = tables.rows(right, "everything", "_partition", "_offset", "total")
    assert found == sorted(((number % 2, number // 2, total) for number, total in totals.items()), key=str)
    last = sorted(((one % 7, totals[one]) for one in range(27, 34)), key=str)
    assert tables.rows(right, "newest", "id", "total") == last
    audit = audit_pipeline(right, spark, sinks=["everything"])
    assert audit.ok
    assert audit.audits[0].report.total.lost == 0


def test_two_backfills_at_once_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkpoint that only Spark can reach, no operating system knows who has the lock."""
    monkeypatch.setattr(backfills, "place", lambda where, spark: Remote(f"file:{where}", spark))
    monkeypatch.setattr(backfills, "run_lock", lambda where: nullcontext())
    monkeypatch.setattr(backfills, "lease", partial(lease, beat=0.1, stale=60))
    pipeline = declared(tmp_path, "none:1", "orders", Tables("sqlite", tmp_path, spark), "total")
    with backfills.alone(pipeline, spark) as check:
        with pytest.raises(
            NotPossible, match=rf"another backfill of this pipeline is running \(process {os.getpid()} on"
        ):
            backfill(pipeline, spark, since=START)
        check()
    with backfills.alone(pipeline, spark):
        pass  # the first one has ended


def test_the_lock_of_a_killed_backfill_is_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    directory = Remote(f"file:{tmp_path}/backfill", spark)
    directory.create(FILE, '{"pid": 1, "host": "gone", "since": 0, "id": "x", "beat": 7}')
    with lease(directory, beat=0.05, stale=0.2) as check:
        check()
        directory.replace(FILE, '{"pid": 1, "host": "back", "since": 0, "id": "x", "beat": 8}')
        with pytest.raises(AlreadyRunning, match="process 1 on back"):
            check()
    assert "back" in (directory.read(FILE) or ""), "the lock of another process stays"


def test_steps_that_keep_state_are_refused(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    source = Source(name="orders", topics=["orders"], schema="id BIGINT", event_time="_timestamp", watermark="1 hour")
    sql = "SELECT id, count(*) AS total FROM orders GROUP BY id, window(_timestamp, '1 hour')"
    sink = JdbcSink(name="table", url="jdbc:derby:memory:x", table="t", keys=["id"], sequence="total")
    pipeline = Pipeline(
        name="orders",
        checkpoint=str(tmp_path / "state"),
        bootstrap_servers=topics.servers,
        sources=[source],
        steps=[Sql(name="s", sql=sql)],
        sinks=[sink],
    )
    with pytest.raises(NotPossible, match="sink table: a step before it keeps state"):
        backfill(pipeline, spark, since=0)
