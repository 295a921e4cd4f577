"""Steps of pipelines with time on a real Spark: joins of streams, sessions; Avro with schema ids."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat.waiting import until
from ottla.spark.pipelines import (
    DeclarationError,
    FileSink,
    Join,
    Pipeline,
    Session,
    Source,
    Sql,
    Table,
    Window,
    compile_pipeline,
    load,
    tables,
)
from ottla.spark.pipelines.formats import VALUE, Format
from spark.test_spark_pipelines import run, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark


def rows(spark: SparkSession, path: Path, *columns: str) -> list[tuple[Any, ...]]:
    found = spark.read.parquet(str(path)).selectExpr(*columns).collect()
    return sorted(map(tuple, found), key=repr)


def test_streams_are_joined_within_a_time(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """Matches arrive in any order; what is too far apart, or late by more than the watermark, is not joined."""
    orders, payments = topics.make(), topics.make()
    text = f"""
name = "shop"
checkpoint = "state"
bootstrap_servers = "{topics.servers}"
[[source]]
name = "orders"
topics = ["{orders}"]
schema = "id INT, at TIMESTAMP"
event_time = "at"
watermark = "10 minutes"
[[source]]
name = "payments"
topics = ["{payments}"]
schema = "id INT, amount INT, at TIMESTAMP"
event_time = "at"
watermark = "10 minutes"
[[step]]
name = "paid"
input = "orders"
join = "payments"
on = ["id"]
within = {{before = "5 minutes", after = "1 hour"}}
how = "left"
prefix = "payment_"
[[step]]
name = "hourly"
input = "paid"
window = "1 hour"
aggregate = {{orders = "count(*)", paid = "count(payment_amount)"}}
[[sink]]
name = "paid"
input = "paid"
path = "paid"
format = "parquet"
[[sink]]
name = "hourly"
input = "hourly"
path = "hourly"
format = "parquet"
"""
    (tmp_path / "shop.toml").write_text(text)

    def order(number: int, time: str) -> str:
        return json.dumps({"id": number, "at": f"2024-05-01T{time}:00Z"})

    def payment(number: int, time: str) -> str:
        return json.dumps({"id": number, "amount": number * 10, "at": f"2024-05-01T{time}:00Z"})

    send(topics, orders, order(1, "08:00"), order(2, "08:00"), order(3, "08:30"), order(4, "08:30"))
    send(topics, payments, payment(1, "08:20"), payment(2, "09:01"), payment(3, "08:26"))
    run(load(tmp_path / "shop.toml"), spark)
    assert rows(spark, tmp_path / "paid", "id", "payment_amount") == [(1, 10), (3, 30)]
    # The watermark moves to 09:50; then the payment of order 4 at 09:00 is late, and that of order 5 is not.
    send(topics, orders, order(5, "10:00"))
    send(topics, payments, payment(6, "10:00"))
    run(load(tmp_path / "shop.toml"), spark)
    send(topics, payments, payment(4, "09:00"), payment(5, "09:56"))
    send(topics, orders, order(7, "13:00"))
    send(topics, payments, payment(7, "13:00"))
    run(load(tmp_path / "shop.toml"), spark)
    joined = rows(spark, tmp_path / "paid", "id", "payment_amount", "_offset", "_topic")
    assert joined == [
        (1, 10, 0, orders),
        (2, None, 1, orders),
        (3, 30, 2, orders),
        (4, None, 3, orders),
        (5, 50, 4, orders),
        (7, 70, 5, orders),
    ]
    # A window behind the join uses the event time of the input.
    hourly = rows(spark, tmp_path / "hourly", "date_format(window_start, 'HH:mm')", "orders", "paid")
    assert [one[1:] for one in hourly] == [(4, 2), (1, 1)]


@pytest.mark.long
def test_sessions_merge(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    clicks = topics.make()

    def click(user: str, time: str) -> str:
        return json.dumps({"user": user, "at": f"2024-05-01T{time}:00Z"})

    pipeline = Pipeline(
        name="clicks",
        checkpoint=str(tmp_path / "state"),
        bootstrap_servers=topics.servers,
        sources=[
            Source(
                name="clicks",
                topics=[clicks],
                schema="user STRING, at TIMESTAMP",
                event_time="at",
                watermark="30 minutes",
            )
        ],
        steps=[Session(name="visits", session="10 minutes", group_by=["user"], aggregate={"clicks": "count(*)"})],
        sinks=[FileSink(name="visits", path=str(tmp_path / "visits"))],
    )
    send(topics, clicks, click("a", "08:00"), click("a", "08:15"), click("b", "08:00"), click("a", "08:30"))
    run(pipeline, spark)
    # This one connects the first two sessions of a.
    send(topics, clicks, click("a", "08:08"), click("b", "11:00"))
    run(pipeline, spark)
    send(topics, clicks, click("a", "08:01"), click("b", "14:00"))  # the first is late
    run(pipeline, spark)
    time = "date_format(from_utc_timestamp(to_utc_timestamp({}, current_timezone()), 'UTC'), 'HH:mm')"
    found = rows(spark, tmp_path / "visits", "user", time.format("window_start"), time.format("window_end"), "clicks")
    assert found == [
        ("a", "08:00", "08:25", 3),
        ("a", "08:30", "08:40", 1),
        ("b", "08:00", "08:10", 1),
        ("b", "11:00", "11:10", 1),
    ]


@pytest.mark.long
@pytest.mark.parametrize("read", ["shared", "separate"])
def test_a_running_query_sees_new_rows_of_tables(
    topics: Topics, spark: SparkSession, tmp_path: Path, read: Any
) -> None:
    orders, names = topics.make(), topics.make(cleanup_policy="compact")
    cities = tmp_path / "cities.csv"
    cities.write_text("user,city\na,Oslo\n")
    send(topics, names, '{"user": "a", "name": "Ann"}', key=b"a")
    pipeline = Pipeline(
        name="shop",
        checkpoint=str(tmp_path / "state"),
        bootstrap_servers=topics.servers,
        read=read,
        sources=[Source(name="orders", topics=[orders], schema="id INT, user STRING")],
        tables=[
            Table(
                name="cities",
                format="csv",
                path=str(cities),
                schema="user STRING, city STRING",
                options={"header": "true"},
                refresh="0 seconds",
            ),
            Table(name="names", format="topic", topic=names, schema="user STRING, name STRING", refresh="0 seconds"),
        ],
        steps=[
            Join(name="named", join="names", on=["user"]),
            Sql(name="placed", sql="SELECT id, name, city FROM named LEFT JOIN cities USING (user)"),
        ],
        sinks=[FileSink(name=name, path=str(tmp_path / name)) for name in ("one", "two")],
    )
    flows = compile_pipeline(pipeline, spark)
    assert [flow.shared is not None for flow in flows] == ([True] if read == "shared" else [False, False])
    queries = [flow.start() for flow in flows]

    def found() -> set[tuple[Any, ...]]:
        """The rows that both sinks have."""
        tables = [
            spark.read.schema("name STRING, city STRING").parquet(str(tmp_path / name)) for name in ("one", "two")
        ]
        return set.intersection(*[set(map(tuple, table.collect())) for table in tables])

    def sent_until(expected: tuple[str, str]) -> None:
        """Send orders until one is joined with the new rows."""

        def joined() -> bool:
            send(topics, orders, '{"id": 1, "user": "a"}')
            return all((tmp_path / name / "_spark_metadata" / "0").exists() for name in ("one", "two")) and (
                expected in found()
            )

        until(joined, f"{expected} is joined", 60)

    try:
        sent_until(("Ann", "Oslo"))
        send(topics, names, '{"user": "a", "name": "Anna"}', key=b"a")
        cities.write_text("user,city\na,Trondheim\n")
        sent_until(("Anna", "Trondheim"))
        cities.unlink()
        send(topics, names, '{"user": "a", "name": "Anneke"}', key=b"a")
        sent_until(("Anneke", "Trondheim"))
        assert all(query.isActive for query in queries)
    finally:
        for query in queries:
            query.stop()


def test_a_table_that_is_deleted_while_it_is_read_keeps_its_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Running:
        isActive = True  # noqa: N815 (Spark's name)
        status: Mapping[str, bool] = {"isTriggerActive": True}
        lastProgress = None  # noqa: N815

    cities = tmp_path / "cities.csv"
    cities.write_text("a,Oslo\n")
    pipeline = Pipeline(
        name="shop",
        checkpoint=str(tmp_path / "state"),
        sources=[Source(name="orders", topics=["orders"], format="raw")],
        tables=[Table(name="cities", format="csv", path=str(cities), refresh="300 milliseconds")],
        sinks=[FileSink(name="table", path=str(tmp_path / "table"))],
    )
    deleted = threading.Event()
    list_files = tables._list_files

    def list_and_delete(frame: Any) -> None:
        list_files(frame)
        if frame is source and not deleted.is_set():
            cities.unlink()
            deleted.set()

    monkeypatch.setattr(tables, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(tables, "_list_files", list_and_delete)
    source = spark.read.schema("user STRING, city_in_memory STRING").csv(str(cities))
    refresher = tables.Refresher(pipeline, spark, {"cities": source})

    def planned() -> Any:
        """A micro-batch that is planned now."""
        frame = refresher.frames["cities"].select("*")
        frame._jdf.queryExecution().executedPlan()
        return frame

    def rows_of(frame: Any) -> list[tuple[Any, ...]]:
        return list(map(tuple, frame.collect()))

    def in_memory() -> int:
        """How often Spark keeps the rows of the file."""
        context: Any = spark.sparkContext
        return sum("city_in_memory" in one.name() for one in context._jsc.sc().getRDDStorageInfo())

    refresher.frames["cities"].persist().count()
    query = Running()
    refresher.watch(query)
    try:
        assert deleted.wait(60)
        for _ in range(3):
            assert rows_of(planned()) == [("a", "Oslo")]
        running = planned()
        cities.with_suffix(".new").write_text("a,Bergen\n")
        cities.with_suffix(".new").rename(cities)
        until(lambda: rows_of(planned()) == [("a", "Bergen")], "the new file is read")
        cities.unlink()
        assert rows_of(running) == [("a", "Oslo")], "a micro-batch that runs keeps its rows"
        query.status = {"isTriggerActive": False}
        until(lambda: in_memory() == 1, "the old rows are freed")
        assert rows_of(planned()) == [("a", "Bergen")]
    finally:
        query.isActive = False
        until(lambda: refresher._thread is None, "the refresher has ended")
    assert in_memory() == 0


def test_what_spark_would_refuse_later(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    def told(*steps: Any) -> str:
        shape = {"event_time": "at", "watermark": "1 hour", "topics": ["x"]}
        pipeline = Pipeline(
            name="x",
            checkpoint=str(tmp_path / "state"),
            bootstrap_servers=topics.servers,
            sources=[
                Source(name="a", schema="id INT, at TIMESTAMP, n INT", **shape),
                Source(name="b", schema="id INT, at TIMESTAMP, n INT", **shape),
            ],
            steps=steps,
            sinks=[FileSink(name="t", path=str(tmp_path / "t"))],
        )
        with pytest.raises(DeclarationError) as caught:
            compile_pipeline(pipeline, spark)
        (problem,) = caught.value.problems
        return problem.message

    join = {"input": "a", "on": ["id"], "within": "1 hour"}
    assert told(Join(name="j", join="b", **join)) == (
        'columns at, n exist in the input and in b: set prefix, such as prefix = "b_", or rename it in a step before'
    )
    assert told(Sql(name="s", sql="SELECT id, n AS m FROM b"), Join(name="j", join="s", **join)).startswith(
        "s has no column with a watermark: set event_time and watermark of its source"
    )
    assert "has no column idd. Did you mean id?" in told(Join(name="j", join="b", **{**join, "on": ["idd"]}))
    assert (
        told(
            Window(name="w", input="a", window="1 minute", aggregate={"n": "count(*)", "m": "sum(nn)"}),
        )
        == "aggregate.m, position 5: column nn does not exist. Did you mean n? a has id, at, n"
    )


def test_avro_of_another_schema_is_broken(spark: SparkSession, tmp_path: Path) -> None:
    import fastavro

    def encoded(number: int, *names: str) -> bytes:
        out = BytesIO(b"\x00" + number.to_bytes(4))
        out.seek(5)
        fields = [{"name": name, "type": "string"} for name in names]
        schema = {"type": "record", "name": "Person", "fields": fields}
        (tmp_path / f"{number}.avsc").write_text(json.dumps(schema))
        fastavro.schemaless_writer(out, schema, {name: f"the {name}" for name in names})
        return out.getvalue()

    values = [encoded(7, "name", "city"), encoded(8, "city", "name"), encoded(9, "city", "name"), b"\x01abcdef"]
    source = Source(
        name="people",
        topics=["people"],
        format="avro",
        schema_file=str(tmp_path / "7.avsc"),
        confluent_header=True,
        schema_id=7,
        writer_schemas={"8": str(tmp_path / "8.avsc")},
    )
    pipeline = Pipeline(name="x", checkpoint="x", bootstrap_servers="x:1", sources=[source], sinks=[])
    form = Format(pipeline, source)
    frame = form.parse(spark.createDataFrame([(value,) for value in values], f"{VALUE} binary"))
    good = frame.where(form.good()).select("name", "city").collect()
    assert [tuple(row) for row in good] == [("the name", "the city")] * 2
    broken = frame.where(f"NOT coalesce({form.good()}, false)").select(form.reason().alias("reason")).collect()
    assert [row.reason.split(":")[0] for row in broken] == [
        "schema id 9, expected 7 or 8",
        "the value has no schema registry header (a zero byte and the schema id in four bytes)",
    ]
