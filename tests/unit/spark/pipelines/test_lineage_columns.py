"""Which columns come from which: SQL, every kind of step, rules and sinks; and the names of datasets."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.spark.pipelines import (
    DatabaseSink,
    DeadLetters,
    Dedupe,
    Expect,
    FileSink,
    JdbcSink,
    Join,
    LakeSink,
    Latest,
    Pipeline,
    Python,
    Session,
    Source,
    Sql,
    Table,
    TopicSink,
    Window,
)
from ottla.spark.pipelines.lineage import datasets
from ottla.spark.pipelines.lineage.columns import of_topic, trace
from ottla.spark.pipelines.lineage.queries import Column, Read, read_query

VIEWS = {"orders": ["id", "Customer", "total", "items", "at", "buyer"], "customers": ["customer", "name"]}


def short(read: Read | None) -> tuple[dict[str, Any], set[str]] | None:
    """`{"n": "customers.name T"}` and `{"orders.total FILTER"}`."""
    if read is None:
        return None
    columns = {
        name: None if some is None else " ".join(f"{one.view}.{one.name} {how[0]}" for one, how in sorted(some.items()))
        for name, some in read.columns.items()
    }
    return columns, {f"{one.view}.{one.name} {how}" for one, how in read.rows}


@pytest.mark.parametrize(
    ("sql", "columns", "rows"),
    [
        ("SELECT id, total * 2 AS double FROM orders", {"id": "orders.id I", "double": "orders.total T"}, set()),
        (
            "SELECT o.id, upper(name) AS n FROM Orders o LEFT JOIN customers c ON o.customer = c.customer "
            "WHERE total > 1",
            {"id": "orders.id I", "n": "customers.name T"},
            {"orders.Customer JOIN", "customers.customer JOIN", "orders.total FILTER"},
        ),
        (
            "WITH x AS (SELECT id, sum(total) AS s FROM orders GROUP BY id) "
            "SELECT s + 1 AS t, id FROM x UNION ALL SELECT at, id FROM orders",
            {"t": "orders.at I orders.total A", "id": "orders.id I"},
            {"orders.id GROUP_BY"},
        ),
        (
            "SELECT id, item.price FROM orders LATERAL VIEW explode(items) t AS item",
            {"id": "orders.id I", "price": "orders.items T"},
            set(),
        ),
        (
            "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.customer = o.buyer.key)",
            {"id": "orders.id I"},
            {"customers.customer FILTER", "orders.buyer FILTER"},
        ),
        (
            "SELECT buyer.name, (SELECT max(name) FROM customers) AS last, 1 AS one, count(*) AS n FROM orders",
            {"name": "orders.buyer T", "last": "customers.name A", "one": "", "n": ""},
            set(),
        ),
        ("SELECT id, nobody FROM orders", {"id": "orders.id I", "nobody": None}, set()),
    ],
)
def test_the_columns_of_a_query(sql: str, columns: dict[str, str | None], rows: set[str]) -> None:
    assert short(read_query(sql, VIEWS)) == (columns, rows)


def test_a_query_that_is_not_understood_is_unknown() -> None:
    assert read_query("SELECT window.start FROM orders GROUP BY window(at, '1 hour')", VIEWS) is None
    assert read_query("FROM orders |> WHERE", VIEWS) is None


ORIGIN = ["_topic", "_partition", "_offset", "_timestamp", "_key"]


def pipeline(*steps: Any, **more: Any) -> Pipeline:
    return Pipeline(
        name="shop",
        checkpoint="state",
        bootstrap_servers="kafka1:9092,kafka2:9092",
        sources=[
            Source(name="orders", topics=["orders", "returns"], event_time="at", require=["id > 0"]),
            Source(name="payments", topics=["payments"], event_time="at"),
        ],
        tables=[Table(name="customers", path="customers")],
        steps=steps,
        sinks=more.pop("sinks", [FileSink(name="table", path="table")]),
        **more,
    )


COLUMNS = {
    "orders": ["id", "customer", "total", "at", *ORIGIN],
    "payments": ["id", "amount", "at", *ORIGIN],
    "customers": ["customer", "name"],
}


def test_columns_pass_through_steps_and_rules() -> None:
    steps = [
        Dedupe(name="once", input="orders", keys=["id"], within="1 hour"),
        Join(name="named", join="customers", on=["customer"], prefix="c_"),
        Sql(name="taxed", sql="SELECT *, total * 1.2 AS gross FROM named"),
        Window(
            name="hours",
            window="1 hour",
            group_by=["c_name"],
            aggregate={"sales": "sum(gross)", "n": "count(*)"},
            watermark="1 hour",
        ),
    ]
    rules = [
        Expect(name="positive", input="once", that="total > 0", otherwise="drop"),
        Expect(name="seen", input="once", that="customer IS NOT NULL"),
    ]
    kept = [*COLUMNS["orders"]]
    views = {
        **COLUMNS,
        "once": kept,
        "named": [*kept, "c_name"],
        "taxed": [*kept, "c_name", "gross"],
        "hours": ["window_start", "window_end", "c_name", "sales", "n"],
    }
    found = trace(pipeline(*steps, expects=rules), views)
    assert short(found["hours"]) == (
        {
            "window_start": "orders.at T",
            "window_end": "orders.at T",
            "c_name": "customers.name I",
            "sales": "orders.total A",
            "n": "",
        },
        {
            "orders.id FILTER",  # by require and dedupe
            "orders.total FILTER",  # by the rule that removes rows
            "orders.customer JOIN",
            "customers.customer JOIN",
            "customers.name GROUP_BY",
            "orders.at GROUP_BY",
        },
    )


def test_joins_of_streams_and_sessions() -> None:
    steps = [
        Join(name="paid", input="orders", join="payments", on=["id"], within="1 hour", how="full", prefix="p_"),
        Session(name="visits", session="5 minutes", group_by=["customer"], aggregate={"paid": "max(p_amount)"}),
    ]
    views = {
        **COLUMNS,
        "paid": ["id", "customer", "total", "at", *ORIGIN, "p_amount", "p_at"],
        "visits": ["window_start", "window_end", "customer", "paid"],
    }
    found = trace(pipeline(*steps), views)
    assert found["paid"].columns["id"] == {Column("orders", "id"): "IDENTITY", Column("payments", "id"): "IDENTITY"}
    assert found["paid"].columns["p_at"] == {Column("payments", "at"): "IDENTITY"}
    assert found["visits"].columns["paid"] == {Column("payments", "amount"): "AGGREGATION"}


def test_changes_keep_columns_and_add_those_that_order_them() -> None:
    step = Latest(name="last", input="orders", keys=["id"], sequence=["at", "_offset"], deletes="total IS NULL")
    columns = ["id", "total", "at", "_deleted", "_version"]
    found = trace(pipeline(step), {**COLUMNS, "last": columns})
    assert short(found["last"]) == (
        {
            "id": "orders.id I",
            "total": "orders.total I",
            "at": "orders.at I",
            "_deleted": "orders.total T",
            "_version": "orders._offset T orders.at T",
        },
        {"orders.id FILTER", "orders.at FILTER", "orders._offset FILTER"},
    )


def test_what_a_python_step_does_is_unknown_also_behind_it() -> None:
    steps = [
        Python(name="made", input="orders", python="x:y"),
        Sql(name="both", sql="SELECT m.score, o.id FROM made m JOIN orders o ON m.id = o.id"),
    ]
    found = trace(pipeline(*steps), {**COLUMNS, "made": ["id", "score"], "both": ["score", "id"]})
    assert found["made"].columns == {"id": None, "score": None}
    assert short(found["both"]) == ({"score": None, "id": "orders.id I"}, {"orders.id JOIN", "orders.id FILTER"})


def test_the_fields_of_a_topic_are_those_of_the_value() -> None:
    orders = trace(pipeline(), COLUMNS)["orders"]
    whole = of_topic(TopicSink(name="out", topic="out", key="customer"), "orders", orders)
    assert list(whole.columns) == ["id", "customer", "total", "at"]
    made = of_topic(TopicSink(name="out", topic="out", value="concat(id, total)"), "orders", orders)
    assert short(made) == ({"value": "orders.id T orders.total T"}, {"orders.id FILTER"})


def test_names_of_datasets() -> None:
    jdbc = JdbcSink(name="db", url="jdbc:postgresql://me:secret@db/shop", table="sales.orders", password="x")
    topic = TopicSink(name="out", topic="large", bootstrap_servers="other:9093")
    one = pipeline(sinks=[jdbc, topic], dead_letters=DeadLetters(topic="{topic}.dead"))
    read = datasets.of_source(one, one.sources[0])
    assert read == [("kafka://kafka1:9092", "orders"), ("kafka://kafka1:9092", "returns")]
    assert datasets.of_letters(one, DeadLetters(topic="{topic}.dead"), read) == [
        ("kafka://kafka1:9092", "orders.dead"),
        ("kafka://kafka1:9092", "returns.dead"),
    ]
    assert datasets.of_sink(one, jdbc) == ("postgres://db:5432", "shop.sales.orders")
    assert datasets.of_sink(one, topic) == ("kafka://other:9093", "large")
    iceberg = LakeSink(name="lake", format="iceberg", table="shop.orders", catalog={"uri": "http://me:x@rest:8181"})
    assert datasets.of_sink(one, iceberg) == ("rest:8181", "shop.orders")
    delta = LakeSink(name="lake", format="delta", path="s3://lake/orders")
    assert datasets.of_sink(one, delta) == ("s3://lake", "orders")
    postgres = DatabaseSink(name="pg", format="postgres", url="postgresql://me@db:5433/shop", table="orders")
    assert datasets.of_sink(one, postgres) == ("postgres://db:5433", "shop.public.orders")
    duck = DatabaseSink(name="duck", format="duckdb", path="/data/shop.duckdb", table="orders")
    assert datasets.of_sink(one, duck) == ("duckdb:/data/shop.duckdb", "orders")
    assert datasets.jdbc("jdbc:sqlite:/data/shop.db?x=1", "t") == ("sqlite:/data/shop.db", "t")
    assert datasets.directory("hdfs://node:8020/lake/t/") == ("hdfs://node:8020", "/lake/t")
    pattern = Source(name="all", pattern="orders-.*")
    assert datasets.of_source(one, pattern, ["orders-a"]) == [("kafka://kafka1:9092", "orders-a")]
