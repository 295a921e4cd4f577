"""Steps with latest: the same changes in any order leave the same tables."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from changes.orders import Change, random_changes, versions
from ottla.spark.pipelines import DeclarationError, Latest, Pipeline, Source, compile_pipeline
from ottla.spark.pipelines.changes.rows import encoded
from ottla.spark.pipelines.failures import cause_of
from ottla.spark.pipelines.sources import batch
from spark.change_tables import FORMATS, Tables
from spark.test_spark_pipelines import run, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, ts BIGINT, name STRING, more MAP<STRING, INT>, op STRING"


def declared(tables: Tables, servers: str, topic: str, *, most: int = 40, **step: Any) -> Pipeline:
    """One table with the newest rows, and one with all versions."""
    parts = {"keys": ["id"], "sequence": "ts", "deletes": "op = 'd'", "exclude": ["op", "more"], **step}
    return Pipeline(
        name="changes",
        checkpoint=str(tables.directory / "state"),
        bootstrap_servers=servers,
        sources=[Source(name="changes", topics=[topic], schema=SCHEMA, max_offsets_per_trigger=most)],
        steps=[
            Latest(name="newest", input="changes", **parts),
            Latest(name="versions", input="changes", history=True, **parts),
        ],
        sinks=[tables.sink(name, input=name) for name in ("newest", "versions")],
    )


def records(changes: list[Change]) -> Iterator[str]:
    for one in changes:
        row = {"id": one.key, "ts": one.ts, "name": one.content, "more": {"a": 1}, "op": "d" if one.deleted else "u"}
        yield json.dumps(row)


@pytest.mark.parametrize("kind", FORMATS)
def test_changes_are_applied_to_tables(topics: Topics, spark: SparkSession, tmp_path: Path, kind: str) -> None:
    topic, changes, tables = topics.make(), random_changes(random.Random(1)), Tables(kind, tmp_path, spark)
    send(topics, topic, *records(changes))
    pipeline = declared(tables, topics.servers, topic)
    run(pipeline, spark)
    known = sorted(((row[0], row[3], row[4], row[5]) for row in versions(changes)), key=str)
    assert tables.rows(pipeline, "versions", "id", "valid_from", "valid_to", "_deleted") == known
    last = sorted((row for row in known if row[2] is None), key=str)
    assert tables.rows(pipeline, "newest", "id", "ts", "CAST(NULL AS INT)", "_deleted") == last
    send(topics, topic, '{"id": 1}')
    with pytest.raises(Exception) as caught:
        run(pipeline, spark)
    told = cause_of(caught.value)
    assert told.startswith(f"the sequence (ts) is NULL in the record of {topic}-0 at offset 60. A change without")


@pytest.mark.long  # `make changes` tries 1,000 orders without Spark
@pytest.mark.parametrize("kind", FORMATS)
def test_changes_in_any_order_leave_the_same_tables(
    topics: Topics, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    changes = random_changes(random.Random(2))
    found = []
    for order in range(5):
        topic = topics.make()
        mixed = [*changes, *changes[: 20 * order]]
        random.Random(order).shuffle(mixed)
        send(topics, topic, *records(mixed))
        tables = Tables(kind, tmp_path / str(order), spark)
        tables.directory.mkdir()
        pipeline = declared(tables, topics.servers, topic, most=5 + 20 * order)
        run(pipeline, spark)
        found.append([tables.rows(pipeline, name) for name in ("newest", "versions")])
    assert all(one == found[0] for one in found)


def test_versions_sort_like_the_sequence(spark: SparkSession) -> None:
    texts = ["1901-01-01 00:00:00", "1970-01-01 00:00:00", "2026-11-17 01:02:03.000004", "2999-01-01 00:00:00"]
    numbers = [-(2**31), -1, 0, 1, 2**31 - 1]
    columns: dict[str, list[Any]] = {
        "tinyint": [-128, -1, 0, 127],
        "int": numbers,
        "bigint": [-(2**63), *numbers, 2**63 - 1],
        "decimal(38,0)": [-(10**37), -20, -3, 0, 4, 10**37],
        "string": ["", "A", "AB", "B", "a", "ab", "ä", "😀"],
        "date": ["0001-01-01", "1969-12-31", "2026-01-01"],
        "timestamp": texts,
        "timestamp_ntz": texts,
    }
    texts_of = spark.createDataFrame(
        [(kind, number, str(one)) for kind, values in columns.items() for number, one in enumerate(values)],
        "kind STRING, number INT, text STRING",
    )
    cases = []
    for kind in columns:
        (field,) = spark.range(0).selectExpr(f"CAST(NULL AS {kind}) AS x").schema.fields
        column = encoded("text", field.dataType).replace("`text`", f"CAST(text AS {kind})")
        cases.append(f"WHEN kind = '{kind}' THEN {column}")
    rows = texts_of.selectExpr("kind", "number", f"CASE {' '.join(cases)} END AS encoded").collect()
    for kind, values in columns.items():
        texts = [row["encoded"] for row in sorted(rows, key=lambda row: int(row["number"])) if row["kind"] == kind]
        assert texts == sorted(texts), kind
        assert len(set(texts)) == len(values), kind
        assert set("".join(texts)) <= set("0123456789ABCDEF"), kind


def test_problems_that_only_spark_knows_are_told(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.make()
    for step, message in (
        ({"sequence": "more"}, "sequence more is map: use a whole number, a date, a timestamp or text"),
        ({"keys": ["_idd"]}, "latest: the input has no column _idd. Did you mean id?"),
        ({"deletes": "op"}, "deletes must be a condition: op is not true or false"),
    ):
        with pytest.raises(DeclarationError) as caught:
            compile_pipeline(declared(Tables("derby", tmp_path, spark), topics.servers, topic, **step), spark)
        assert message in str(caught.value)


# ── Debezium ─────────────────────────────────────────────────────────────────────────────────────────────────────────

ROW = {"id": 1, "name": "Ada"}
SOURCE = {"version": "3.0", "connector": "postgresql", "ts_ms": 1700000000123, "lsn": 24023128, "snapshot": "false"}


def envelope(op: str, *, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1700000000999, **more}


def test_debeziums_envelope_is_a_row_with_its_change(spark: SparkSession) -> None:
    mysql = {"ts_ms": 1700000000123, "file": "binlog.000012", "pos": 154, "row": 0}
    key = {"id": 7}
    records = [
        (None, envelope("c", after=ROW)),
        (None, {"schema": {"type": "struct"}, "payload": envelope("u", before=ROW, after={**ROW, "name": None})}),
        (None, envelope("d", before=ROW)),
        ({"schema": {}, "payload": key}, envelope("d")),
        (key, envelope("d", before={"name": "Eve"}, source=mysql)),
        (None, envelope("r", after=ROW, source=None)),
        (key, None),
        (key, envelope("t")),
        (None, envelope("d")),
        (None, envelope("u", before=ROW)),
        (None, envelope("u", after={"name": "Ada"})),
        (None, envelope("c", after={"id": "x"})),
        (None, ROW),
    ]
    rows = [
        (bytearray(json.dumps(key), "utf8"), None if value is None else bytearray(json.dumps(value), "utf8"), number)
        for number, (key, value) in enumerate(records)
    ]
    raw = spark.createDataFrame(rows, "key BINARY, value BINARY, offset BIGINT").selectExpr(
        "'t' AS topic", "0 AS partition", "offset", "current_timestamp() AS timestamp", "key", "value"
    )
    source = Source(name="s", topics=["t"], format="debezium", schema="id BIGINT NOT NULL, name STRING")
    pipeline = Pipeline(name="p", checkpoint="c", bootstrap_servers="x:1", sources=[source], sinks=[])
    good, broken = batch(pipeline, source, raw)
    found = good.selectExpr("_offset", "id", "name", "_op", "unix_millis(_ts)", "_sequence").orderBy("_offset")
    time, lsn = "01700000000123000", "00000000000024023128"
    assert list(map(tuple, found.collect())) == [
        (0, 1, "Ada", "c", 1700000000123, f"{time}-{lsn}"),
        (1, 1, None, "u", 1700000000123, f"{time}-{lsn}"),
        (2, 1, "Ada", "d", 1700000000123, f"{time}-{lsn}"),
        (3, 7, None, "d", 1700000000123, f"{time}-{lsn}"),
        (4, 7, "Eve", "d", 1700000000123, f"{time}-0000000012-000000000154-000000"),
        (5, 1, "Ada", "r", 1700000000999, "01700000000999000"),
    ]
    assert sorted(row._offset for row in broken.collect()) == [7, 8, 9, 10, 11, 12]
