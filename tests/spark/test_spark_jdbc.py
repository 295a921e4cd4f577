"""The jdbc sink with Derby, which PySpark includes. `make compat-postgres` runs the same with Postgres and others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ottla.spark.pipelines import DeclarationError, JdbcSink, Pipeline, Source, Sql, compile_pipeline
from ottla.spark.pipelines.failures import cause_of
from ottla.spark.pipelines.jdbc.database import Database, JdbcError
from ottla.spark.pipelines.written import WrittenError
from spark.test_spark_pipelines import run, send
from spark.upsert_cases import Changes, pipeline, stored, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark


@pytest.fixture
def derby(spark: SparkSession, tmp_path: Path) -> dict[str, Any]:
    """The keys of a sink for a new database."""
    spark._jvm.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))  # not where we are
    return {"url": f"jdbc:derby:memory:{uuid4().hex};create=true", "table": "changes"}


@pytest.fixture
def execute(spark: SparkSession, derby: dict[str, Any]) -> Callable[[str], None]:
    def execute(sql: str) -> None:
        with Database(JdbcSink(name="x", **derby), spark).transaction() as statement:
            statement.executeUpdate(sql)

    return execute


def failure(declared: Pipeline, spark: SparkSession) -> str:
    """Why a query fails, as the command shows it."""
    with pytest.raises(Exception) as caught:
        run(declared, spark)
    return cause_of(caught.value)


@pytest.mark.long  # tests/unit/spark/pipelines/test_upserts.py has the short form.
def test_the_newest_row_of_each_key_is_stored(
    topics: Topics, spark: SparkSession, tmp_path: Path, derby: dict[str, Any]
) -> None:
    topic, changes = topics.make(), Changes(1)
    declared = pipeline(tmp_path, topics.servers, topic, **upserts(**derby))
    sink = declared.sinks[0]
    assert isinstance(sink, JdbcSink)
    send(topics, topic, *changes.records(60))
    run(declared, spark)
    assert stored(spark, sink) == changes.rows

    # Repeat the last batch, as after a crash before Spark recorded its end, and go on.
    state, backup = tmp_path / "state" / "base", tmp_path / "backup"
    commits = sorted((state / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    shutil.copytree(state, backup)
    commits[-1].unlink()
    send(topics, topic, *changes.records(20))
    run(declared, spark)
    assert stored(spark, sink) == changes.rows

    # With an old checkpoint, the next batch would be skipped.
    shutil.rmtree(state)
    backup.rename(state)
    send(topics, topic, *changes.records(5))
    with pytest.raises(WrittenError, match=r"table changes has batches up to 3, but the checkpoint .* ends at batch 2"):
        run(declared, spark)
    # A new one reads everything again, and leaves the same rows.
    shutil.rmtree(state)
    run(declared, spark)
    assert stored(spark, sink) == changes.rows


@pytest.mark.long  # tests/unit/spark/pipelines/test_upserts.py compares the statements with a model
def test_rows_without_a_sequence_are_in_the_order_of_the_topic(
    topics: Topics, spark: SparkSession, tmp_path: Path, derby: dict[str, Any], execute: Callable[[str], None]
) -> None:
    topic = topics.make()
    declared = pipeline(tmp_path, topics.servers, topic, **derby, keys=["id"], exclude=["op", "ts", "region"])
    sink = declared.sinks[0]
    assert isinstance(sink, JdbcSink)
    # A table of the user, in upper case, with a column of its own and without an index.
    execute("CREATE TABLE changes (id VARCHAR(20), name VARCHAR(20), more VARCHAR(20) DEFAULT 'own')")
    send(topics, topic, *(f'{{"id": "{number % 3}", "name": "v{number}"}}' for number in range(30)))
    with pytest.raises(JdbcError, match="no unique index") as caught:
        run(declared, spark)
    assert str(caught.value).endswith('then run CREATE UNIQUE INDEX changes_ID_key ON changes ("ID")')
    execute(str(caught.value).partition("then run ")[2])
    run(declared, spark)
    assert stored(spark, sink) == [(str(number % 3), f"v{number}", "own") for number in (27, 28, 29)]

    send(topics, topic, '{"id": null, "name": "x"}')
    told = failure(declared, spark)
    assert told.startswith(f"a key (id) is NULL in the record of {topic}-0 at offset 30. A key must not be NULL: ")
    with pytest.raises(JdbcError, match=r'has no column region: .* with exclude = \["region"\]'):
        run(pipeline(tmp_path / "2", topics.servers, topic, **derby, keys=["id"], exclude=["op", "ts"]), spark)


def test_an_unknown_order_is_told(topics: Topics, spark: SparkSession, tmp_path: Path, derby: dict[str, Any]) -> None:
    topic = topics.make()

    def made(sql: str, **sink: Any) -> Pipeline:
        return Pipeline(
            name="x",
            checkpoint=str(tmp_path / "state"),
            bootstrap_servers=topics.servers,
            sources=[Source(name="orders", topics=[topic], schema="id INT, user STRING, day DATE")],
            steps=[Sql(name="s", sql=sql)],
            sinks=[JdbcSink(name="base", **derby, **sink)],
        )

    for sql, sink, message in (
        ("SELECT id, user FROM orders", {"keys": ["id"]}, "which of two rows with the same key is newer: set sequence"),
        ("SELECT id, array(id) AS a FROM orders", {"keys": ["id"], "sequence": "a"}, "sequence a is array: use a num"),
        ("SELECT * FROM orders", {"keys": ["id"], "delete_when": "id"}, "delete_when must be a condition"),
        ("SELECT * FROM orders", {"keys": ["id"], "delete_when": "idd = 1"}, "idd"),
        ("SELECT * FROM orders", {"keys": ["id"], "sequence": "dai"}, "sequence: the input has no column dai"),
    ):
        with pytest.raises(DeclarationError, match=message):
            compile_pipeline(made(sql, **sink), spark)
    send(topics, topic, '{"id": 1, "user": "a", "day": "2026-01-01"}', '{"id": 2, "user": "a", "day": "2026-01-02"}')
    counted = "SELECT user, day, count(*) AS n FROM orders GROUP BY user, day"
    told = failure(made(counted, keys=["user"], mode="update"), spark)
    assert "a micro-batch has two rows with the same keys (user), and nothing says which is newer: set seq" in told
    run(declared := made(counted, keys=["user"], mode="update", sequence="day"), spark)
    (sink,) = declared.sinks
    assert isinstance(sink, JdbcSink)
    assert [(row[0], str(row[1]), row[2]) for row in stored(spark, sink)] == [("a", "2026-01-02", 1)]


def test_a_missing_driver_is_told(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    for url, told in (
        ("jdbc:postgresql://localhost/shop", r'jars\.packages = "org.postgresql:postgresql:[\d.]+" under \[spark\]'),
        ("jdbc:nosuch://localhost/shop", "there is no JDBC driver for jdbc:nosuch: set spark.jars = "),
    ):
        declared = pipeline(tmp_path, topics.servers, topics.make(), url=url, table="orders")
        with pytest.raises(JdbcError, match=told):
            run(declared, spark)
