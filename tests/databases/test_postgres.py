"""The sink for Postgres without jars: types, existing tables, errors, and kill -9 of the server between two steps."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ottla.spark.pipelines import DatabaseSink, Pipeline, Source
from ottla.spark.pipelines.audit.run import audit_pipeline
from ottla.spark.pipelines.backfill.run import backfill
from ottla.spark.pipelines.databases import sink as sinks
from ottla.spark.pipelines.databases.connections import DatabaseError, Place, opened
from ottla.spark.pipelines.failures import cause_of
from spark.test_spark_databases import check_types
from spark.test_spark_pipelines import run, send
from spark.upsert_cases import Changes, pipeline, table_rows, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from databases.servers import Postgres
    from spark.conftest import Topics

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def keys(postgres: Postgres) -> dict[str, Any]:
    """The keys of a sink for a table that does not exist yet, in a schema of its own."""
    schema = f"s{uuid4().hex[:8]}"
    execute(postgres, f'CREATE SCHEMA "{schema}"')
    return {"format": "postgres", "url": postgres.plain_url, "user": "ottla", "table": f"{schema}.Changes"}


def execute(postgres: Postgres, *statements: str, user: str = "ottla") -> None:
    with opened(Place("postgres", postgres.plain_url, user)) as connection, connection.transaction():
        for sql in statements:
            connection.run(sql)


def query(postgres: Postgres, sql: str) -> list[tuple[Any, ...]]:
    with opened(Place("postgres", postgres.plain_url, "ottla")) as connection, connection.transaction():
        return connection.rows(sql)


def only(declared: Pipeline) -> DatabaseSink:
    (sink,) = declared.sinks
    assert isinstance(sink, DatabaseSink)
    return sink


def test_the_newest_row_of_each_key_is_stored(
    topics: Topics, spark: SparkSession, tmp_path: Path, keys: dict[str, Any]
) -> None:
    topic, changes = topics.make(3), Changes(2)
    declared = pipeline(tmp_path, topics.servers, topic, **upserts(**keys))
    for count in (60, 40, 0):
        send(topics, topic, *changes.records(count))
        run(declared, spark)
        assert table_rows(only(declared)) == changes.rows
        commits = sorted((tmp_path / "state" / "base" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()  # as after a crash before Spark recorded the end of the batch


def test_types_and_the_audit(topics: Topics, spark: SparkSession, tmp_path: Path, postgres: Postgres) -> None:
    execute(postgres, "DROP TABLE IF EXISTS typed")
    found = check_types(topics, spark, tmp_path, format="postgres", url=postgres.plain_url, user="ottla")
    at = datetime.datetime(2026, 11, 17, 12, 0, 0, 500_000, tzinfo=datetime.UTC)
    assert found == ["3.000", True, at.date(), at, at.replace(microsecond=0, tzinfo=None)]  # ADBC: numeric is text
    topic = topics.make()
    send(topics, topic, *(f'{{"id": "{number}"}}' for number in range(100)))
    sink = DatabaseSink(
        name="all", format="postgres", url=postgres.plain_url, user="ottla", table="all_rows", origin=True
    )
    declared = Pipeline(
        name="audited",
        checkpoint=str(tmp_path / "audited"),
        bootstrap_servers=topics.servers,
        sources=[Source(name="changes", topics=[topic], schema="id STRING", max_offsets_per_trigger=30)],
        sinks=[sink],
    )
    run(declared, spark)
    audited = audit_pipeline(declared, spark)
    assert audited.ok, str(audited)
    assert audited.audits[0].report.total.arrived == 100


def test_an_existing_table(
    topics: Topics, spark: SparkSession, tmp_path: Path, keys: dict[str, Any], postgres: Postgres
) -> None:
    topic, (schema, _) = topics.make(), keys["table"].split(".")
    one = uuid4()
    send(topics, topic, f'{{"id": "{one}", "name": "happy", "op": "{{}}", "ts": 7}}')
    declared = pipeline(tmp_path, topics.servers, topic, **keys, keys=["id"], sequence="ts", exclude=["region"])

    def told() -> str:
        with pytest.raises(DatabaseError) as caught:
            run(declared, spark)
        return str(caught.value)

    name = f'"{schema}"."Changes"'
    execute(
        postgres,
        f"CREATE TYPE \"{schema}\".mood AS ENUM ('happy', 'sad')",
        f"CREATE TABLE {name} (id uuid, name \"{schema}\".mood, op jsonb, ts integer, own text DEFAULT 'mine')",
    )
    text = told()
    assert "column ts is integer, which does not keep every bigint of the pipeline" in text
    execute(postgres, text.partition("run ")[2].partition(", or leave")[0])
    text = told()
    assert "has no unique index on its keys" in text
    execute(postgres, text.partition("then run ")[2])
    run(declared, spark)
    assert query(postgres, f"SELECT id::text, name::text, op::text, ts, own FROM {name}") == [
        (str(one), "happy", "{}", 7, "mine")
    ]
    execute(postgres, f"ALTER TABLE {name} DROP COLUMN op")
    text = told()
    assert "has no column op: run ALTER TABLE" in text
    execute(postgres, text.partition(": run ")[2].partition(", or leave")[0])
    send(topics, topic, f'{{"id": "{one}", "name": "angry", "ts": 8}}')
    with pytest.raises(Exception) as caught:
        run(declared, spark)
    assert "invalid input value for enum" in cause_of(caught.value)
    assert query(postgres, f"SELECT ts FROM {name}") == [(7,)]


def test_errors_are_told_before_the_first_batch(
    topics: Topics, spark: SparkSession, tmp_path: Path, keys: dict[str, Any], postgres: Postgres
) -> None:
    def told(**more: Any) -> str:
        declared = pipeline(tmp_path, topics.servers, topics.make(), **{**keys, "password": "s3cret", **more})
        with pytest.raises(DatabaseError) as caught:
            run(declared, spark)
        assert "s3cret" not in str(caught.value)
        return str(caught.value)

    assert "Check that the server runs and that url is right" in told(url="postgresql://127.0.0.1:1/shop")
    assert 'role "nobody" does not exist' in told(user="nobody")
    assert "invalid URI query parameter" in told(options={"nope": "1"})
    assert "does not support SSL" in told(options={"sslmode": "require"})
    assert "schema" in told(table="nowhere.orders")
    execute(postgres, "DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN")
    assert "Grant the user CREATE and USAGE on the schema" in told(user="reader")
    assert not (tmp_path / "state" / "base" / "offsets").exists(), "no batch was planned"


@pytest.mark.parametrize("step", ["copied", "moved", "committed"])
def test_kill_9_of_the_server_between_two_steps(
    topics: Topics,
    spark: SparkSession,
    tmp_path: Path,
    keys: dict[str, Any],
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    topic, changes = topics.make(), Changes(4)
    declared = pipeline(tmp_path, topics.servers, topic, **upserts(**keys))
    send(topics, topic, *changes.records(60))
    run(declared, spark)
    send(topics, topic, *changes.records(20))

    def killing(function: Any) -> Any:
        def killed(*args: Any, **more: Any) -> Any:
            found = function(*args, **more)
            postgres.kill()
            return found

        return killed

    def restarting(function: Any) -> Any:
        def restarted(*args: Any, **more: Any) -> Any:
            found = function(*args, **more)
            postgres.kill()
            postgres.recover()
            return found

        return restarted

    with monkeypatch.context() as patched:
        if step == "copied":  # the server is back before the move: the rows of the unlogged table are gone
            patched.setattr(sinks, "copy_from_tasks", restarting(sinks.copy_from_tasks))
        elif step == "moved":
            patched.setattr(sinks.DatabaseWriter, "_move", killing(sinks.DatabaseWriter._move))
        else:
            patched.setattr(sinks.DatabaseWriter, "write", killing(sinks.DatabaseWriter.write))
        if step == "committed":
            run(declared, spark)
        else:
            with pytest.raises(Exception) as caught:
                run(declared, spark)
            text = cause_of(caught.value)
            wanted = (
                "the database restarted in between" if step == "copied" else "server closed the connection|Check that"
            )
            assert any(one in text for one in wanted.split("|")), text
    if step != "copied":
        postgres.recover()
    run(declared, spark)
    assert table_rows(only(declared)) == changes.rows
    send(topics, topic, *changes.records(20))
    run(declared, spark)
    assert table_rows(only(declared)) == changes.rows


def test_a_backfill_removes_what_a_killed_one_left(
    topics: Topics,
    spark: SparkSession,
    tmp_path: Path,
    keys: dict[str, Any],
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, schema = topics.make(retention_ms="-1"), keys["table"].partition(".")[0]
    send(topics, topic, '{"id": 1}', '{"id": 2}')
    sink = DatabaseSink(name="base", origin=True, **keys)
    declared = Pipeline(
        name="orders",
        checkpoint=str(tmp_path / "state"),
        bootstrap_servers=topics.servers,
        sources=[Source(name="orders", topics=[topic], schema="id BIGINT")],
        sinks=[sink],
    )
    run(declared, spark)
    stages = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename LIKE 'ottla_stage%'"
    before = query(postgres, stages)
    with monkeypatch.context() as patched:
        # As if it was killed: what cleans up does not run.
        patched.setattr(sinks.DatabaseWriter, "replace", lambda *_: None)
        backfill(declared, spark, since=0)
    assert len(query(postgres, stages)) == len(before) + 1
    backfill(declared, spark, since=0)
    assert query(postgres, stages) == before
    assert [row[0] for row in table_rows(sink)] == [1, 2]
