"""Pipelines in TOML and Python on a real Spark."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla
from ottla.clients.consumer.dead_letter_steps import DeadLetter
from ottla.spark.pipelines import (
    DeclarationError,
    Dedupe,
    FileSink,
    JdbcSink,
    Join,
    Pipeline,
    Python,
    Source,
    Sql,
    Table,
    TopicSink,
    Window,
    compile_pipeline,
    load,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark


def run(pipeline: Pipeline, spark: SparkSession, *only: str) -> dict[str, list[Any]]:
    """Run all or some flows over the current records; returns their progress."""
    flows = compile_pipeline(pipeline, spark, trigger="available-now")
    queries = {flow.name: flow.start() for flow in flows if flow.name in only or not only}
    try:
        for name, query in queries.items():
            assert query.awaitTermination(100), f"{name} did not end"
    finally:
        for query in queries.values():
            query.stop()
    return {name: [one for one in query.recentProgress if one.numInputRows] for name, query in queries.items()}


def send(topics: Topics, topic: str, *values: bytes | str | None, **more: Any) -> None:
    sent = [
        topics.producer.send(topic, value.encode() if isinstance(value, str) else value, **more) for value in values
    ]
    for future in sent:
        future.result(20)


def committed(topics: Topics, topic: str) -> list[ottla.ConsumerRecord]:
    """The committed records of a topic."""
    with ottla.Consumer(
        bootstrap_servers=topics.servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        parts = [ottla.TopicPartition(topic, number) for number in range(1)]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        found: list[ottla.ConsumerRecord] = []
        while any(consumer.position(part) < ends[part] for part in parts):
            found += consumer.poll(1.0)
        return found


BROKEN = {
    '{"id": 1': "malformed JSON at line 1 column 9",
    '{"id": 2} {"id": 3}': "malformed JSON at line 1 column 11 (Extra data)",
    '{"id": 2} or so': "malformed JSON at line 1 column 11",
    "[1]": "the value is a JSON array, not an object",
    "": "the value is empty",
    '{"total": 1.0}': "field id is missing",
    '{"id": null}': "field id is null",
    '{"id": 4, "total": "many"}': 'field total is not a number: "many"',
    '{"id": 4.5}': "field id is not a whole number: 4.5",
    '{"id": 5, "at": "soon"}': 'field at is not a valid timestamp: "soon"',
    '{"id": 6, "lines": [{"item": "a"}, {}]}': "field lines[1].item is missing",
    '{"id": 7, "total": -1}': "condition is false: total >= 0",
    b"\xff\x00": "the value is not UTF-8 text: byte 0 is 0xff",
    None: "the record has no value",
}


@pytest.mark.parametrize("read", ["shared", pytest.param("separate", marks=pytest.mark.long)])
def test_broken_records_go_to_dead_letters_and_all_else_to_table_and_topic(
    topics: Topics, spark: SparkSession, tmp_path: Path, read: str
) -> None:
    orders, large, dead = topics.make(), topics.make(), topics.make()
    good = [f'{{"id": {number}, "total": {number}.5, "lines": [{{"item": "x{{}}{{}}"}}]}}' for number in range(20)]
    values: list[Any] = [*good[:10], *BROKEN, *good[10:]]
    send(topics, orders, *values, key=b"k", headers=[("trace", b"7")])
    (tmp_path / "orders.toml").write_text(
        f"""
name = "orders"
checkpoint = "state"
bootstrap_servers = "{topics.servers}"
read = "{read}"

[[source]]
name = "orders"
topics = ["{orders}"]
schema = "id BIGINT NOT NULL, total DOUBLE, at TIMESTAMP, lines ARRAY<STRUCT<item: STRING NOT NULL>>"
require = ["total >= 0"]
group_id = "{orders}-group"
max_offsets_per_trigger = 15

[[step]]
name = "large"
sql = "SELECT id, total, _partition, _offset FROM orders WHERE total > 9"

[[sink]]
name = "table"
input = "orders"
format = "parquet"
path = "table"

[[sink]]
name = "topic"
format = "topic"
topic = "{large}"
key = "id"

