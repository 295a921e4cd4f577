"""What a real run tells an OpenLineage collector, and its events; a collector that is down disturbs nothing."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.cli.main import main
from spark.conftest import Topics

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("own_session")]

DECLARED = """\
name = "TOPIC"
checkpoint = "state"
bootstrap_servers = "SERVERS"

[[source]]
name = "orders"
topics = ["TOPIC"]
schema = "id BIGINT NOT NULL, customer STRING, total DOUBLE, at STRUCT<city: STRING>"

[[table]]
name = "customers"
format = "csv"
path = "customers.csv"
schema = "customer STRING, name STRING"

[[step]]
name = "named"
join = "customers"
on = ["customer"]

[[step]]
name = "rated"
python = "rating:rate"

[[step]]
name = "large"
sql = "SELECT id, upper(name) AS buyer, total * 100 / (id - 7) AS cents, at.city FROM named WHERE total > 1"

[[sink]]
name = "table"
input = "named"
format = "parquet"
path = "tables/orders"

[[sink]]
name = "ratings"
input = "rated"
format = "parquet"
path = "tables/ratings"

[[sink]]
name = "out"
input = "large"
format = "topic"
topic = "TOPIC.large"

[dead_letters]
topic = "{topic}.dead"

[lineage]
transport = TRANSPORT

[events]
log = "events.jsonl"
"""


@pytest.fixture
def file(topics: Topics, tmp_path: Path) -> Path:
    topic = topics.make()
    values = [{"id": number, "customer": "c", "total": number, "at": {"city": "Rome"}} for number in range(5)]
    for value in (*map(json.dumps, values), "broken"):
        topics.producer.send(topic, value.encode()).result(20)
    (tmp_path / "customers.csv").write_text("c,Ada\n")
    (tmp_path / "rating.py").write_text("def rate(frame):\n    return frame.selectExpr('id', 'total * 2 AS rating')\n")
    path = tmp_path / "orders.toml"
    path.write_text(DECLARED.replace("TOPIC", topic).replace("SERVERS", topics.servers))
    return path


def with_transport(file: Path, transport: str) -> str:
    file.write_text(file.read_text().replace("TRANSPORT", transport))
    return str(file)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def origins(field: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (one["namespace"].partition(":")[0], one["name"].rpartition("/")[2], one["field"], how["type"], how["subtype"])
        for one in field["inputFields"]
        for how in one["transformations"]
    ]


def test_a_run_tells_what_it_reads_and_writes(topics: Topics, file: Path) -> None:
    told = file.parent / "lineage.jsonl"
    name = with_transport(file, f'{{type = "file", log_file_path = "{told}", append = true}}')
    assert main(["pipeline", "run", name, "--once", "-q"]) == 0
    start, complete = lines(told)
    assert [one["eventType"] for one in (start, complete)] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert complete["job"]["namespace"] == "ottla"
    assert complete["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    topic, customers = complete["inputs"]
    assert topic["namespace"] == f"kafka://{topics.servers}"
    assert topic["inputFacets"]["inputStatistics"]["rowCount"] == 6
    fields = topic["facets"]["schema"]["fields"]
    assert [(one["name"], one["type"]) for one in fields][:4] == [
        ("id", "bigint"),
        ("customer", "string"),
        ("total", "double"),
        ("at", "struct"),
    ]
    assert fields[3]["fields"][0]["name"] == "city"
    assert (customers["namespace"], customers["name"]) == ("file", str(file.parent / "customers.csv"))
    table, ratings, large, dead = complete["outputs"]
    assert (table["namespace"], table["name"]) == ("file", str(file.parent / "tables/orders"))
    columns = table["facets"]["columnLineage"]["fields"]
    assert origins(columns["name"]) == [("file", "customers.csv", "name", "DIRECT", "IDENTITY")]
    assert ratings["facets"]["columnLineage"]["fields"] == {}, "what Python does is unknown"
    assert "rating" in [one["name"] for one in ratings["facets"]["schema"]["fields"]]
    lineage = large["facets"]["columnLineage"]
    assert set(lineage["fields"]) == {"id", "buyer", "cents", "city"}
    kinds = {one[2:] for one in origins(lineage["fields"]["cents"])}
    assert kinds == {("total", "DIRECT", "TRANSFORMATION"), ("id", "DIRECT", "TRANSFORMATION")}
    assert {one[2:] for one in origins({"inputFields": lineage["dataset"]})} >= {("total", "INDIRECT", "FILTER")}
    assert dead["name"] == f"{topic['name']}.dead"
    assert (
        "the origin of columns of sink ratings is unknown: id, rating" in (file.parent / "state/spark.log").read_text()
    )

    topics.producer.send(topic["name"], b'{"id": 7, "total": 9}').result(20)
    assert main(["pipeline", "run", name, "--once", "-q"]) == 1
    failed = lines(told)[-1]
    assert failed["eventType"] == "FAIL"
    assert failed["run"]["runId"] != complete["run"]["runId"]
    assert "Division by zero" in failed["run"]["facets"]["errorMessage"]["message"]
    events = lines(file.parent / "events.jsonl")
    assert [(one["event"], one["status"]) for one in events] == [
        ("dead_letters", "happened"),
        ("pipeline_stopped", "happened"),
    ]
    assert (events[0]["source"], events[0]["count"]) == ("orders", 1)
    assert events[1]["exit_code"] == 1
    assert "Division by zero" in events[1]["reason"]


@pytest.mark.long
def test_lineage_in_a_topic(topics: Topics, file: Path) -> None:
    topic = topics.make()
    config = f'{{"bootstrap.servers" = "{topics.servers}"}}'
    name = with_transport(file, f'{{type = "kafka", topic = "{topic}", config = {config}}}')
    assert main(["pipeline", "run", name, "--once", "-q"]) == 0
    with ottla.Consumer(bootstrap_servers=topics.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.TopicPartition(topic, 0)])
        found: list[Any] = []
        while len(found) < 2:
            found += consumer.poll(1)
    assert [json.loads(one.value)["eventType"] for one in found] == ["START", "COMPLETE"]


@pytest.mark.long
def test_a_collector_that_is_down_disturbs_nothing(topics: Topics, file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    name = with_transport(file, f'{{type = "http", url = "http://127.0.0.1:{port}"}}')
    assert main(["pipeline", "run", name, "--once", "-q"]) == 0
    assert topics.spark.read.parquet(str(file.parent / "tables/orders")).count() == 5
    log = (file.parent / "state/spark.log").read_text()
    assert "the lineage collector does not take events, which wait: " in log
    assert "events that were not delivered to the lineage collector: 2" in log
