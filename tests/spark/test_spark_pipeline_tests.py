"""`ottla pipeline test`, the fixture `ottla_pipeline` and `ottla pipeline init` on a real Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.cli.main import main
from ottla.spark.pipelines import DeclarationError, FileSink, JdbcSink, Pipeline, Source, Sql, compile_pipeline, load
from ottla.testing.pipelines import PipelineFailed, pipeline_cases
from ottla.testing.pipelines.fixture import Pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"

ORDERS = """
name = "orders"
checkpoint = "state"
bootstrap_servers = "kafka.example:9092"

[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT NOT NULL, customer STRING, total DOUBLE, at TIMESTAMP"
event_time = "at"
max_offsets_per_trigger = 1

[[table]]
name = "customers"
path = "/nowhere/customers"

[[step]]
name = "unique_orders"
dedupe = ["id"]
within = "1 hour"

[[step]]
name = "named"
join = "customers"
on = ["customer"]

[[step]]
name = "large"
sql = "SELECT id, country, _key FROM named WHERE total > 100"

[[sink]]
name = "table"
input = "unique_orders"
format = "parquet"
path = "/nowhere/orders"

[[sink]]
name = "large"
format = "topic"
topic = "large-orders"
key = "country"

[[expect]]
name = "has_customer"
input = "unique_orders"
that = "customer IS NOT NULL"

[[expect]]
name = "positive"
input = "orders"
that = "total >= 0"
otherwise = "dead-letter"

[dead_letters]
topic = "{topic}.dead"
"""

#: A late record, a repeated one and a broken one, in two micro-batches.
LATE = """\
# Orders that are more than an hour late are dropped.
broken_rules = {has_customer = 1}

[[batch]]
orders = [
  {id = 1, customer = "ada", total = 250, at = "2026-01-01T12:00:00Z", _key = "k1"},
  {id = 1, customer = "ada", total = 250, at = "2026-01-01T12:00:00Z"},
  {id = 4, total = -1, at = "2026-01-01T12:00:00Z"},
  'not JSON',
]

[[batch]]
orders = [
  {id = 2, at = "2026-01-01T10:00:00Z"},
  {id = 3, total = 7, at = "2026-01-01T12:30:00Z"},
]

[tables]
customers = [{customer = "ada", country = "GB"}]

[expected]
table = [
  {id = 1, customer = "ada", total = 250, at = 2026-01-01T12:00:00Z},
  {id = 3, total = 7.0, at = 2026-01-01T12:30:00Z},
]
large = [{id = 1, country = "GB", _key = "GB"}]
dead_letters = [
  {value = '{"id": 4, "total": -1, "at": "2026-01-01T12:00:00Z"}', reason = "total >= 0"},
  {value = "not JSON", reason = "malformed JSON"},
]
"""


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    (tmp_path / "orders.toml").write_text(ORDERS)
    (tmp_path / "orders.tests").mkdir()
    (tmp_path / "orders.tests" / "late.toml").write_text(LATE)
    return tmp_path / "orders.toml"


@pytest.mark.long  # the tutorial's test runs the same command
def test_stored_cases_pass_fail_and_are_updated(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "test", str(orders)]) == 0
    assert "passed  " in capsys.readouterr().out

    late = orders.parent / "orders.tests" / "late.toml"
    letter = '  {value = "not JSON", reason = "malformed JSON"},\n'
    changed = LATE.replace("total = 7.0", "total = 8").replace(letter, "")
    late.write_text(changed.replace("has_customer = 1", "has_customer = 5"))
    assert main(["pipeline", "test", str(orders), "--json"]) == 1
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert case["passed"] is False
    assert case["differences"] == [
        "table: 1 row missing, 1 row unexpected, 1 row as expected",
        "    - {id = 3, total = 8, at = 2026-01-01T12:30:00Z}",
        "    + {id = 3, total = 7.0, at = 2026-01-01T12:30:00Z}",
        "      total: expected 8, got 7.0",
        "dead_letters: 1 row unexpected, 1 row as expected",
        '    + {reason = "malformed JSON at line 1 column 1 (Expecting value), near \'not JSON\'", value = "not JSON"}',
        "rule has_customer: expected 5 broken, got 1",
    ]
    late.write_text(changed)
    assert main(["pipeline", "test", str(orders), "--update"]) == 0
    assert "updated " in capsys.readouterr().out
    assert late.read_text().startswith(LATE[: LATE.index("[expected]")])
    assert "{id = 3, total = 7.0, at = 2026-01-01T12:30:00Z}" in late.read_text()

    orders.write_text(ORDERS.replace("SELECT id, country", "SELECT idd, country"))
    assert main(["pipeline", "test", str(orders)]) == 2
    line = ORDERS[: ORDERS.index("SELECT")].count("\n") + 1
    told = capsys.readouterr().err
    assert f"orders.toml:{line}: " in told
    assert "column idd does not exist. Did you mean id?" in told


def test_the_fixture_runs_pipelines_and_stored_cases(orders: Path, ottla_pipeline: Pipelines) -> None:
    assert pipeline_cases(orders) == ["late"]
    run = ottla_pipeline(orders, tables=["customers"])
    result = run(
        {"orders": [{"id": 1, "total": 150.5, "customer": "ada", "at": NOON}, b"\xff", '{"total": 5}', None]},
        tables={"customers": [{"customer": "ada", "country": "GB"}]},
    )
    assert result["table"] == [{"id": 1, "customer": "ada", "total": 150.5, "at": NOON}]
    assert result["large"] == [{"id": 1, "country": "GB"}]
    assert result.rows["large"][0]["_key"] == "GB"
    assert [letter.reason for letter in result.dead_letters] == [
        "the value is not UTF-8 text: byte 0 is 0xff",
        "field id is missing",
        "the record has no value",
    ]
    with pytest.raises(KeyError, match=r"no sink tabel\. Did you mean table\?"):
        result["tabel"]
    with pytest.raises(DeclarationError, match=r"no source order\. Did you mean orders\?"):
        run({"order": []})
    late = orders.parent / "orders.tests" / "late.toml"
    late.write_text(LATE.replace("total = 250, at = 2026", "total = 9, at = 2026"))
    with pytest.raises(AssertionError, match="total: expected 9, got 250"):
        ottla_pipeline.check(orders)


@pytest.mark.long
@pytest.mark.parametrize("name", ["orders.toml", "clicks.toml"])
def test_the_cases_of_the_examples(ottla_pipeline: Pipelines, name: str) -> None:
    ottla_pipeline.check(EXAMPLES / name)


@pytest.mark.long
def test_broken_steps_failures_and_systems_that_are_not_there(ottla_pipeline: Pipelines) -> None:
    source = Source(name="orders", topics=["orders"], schema="id BIGINT NOT NULL, op STRING, at TIMESTAMP")
    divided = Sql(name="divided", sql="SELECT id, op, 10 / id AS part, at FROM orders")
    sinks = [
        JdbcSink(
            name="database",
            url="jdbc:postgresql://db/shop",
            table="orders",
            keys=["id"],
            sequence="at",
            delete_when="op = 'd'",
            exclude=["op"],
        ),
        FileSink(name="lines", format="csv", path="out", options={"header": "true"}),
    ]

    def pipeline(**changes: object) -> Pipeline:
        given = {"name": "p", "checkpoint": "c", "sources": [source], "steps": [divided], "sinks": sinks, **changes}
        return Pipeline(bootstrap_servers="db:1", **given)  # type: ignore[arg-type]

    later = NOON.replace(hour=13)
    run = ottla_pipeline(pipeline())
    first = [{"id": 5, "op": "i", "at": NOON}, {"id": 5, "op": "u", "at": later}]
    result = run({"orders": first}, {"orders": [{"id": 5, "op": "d", "at": later}]})
    assert result["database"] == [
        {"id": 5, "part": 2.0, "at": later},
        {"id": 5, "part": 2.0, "at": later, "_deleted": True},
    ]
    assert sorted(row["op"] for row in result["lines"]) == ["d", "i", "u"]
    assert all(row["at"] in (NOON, later) for row in result["lines"])

    with pytest.raises(PipelineFailed, match=r"(?i)divi.*by zero"):
        run({"orders": [{"id": 0, "at": NOON}]})
    with pytest.raises(PipelineFailed, match="orders-0 at offset 0 does not match the json schema"):
        run({"orders": ["broken"]})
    with pytest.raises(DeclarationError, match=r"test_spark_pipeline_tests\.py:\d+: .*nothing"):
        ottla_pipeline(pipeline(steps=[Sql(name="wrong", sql="SELECT nothing FROM orders")]))({"orders": []})


@pytest.mark.long  # the tutorial's test runs the same commands
def test_an_inferred_pipeline_is_checked_tested_and_run(
    topics: Topics, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = topics.make(2)
    times = ["2026-01-01T12:00:00Z", "2026-01-01 12:00:00"]
    times += ["2026-01-01T12:00:00.123456789+02:00", "1999-01-01 00:00:00.1"]
    values = [
        {
            "id": number,
            "at": times[number % 4],
            "day": "2026-01-01",
            "mixed": [1, "a", {"b": [1, 2]}, 2.50][number % 4],
            "large": 2**63 + number,
            "number": [1, 2.5, 10**30, -0.0][number % 4],
            "none": None,
            "odd name": {"a.b": [{}, {"c": "é"}]},
            "map": {f"key {number}": 1.5},
            **({} if number % 4 else {"sometimes": True}),
        }
        for number in range(40)
    ]
    for number, value in enumerate(values):
        topics.producer.send(topic, json.dumps(value).encode(), partition=number % 2).result(20)
    assert main(["pipeline", "init", topic, "--bootstrap-server", topics.servers, "--output", "made.toml"]) == 0
    assert main(["pipeline", "check", "made.toml", "--connect"]) == 0
    assert main(["pipeline", "test", "made.toml"]) == 1
    assert main(["pipeline", "test", "made.toml", "--update"]) == 0
    assert "dead_letters" not in (tmp_path / "made.tests" / "sample.toml").read_text()
    for query in [flow.start() for flow in compile_pipeline(load("made.toml"), spark, trigger="available-now")]:
        assert query.awaitTermination(100)
    (table,) = (tmp_path / "tables").iterdir()
    assert spark.read.parquet(str(table)).count() == len(values)