[dead_letters]
topic = "{dead}"
"""
    )
    progress = run(load(tmp_path / "orders.toml"), spark)
    names = ["shared.orders"] if read == "shared" else ["table", "topic", "dead-letters.orders"]
    readers = dict.fromkeys(names, len(values))
    assert {name: sum(one.numInputRows for one in found) for name, found in progress.items()} == readers

    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row.id for row in rows) == list(range(20))
    assert {bytes(row._key) for row in rows} == {b"k"}
    assert {row._topic for row in rows} == {orders}
    broken = range(10, 10 + len(BROKEN))
    assert sorted(row._offset for row in rows) == [one for one in range(len(values)) if one not in broken]

    written = committed(topics, large)
    assert [(one.key, json.loads(one.value)) for one in written] == [
        (str(number).encode(), {"id": number, "total": number + 0.5}) for number in range(9, 20)
    ]

    letters = [DeadLetter.of(record) for record in committed(topics, dead)]
    assert [letter.offset for letter in letters] == list(broken)
    for letter, (value, reason) in zip(letters, BROKEN.items(), strict=True):
        assert letter.error_message.startswith(reason)
        assert letter.value == (value.encode() if isinstance(value, str) else value)
        assert (letter.topic, letter.partition, letter.key) == (orders, 0, b"k")
        assert letter.headers == [("trace", b"7")]
        assert letter.error_class == "ottla.spark.pipelines.BrokenRecord"
        assert letter.group == f"{orders}-group"

    end = {f"{orders}-0": len(values)}
    for group in [""] if read == "shared" else ["", ".topic", ".dead-letters.orders"]:
        assert topics.committed(f"{orders}-group{group}") == end

    # A run from the checkpoint reads only new records.
    send(topics, orders, '{"id": 20, "total": 20}', "broken")
    run(load(tmp_path / "orders.toml"), spark)
    assert spark.read.parquet(str(tmp_path / "table")).count() == 21
    assert len(committed(topics, large)) == 12
    assert len(committed(topics, dead)) == len(BROKEN) + 1


MINUTE = 60_000


def test_dedupe_join_window_python_and_jdbc(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    clicks, names = topics.make(), topics.make()
    start = int(datetime(2024, 5, 1, tzinfo=UTC).timestamp() * 1000)

    def click(number: int, user: int, minute: float) -> str:
        at = datetime.fromtimestamp((start + minute * MINUTE) / 1000, UTC).isoformat()
        return json.dumps({"id": number, "user": user, "at": at})

    events = [click(1, 1, 0), click(2, 2, 0.5), click(1, 1, 0.2), click(3, 1, 1.5), click(3, 1, 1.6), click(4, 9, 30)]
    send(topics, clicks, *events)
    send(topics, names, '{"user": 1, "name": "old"}', '{"user": 1, "name": "Ann"}', None, key=b"1")
    send(topics, names, '{"user": 1, "name": "Ann"}', key=b"1")
    send(topics, names, '{"user": 2, "name": "Bob"}', key=b"2")
    (tmp_path / "marking.py").write_text(
        "from pyspark.sql.functions import udf\n"
        "def _shout(text):\n    return None if text is None else text.upper() + SIGN\n"
        "SIGN = '!'\n"
        "def mark(frame, column):\n    return frame.withColumn('loud', udf(_shout, 'string')(column))\n"
    )
    pipeline = Pipeline(
        name="clicks",
        checkpoint=str(tmp_path / "state"),
        bootstrap_servers=topics.servers,
        sources=[
            Source(
                name="clicks",
                topics=[clicks],
                schema="id INT NOT NULL, user INT, at TIMESTAMP",
                event_time="at",
                watermark="5 minutes",
                max_offsets_per_trigger=3,
            )
        ],
        tables=[Table(name="people", format="topic", topic=names, schema="user INT, name STRING")],
        steps=[
            Dedupe(name="unique", keys=["id"], within="5 minutes"),
            Join(name="named", join="people", on=["user"]),
            Python(name="loud", python="marking:mark", arguments={"column": "name"}),
            Window(
                name="minutes",
                input="named",
                window="1 minute",
                group_by=["name"],
                aggregate={"clicks": "count(*)", "users": "collect_set(user)"},
            ),
        ],
        sinks=[
            FileSink(name="loud", input="loud", path=str(tmp_path / "loud"), partition_by=["user"]),
            FileSink(name="minutes", format="json", path=str(tmp_path / "minutes")),
            JdbcSink(
                name="base",
                input="loud",
                url=f"jdbc:derby:memory:{clicks.replace('-', '')};create=true",
                driver="org.apache.derby.jdbc.EmbeddedDriver",
                table="clicks",
            ),
        ],
    )
    object.__setattr__(pipeline, "directory", tmp_path)
    spark._jvm.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))  # not where we are
    run(pipeline, spark)
    expected = [(1, "Ann", "ANN!"), (2, "Bob", "BOB!"), (3, "Ann", "ANN!"), (4, None, None)]
    loud = spark.read.parquet(str(tmp_path / "loud")).orderBy("id").collect()
    assert [(row.id, row.name, row.loud) for row in loud] == expected
    windows = spark.read.json(str(tmp_path / "minutes")).orderBy("window_start", "name").collect()
    assert [(row.name, row.clicks, row.users) for row in windows] == [("Ann", 1, [1]), ("Bob", 1, [2]), ("Ann", 1, [1])]
    assert windows[0].window_start.startswith("2024-05-01T00:00:00")

    def stored() -> list[tuple[Any, ...]]:
        sink = pipeline.sinks[2]
        assert isinstance(sink, JdbcSink)
        frame = spark.read.format("jdbc").options(url=sink.url, dbtable="clicks", driver=sink.driver).load()
        return sorted((row.id, row.name, row.loud) for row in frame.collect())

    assert stored() == expected
    # Repeat the last batch of the database, as after a crash before Spark recorded its end.
    assert sorted(os.listdir(tmp_path / "state")) == ["minutes", "shared"], "windows have a query of their own"
    commits = sorted((tmp_path / "state/shared/clicks/commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    run(pipeline, spark, "shared.clicks")
    assert stored() == expected
    assert spark.read.parquet(str(tmp_path / "loud")).count() == len(expected)


def test_avro_csv_text_and_bytes(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    import fastavro

    schema = {
        "type": "record",
        "name": "Trade",
        "fields": [
            {"name": "id", "type": "long"},
            {
                "name": "price",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
            },
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
    (tmp_path / "trade.avsc").write_text(json.dumps(schema))

    def encoded(number: int) -> bytes:
        out = BytesIO()
        at = datetime(2024, 5, 1, tzinfo=UTC)
        fastavro.schemaless_writer(out, schema, {"id": number, "price": None, "at": at, "tags": ["a"]})
        return out.getvalue()

    avro, lines, dead = topics.make(), topics.make(), topics.make()
    send(topics, avro, encoded(1), encoded(2)[:-2], encoded(3), encoded(4) + b"x", None)
    send(topics, lines, "1;a b", "2;", "x;c", "1;2;3", "")
    (tmp_path / "mixed.py").write_text(
        f"""
