"""Upserts in real databases, also when the pipeline is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat.waiting import until
from ottla.spark.pipelines import JdbcSink
from ottla.spark.pipelines.jdbc.database import Database, JdbcError
from ottla.spark.pipelines.jdbc.drivers import DRIVERS
from spark.test_spark_pipelines import run, send
from spark.upsert_cases import SCHEMA, Changes, pipeline, stored, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from databases.servers import Postgres
    from spark.conftest import Topics

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize("schema", ["", "shop."])
def test_the_newest_row_of_each_key_is_stored(
    topics: Topics, spark: SparkSession, tmp_path: Path, database: dict[str, Any], schema: str
) -> None:
    if schema and "sqlite" in database["url"]:
        pytest.skip("SQLite has no schemas")
    if schema:
        with Database(JdbcSink(name="x", **database), spark).transaction() as statement:
            statement.executeUpdate("CREATE SCHEMA IF NOT EXISTS shop")
    topic, changes = topics.make(), Changes(2)
    declared = pipeline(tmp_path, topics.servers, topic, **upserts(**{**database, "table": schema + database["table"]}))
    (sink,) = declared.sinks
    assert isinstance(sink, JdbcSink)
    for count in (60, 40, 0):
        send(topics, topic, *changes.records(count))
        run(declared, spark)
        assert stored(spark, sink) == changes.rows
        commits = sorted((tmp_path / "state" / "base" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()  # as after a crash before Spark recorded the end of the batch


def test_many_rows_per_key_become_one(
    topics: Topics, spark: SparkSession, tmp_path: Path, database: dict[str, Any]
) -> None:
    """Without a sequence: 673 changes of 200 rows in one batch."""
    topic = topics.make()
    changed = [f'{{"id": "{number * 7 % 200}", "region": 1, "ts": {number}}}' for number in range(673)]
    send(topics, topic, *changed)
    declared = pipeline(
        tmp_path, topics.servers, topic, most=1000, keys=["id"], exclude=["name", "op", "region"], **database
    )
    run(declared, spark)
    (sink,) = declared.sinks
    assert isinstance(sink, JdbcSink)
    newest = {str(number * 7 % 200): number for number in range(673)}
    assert stored(spark, sink) == sorted(newest.items())


def test_an_existing_table_needs_an_index(
    topics: Topics, spark: SparkSession, tmp_path: Path, database: dict[str, Any]
) -> None:
    topic, base = topics.make(), Database(JdbcSink(name="x", **database), spark)
    columns = f"{base.quote('id')} VARCHAR(20), {base.quote('name')} VARCHAR(20)"
    with base.transaction() as statement:
        statement.executeUpdate(f"CREATE TABLE {database['table']} ({columns})")
    send(topics, topic, '{"id": "a", "name": "b"}', '{"id": "a", "name": "c"}')
    declared = pipeline(tmp_path, topics.servers, topic, keys=["id"], exclude=["op", "region", "ts"], **database)
    with pytest.raises(JdbcError, match="has no unique index on its keys") as caught:
        run(declared, spark)
    with base.transaction() as statement:
        statement.executeUpdate(str(caught.value).partition("then run ")[2])
    run(declared, spark)
    (sink,) = declared.sinks
    assert isinstance(sink, JdbcSink)
    assert stored(spark, sink) == [("a", "c")]


def test_a_wrong_password_or_server_is_told(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    url = "jdbc:postgresql://127.0.0.1:1/shop"
    with pytest.raises(JdbcError, match=r"table orders: Connection to 127\.0\.0\.1:1 refused"):
        run(pipeline(tmp_path, topics.servers, topics.make(), url=url, table="orders"), spark)


KILLED = """\
name = "killed"
checkpoint = "state"
bootstrap_servers = "SERVERS"

[spark]
spark.jars.packages = "PACKAGE"

[[source]]
name = "changes"
topics = ["TOPIC"]
schema = "SCHEMA"
max_offsets_per_trigger = 40

[[sink]]
name = "base"
format = "jdbc"
url = "URL"
user = "ottla"
table = "killed"
keys = ["id", "region"]
sequence = "ts"
delete_when = "op = 'd'"
exclude = ["op"]
"""


def test_kill_9_leaves_the_newest_rows(topics: Topics, spark: SparkSession, tmp_path: Path, postgres: Postgres) -> None:
    url, topic, changes = postgres.url, topics.make(), Changes(3)
    file, text = tmp_path / "killed.toml", KILLED
    for name, value in (
        ("SERVERS", topics.servers),
        ("PACKAGE", DRIVERS["postgresql"].package),
        ("TOPIC", topic),
        ("SCHEMA", SCHEMA),
        ("URL", url),
    ):
        text = text.replace(name, value)
    file.write_text(text)
    send(topics, topic, *changes.records(2000))
    sink = JdbcSink(name="base", url=url, user="ottla", table="killed")
    base, command = Database(sink, spark), [sys.executable, "-m", "ottla", "pipeline", "run", str(file)]

    def batch() -> int:
        try:
            with base.transaction() as statement:
                found = statement.executeQuery("SELECT max(batch) FROM ottla_batches WHERE batch > 0")
                return int(found.getLong(1)) if found.next() else -1
        except JdbcError:
            return -1  # no table yet

    with base.transaction() as statement:
        statement.executeUpdate("DROP TABLE IF EXISTS ottla_batches")
    for _ in range(2):
        enough = batch() + 4
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        try:
            until(partial(lambda wanted: batch() >= wanted, enough), "batches in the database", 120)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert batch() < 49, "it was killed before the end"
    assert subprocess.run([*command, "--once"], check=False, timeout=300).returncode == 0
    assert stored(spark, sink) == changes.rows
