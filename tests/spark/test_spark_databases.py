"""The sinks for SQLite and DuckDB. `make compat-postgres` runs the same with Postgres."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.spark.pipelines import DatabaseSink, Pipeline, Source, Sql, Window
from ottla.spark.pipelines.audit.run import audit_pipeline
from ottla.spark.pipelines.databases import loading
from ottla.spark.pipelines.databases.connections import DatabaseError
from ottla.spark.pipelines.failures import WrittenError
from ottla.spark.pipelines.reset import plan_reset
from spark.test_spark_pipelines import run, send
from spark.upsert_cases import SCHEMA, Changes, table_rows, upserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark


def changes_into(directory: Path, servers: str, topic: str) -> Pipeline:
    """Three sinks that share a read, two of them with one file."""
    lite, duck = str(directory / "shop.db"), str(directory / "new" / "shop.duckdb")
    return Pipeline(
        name="changes",
        checkpoint=str(directory / "state"),
        bootstrap_servers=servers,
        sources=[Source(name="changes", topics=[topic], schema=SCHEMA, max_offsets_per_trigger=60)],
        sinks=[
            DatabaseSink(name="lite", format="sqlite", path=lite, table="changes", **upserts()),
            DatabaseSink(name="duck", format="duckdb", path=duck, table="changes", mode="upsert", **upserts()),
            DatabaseSink(name="all", format="duckdb", path=duck, table="everything", origin=True),
        ],
    )


def test_each_batch_is_written_once(
    topics: Topics, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, changes = topics.make(), Changes(1)
    declared = changes_into(tmp_path, topics.servers, topic)
    lite, duck, everything = [sink for sink in declared.sinks if isinstance(sink, DatabaseSink)]
    send(topics, topic, *changes.records(60))
    run(declared, spark)
    assert table_rows(lite) == table_rows(duck) == changes.rows

    # Repeat the last batch, as after a crash before Spark recorded its end, and go on. Large batches come in parts.
    monkeypatch.setattr(loading, "PART_BYTES", 1500)
    (state,) = [path.parent for path in (tmp_path / "state").rglob("commits")]
    commits = sorted((state / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    send(topics, topic, *changes.records(40))
    run(declared, spark)
    assert table_rows(lite) == table_rows(duck) == changes.rows
    assert sorted(row[-2] for row in table_rows(everything)) == list(range(100)), "the offsets"
    audited = audit_pipeline(declared, spark, sinks=["all"])
    assert audited.ok
    assert audited.audits[0].report.total.arrived == 100

    # A new checkpoint would append all rows again.
    (plan,) = [one for one in plan_reset(declared, ["all"]) if one.flow == "all"]
    assert 'run DELETE FROM "everything" before the next run: otherwise it is refused' in plan.notes
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(WrittenError, match="rows that this sink wrote with another checkpoint"):
        run(declared, spark)


TYPES = (
    "SELECT id, CAST(id AS TINYINT) AS tiny, CAST(id AS SMALLINT) AS small, CAST(id AS FLOAT) AS f, id / 2 AS d, "
    "CAST(id AS DECIMAL(12,3)) AS money, id > 1 AS big, CAST('x' AS BINARY) AS raw, DATE'2026-11-17' AS day, "
    "TIMESTAMP'2026-11-17 12:00:00.5Z' AS at, TIMESTAMP_NTZ'2026-11-17 12:00:00' AS wall, array(id) AS many, "
    "named_struct('a', id) AS one, 'text' AS text FROM orders"
)


def test_large_batches_leave_nothing_in_memory(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "PART_BYTES", 2 << 20)
    frame = spark.range(0, 16, 1, 2).selectExpr("id", "repeat(chr(65 + id), 1024 * 1024) AS text")
    runtime = spark._jvm.java.lang.Runtime.getRuntime()

    def used_after_a_batch() -> int:
        assert sum(len(chunk) for chunk in loading.chunks(frame)) == 16
        runtime.gc()
        return int(runtime.totalMemory() - runtime.freeMemory())

    used_after_a_batch()
    before = used_after_a_batch()
    assert [used_after_a_batch() for _ in range(5)][-1] < before + (32 << 20)


def typed(directory: Path, servers: str, topic: str, **sink: Any) -> Pipeline:
    return Pipeline(
        name="types",
        checkpoint=str(directory / "state"),
        bootstrap_servers=servers,
        sources=[Source(name="orders", topics=[topic], schema="id BIGINT")],
        steps=[Sql(name="typed", sql=TYPES)],
        sinks=[DatabaseSink(name="base", table="typed", **sink)],
    )


def check_types(topics: Topics, spark: SparkSession, directory: Path, **sink: Any) -> list[Any]:
    """Write one row of all types, twice; returns the first values of the row."""
    topic = topics.make()
    send(topics, topic, '{"id": 3}')
    declared = typed(directory, topics.servers, topic, **sink)
    run(declared, spark)
    send(topics, topic, "{}")
    run(declared, spark)
    (base,) = [sink for sink in declared.sinks if isinstance(sink, DatabaseSink)]
    row, nulls = table_rows(base)
    assert nulls[0] is nulls[3] is nulls[5] is None
    assert row[:5] == (3, 3, 3, 3.0, 1.5)
    assert bytes(row[7]) == b"x"
    assert json.loads(row[11]) == [3]
    assert json.loads(row[12]) == {"a": 3}
    assert row[13] == "text"
    return [row[5], row[6], *row[8:11]]


def test_types_of_duckdb_and_sqlite(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    found = check_types(topics, spark, tmp_path / "duck", format="duckdb", path=str(tmp_path / "duck.db"))
    at = datetime.datetime(2026, 11, 17, 12, 0, 0, 500_000, tzinfo=datetime.UTC)
    assert found[:3] == [3, True, datetime.date(2026, 11, 17)]
    assert found[3].astimezone(datetime.UTC) == at
    assert found[4] == at.replace(microsecond=0, tzinfo=None)
    found = check_types(topics, spark, tmp_path / "lite", format="sqlite", path=str(tmp_path / "lite.db"))
    assert found[:3] == [3, 1, "2026-11-17"]
    assert [text.rstrip("0.") for text in found[3:]] == ["2026-11-17T12:00:00.5", "2026-11-17T12:00:"]


def test_sqlite_has_no_nan(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """SQLite stores NULL for NaN. That would make a row the oldest one of its key, which Spark takes for the newest."""
    topic = topics.make()
    send(topics, topic, '{"id": 1}', '{"id": 2}')
    sql = "SELECT id, IF(id = 1, double('NaN'), 0.5D) AS ratio, double('Infinity') AS most FROM orders"

    def into(table: str, **sink: Any) -> list[Any]:
        lite = DatabaseSink(name=table, format="sqlite", path=str(tmp_path / "shop.db"), table=table, **sink)
        declared = Pipeline(
            name="ratios",
            checkpoint=str(tmp_path / table),
            bootstrap_servers=topics.servers,
            sources=[Source(name="orders", topics=[topic], schema="id BIGINT")],
            steps=[Sql(name="ratios", sql=sql)],
            sinks=[lite],
        )
        run(declared, spark)
        return sorted(row[:3] for row in table_rows(lite))

    infinity = float("inf")
    assert into("plain", origin=False) == [(1, None, infinity), (2, 0.5, infinity)]
    assert into("keyed", keys=["id"], sequence="most") == [(1, None, infinity), (2, 0.5, infinity)]
    with pytest.raises(Exception, match="ratio is NaN, which SQLite cannot store as sequence"):
        into("newest", keys=["id"], sequence="ratio")


@pytest.mark.long  # tests/unit/spark/pipelines has the messages
def test_windows_are_replaced_while_they_grow(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.make()
    where = str(tmp_path / "shop.duckdb")
    declared = Pipeline(
        name="windows",
        checkpoint=str(tmp_path / "state"),
        bootstrap_servers=topics.servers,
        sources=[Source(name="clicks", topics=[topic], schema="user STRING, at TIMESTAMP", event_time="at")],
        steps=[Window(name="counts", window="1 minute", group_by=["user"], aggregate={"clicks": "count(*)"})],
        sinks=[
            DatabaseSink(name="up", format="duckdb", path=where, table="up", keys=["window_start", "user"]),
            DatabaseSink(name="over", format="duckdb", path=where, table="over", mode="overwrite"),
        ],
    )
    for total in (1, 2):
        send(topics, topic, '{"user": "a", "at": "2026-11-17T12:00:00Z"}', f'{{"user": "{total}", "at": null}}')
        run(declared, spark)
        for sink in declared.sinks:
            assert isinstance(sink, DatabaseSink)
            assert [row[-1] for row in table_rows(sink) if row[2] == "a"] == [total]


def test_problems_are_told_before_the_first_batch(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic, where = topics.make(), tmp_path / "shop.db"
    send(topics, topic, '{"id": 3}')

    def told(**sink: Any) -> str:
        declared = typed(tmp_path, topics.servers, topic, **{"format": "sqlite", "path": str(where), **sink})
        with pytest.raises(DatabaseError) as caught:
            run(declared, spark)
        return str(caught.value)

    where.write_text("no database " * 1000)
    assert "file is not a database. Set another path in the sink, or move this file away" in told()
    assert not (tmp_path / "state" / "base" / "offsets").exists(), "no batch was planned"
    assert "No such file or directory: check the path of the sink" in told(path="/proc/no/no.db")