from ottla.spark.pipelines import *

pipeline = Pipeline(
    name="mixed",
    checkpoint="state",
    bootstrap_servers="{topics.servers}",
    sources=[
        Source(name="trades", topics=["{avro}"], format="avro", schema_file="trade.avsc", require=["id < 3"]),
        Source(name="lines", topics=["{lines}"], format="csv", schema="n INT, word STRING", options={{"sep": ";"}}),
        Source(name="raw", topics=["{lines}"], format="text", on_error="skip"),
        Source(name="all", topics=["{avro}"], format="bytes", null_values="keep"),
    ],
    steps=[Sql(name="both", sql="SELECT * FROM raw UNION ALL SELECT hex(value) AS value, * EXCEPT (value) FROM all")],
    sinks=[
        FileSink(name="trades", input="trades", path="trades"),
        FileSink(name="lines", input="lines", path="lines", origin=False),
        FileSink(name="both", path="both"),
    ],
    dead_letters=DeadLetters(topic="{dead}"),
)
"""
    )
    run(load(tmp_path / "mixed.py"), spark)
    (trade,) = spark.read.parquet(str(tmp_path / "trades")).collect()
    assert (trade.id, trade.price, trade.tags, trade._offset) == (1, None, ["a"], 0)
    assert trade.at.timestamp() == 1714521600
    rows = spark.read.parquet(str(tmp_path / "lines"))
    assert rows.columns == ["n", "word"]
    assert sorted(map(tuple, rows.collect())) == [(1, "a b"), (2, None)]
    both = spark.read.parquet(str(tmp_path / "both")).collect()
    assert sorted((row._topic == avro, row._offset) for row in both) == [
        (topic, offset) for topic in (False, True) for offset in range(5)
    ]
    assert [row.value for row in both if (row._topic, row._offset) in ((avro, 4), (lines, 0))] in (
        [None, "1;a b"],
        ["1;a b", None],
    )
    told = {
        (letter.topic, letter.offset): letter.error_message
        for letter in (DeadLetter.of(record) for record in committed(topics, dead))
    }
    assert told.pop((avro, 1)).startswith("the Avro value ends after")
    assert told == {
        (avro, 2): "condition is false: id < 3",
        (avro, 3): "1 extra bytes after the Avro record: the value may have another schema",
        (avro, 4): "the record has no value",
        (lines, 2): 'field n is not a whole number: "x"',
        (lines, 3): "the value has 3 fields, the schema has 2",
        (lines, 4): "the value is empty",
    }


def test_what_spark_refuses_is_told_with_the_line(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    orders = topics.make()
    (tmp_path / "steps.py").write_text("def none(frame):\n    return 5\ndef fails(frame):\n    return frame.nothing\n")
    (tmp_path / "wrong.py").write_text(
        f"""
