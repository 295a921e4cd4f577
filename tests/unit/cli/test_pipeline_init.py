"""`ottla pipeline init` on a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.cli.cli_results import Ottla

import ottla as clients
from ottla.spark.pipelines import load


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"orders-{uuid4().hex[:8]}"
    with clients.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([clients.NewTopic(name, 2)])
    return name


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    with clients.Producer(bootstrap_servers=bootstrap) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 2)


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_pipeline_of_a_topic_is_valid_and_not_overwritten(ottla: Ottla, bootstrap: str, topic: str) -> None:
    orders = [{"id": number, "at": "2026-01-01T00:00:00Z", "total": number / 2} for number in range(1000)]
    send(bootstrap, topic, *(json.dumps(one).encode() for one in orders), b"broken")
    done = ottla("pipeline", "init", topic, "--sample", "10", "--output", "made/orders.toml")
    assert done.code == 0, done.err
    out = done.out.decode()
    assert f"read 40 of 1,001 records from 2 partitions of {topic}" in out
    assert (
        "wrote made/orders.toml: json, 3 columns, event time at, perhaps a key: id, 1 sample in another format" in out
    )
    made = load("made/orders.toml")
    (source,) = made.sources
    assert source.topics == [topic]
    assert (made.name, made.checkpoint) == ("orders", "state/orders")  # not those of another pipeline of the topic
    assert "id BIGINT NOT NULL" in (source.schema or "")
    assert ottla("pipeline", "check", "made/orders.toml", "--connect").code == 0
    assert Path("made/orders.tests/sample.toml").is_file()

    again = ottla("pipeline", "init", topic, "--output", "made/orders.toml")
    assert again.code == 2
    assert "made/orders.toml exists: choose another file with --output, or overwrite it with --force" in again.err
    assert ottla("pipeline", "init", topic, "--output", "made/orders.toml", "--force").code == 0
    shown = ottla("pipeline", "init", topic, "--output", "-")
    assert b"200 of 1,001 records" in shown.out or b"400 of 1,001 records" in shown.out


def test_errors_say_what_to_do(ottla: Ottla, bootstrap: str, topic: str) -> None:
    empty = ottla("pipeline", "init", topic)
    assert (empty.code, empty.err) == (
        1,
        f"ottla: error: topic {topic} is empty: a pipeline is written from its records, so send some first\n",
    )
    unknown = ottla("pipeline", "init", topic[:-1])
    assert unknown.code == 1
    assert f"did you mean '{topic}'?" in unknown.err
    wrong = ottla("pipeline", "init", topic, "--output", "orders.json")
    assert (wrong.code, wrong.err) == (2, "ottla: error: --output orders.json: a pipeline is a .toml file\n")
    assert not list(Path().glob("*.toml"))


def test_an_unreachable_broker_is_named(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.pipeline.init.ASK_MS", 300)
    done = ottla("pipeline", "init", "orders", "--bootstrap-server", "127.0.0.1:1")
    assert done.code == 1
    assert "127.0.0.1:1" in done.err