from ottla.spark.pipelines import *
source = Source(name="orders", topics=["{orders}"], schema="id BIGINT, at TIMESTAMP")
def made(*steps, **more):
    return Pipeline(name="x", checkpoint="state", bootstrap_servers="{topics.servers}", sources=[source], steps=steps,
        sinks=[FileSink(name="t", path="t", **more)])
pipeline = made()
all = [
    (made(Sql(name="s", sql="SELECT idd FROM orders")), 9, "position 8: column idd does not exist. Did you mean id? "),
    (made(Sql(name="s", sql="SELEC")), 10, "SELEC"),
    (made(Dedupe(name="d", keys=["_idd"], within="1 hour")), 11, "has no column _idd. Did you mean id?"),
    (made(Python(name="p", python="steps:none")), 12, "steps:none returned a int"),
    (made(Python(name="p", python="steps:fails")), 13, "(line 4 of steps.py, in fails)"),
    (made(Sql(name="s", sql="SELECT * FROM orders"), Dedupe(name="d", keys=["id"], within="1 hour"),
          Dedupe(name="e", keys=["id"], within="2 hours", input="s"), Window(name="w", input="d", window="1 minute",
          aggregate={{"n": "count(*)"}}, watermark="1 hour", event_time="at")), 15, "already has a watermark (_time"),
    (made(partition_by=["day"]), 6, "partition_by: the input has no column day"),
    (made(Sql(name="s", sql="SELECT 1")), 6, "the input is not a stream"),
]
"""
    )
    names: dict[str, Any] = {}
    exec(compile((tmp_path / "wrong.py").read_text(), str(tmp_path / "wrong.py"), "exec"), names)
    for pipeline, line, message in names["all"]:
        object.__setattr__(pipeline, "directory", tmp_path)
        with pytest.raises(DeclarationError) as caught:
            compile_pipeline(pipeline, spark)
        (problem,) = caught.value.problems
        assert (problem.file, problem.line) == (str(tmp_path / "wrong.py"), line)
        assert message in problem.message
        assert "\n" not in problem.message
    assert not [one.name for one in spark.catalog.listTables() if one.name in ("orders", "s")]

    # A broken record without dead letters fails the query.
    send(topics, orders, '{"id": "x"}')
    (flow,) = compile_pipeline(names["pipeline"], spark, trigger="once")
    object.__setattr__(names["pipeline"], "directory", tmp_path)
    query = compile_pipeline(names["pipeline"], spark, trigger="once")[0].start()
    with pytest.raises(Exception, match=f"the record of {orders}-0 at offset 0 does not match the json schema"):
        query.awaitTermination(60)
    assert flow.name == "t"


def test_changed_rows_go_to_a_topic(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    orders, out = topics.make(), topics.make()
    send(topics, orders, '{"id": 1, "user": "a"}', '{"id": 2, "user": "a"}', '{"id": 3, "user": "b"}')
    pipeline = Pipeline(
        name="counts",
        checkpoint=str(tmp_path / "state"),
        bootstrap_servers=topics.servers,
        sources=[Source(name="orders", topics=[orders], schema="id INT, user STRING")],
        steps=[Sql(name="counts", sql="SELECT user AS key, count(*) AS value FROM orders GROUP BY user")],
        sinks=[TopicSink(name="out", topic=out, mode="update")],
    )
    run(pipeline, spark)
    send(topics, orders, '{"id": 4, "user": "b"}')
    run(pipeline, spark)
    found = [(record.key, record.value) for record in committed(topics, out)]
    assert sorted(found[:2]) == [(b"a", b"2"), (b"b", b"1")]
    assert found[2:] == [(b"b", b"2")]
