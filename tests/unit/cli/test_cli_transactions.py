"""``ottla transactions``: list, describe, find hanging ones and abort them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.unit.cli.cli_results import Ottla

from ottla.broker.broker import Broker
from unit.broker.transaction_wire import Producer, committed
from unit.broker.wire import Wire


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker without transaction verification, so that transactions can hang."""
    config = {"transaction.partition.verification.enable": "false", "transaction.state.log.num.partitions": 2}
    with Broker(config=config) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    with Wire(bootstrap) as wire:
        yield wire


def test_ids_are_listed_and_described(ottla: Ottla, wire: Wire, topic: str) -> None:
    assert ottla("transactions", "list", "--pattern", "nobody.*").text == "no transactional ids match\n"
    producer = Producer(wire, f"pay-{topic}")
    producer.add(topic, 0, 2)
    listed = ottla("transactions", "list", "--state", "ongoing")
    assert listed.lines[0].split() == ["TRANSACTIONAL-ID", "STATE", "PRODUCER-ID"]
    assert [producer.id, "Ongoing", str(producer.producer_id)] in [line.split() for line in listed.lines]
    chosen = ottla("transactions", "list", "--json", "--producer-id", str(producer.producer_id), "--longer-than", "0")
    found = {"transactional_id": producer.id, "state": "Ongoing", "producer_id": producer.producer_id}
    assert json.loads(chosen.out) == [found]
    described = ottla("transactions", "describe", producer.id)
    assert described.lines[:4] == [
        f"transactional id  {producer.id}",
        "state             Ongoing",
        f"producer          {producer.producer_id}, epoch 0",
        "timeout           60,000 ms",
    ]
    assert described.lines[-1] == f"partitions        {topic}-0, {topic}-2"
    (known,) = json.loads(ottla("transactions", "describe", producer.id, "--json").out)
    assert known["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 2}]
    assert known["open_for_ms"] >= 0
    producer.end(True)


def test_an_id_or_a_state_that_is_not_there(ottla: Ottla) -> None:
    unknown = ottla("transactions", "describe", "nobody")
    assert (unknown.code, unknown.out) == (1, b"")
    assert "transactional id 'nobody' does not exist; `ottla transactions list` lists all ids" in unknown.err
    wrong = ottla("transactions", "list", "--state", "ongong")
    assert wrong.code == 2
    assert "did you mean 'ongoing'?" in wrong.err
    pattern = ottla("transactions", "list", "--pattern", "(")
    assert pattern.code == 1


def test_what_hangs_is_found_and_aborted(ottla: Ottla, wire: Wire, topic: str) -> None:
    choice = ("--topic", topic, "--max-transaction-timeout", "0")
    known = Producer(wire, f"known-{topic}")
    known.add(topic, 1)
    known.produce(topic, b"open", partition=1)
    assert ottla("transactions", "find-hanging", *choice).text == "no hanging transactions found\n"
    late = Producer(wire, f"late-{topic}")
    late.add(topic)
    late.end(False)
    assert late.produce(topic, b"late") == (0, 1)
    found = ottla("transactions", "find-hanging", *choice)
    assert found.lines[1].split() == [topic, "0", "1", str(late.producer_id), "0", "0"]
    assert found.lines[-1].startswith("abort the first one with: ottla transactions abort")
    (hanging,) = json.loads(ottla("transactions", "find-hanging", *choice, "--json").out)
    assert (hanging["start_offset"], hanging["producer_epoch"], hanging["coordinator_epoch"]) == (1, 0, 0)
    assert wire.fetch(topic, 0, isolation_level=1).last_stable_offset == 1
    aborted = ottla(*found.lines[-1].removeprefix("abort the first one with: ottla ").split())
    assert aborted.text == f"aborted the transaction of producer {late.producer_id} in {topic}-0\n"
    assert wire.fetch(topic, 0, isolation_level=1).last_stable_offset == 3
    assert committed(wire, topic) == []
    assert ottla("transactions", "find-hanging", *choice).text == "no hanging transactions found\n"


def test_what_a_coordinator_knows_is_not_aborted_by_mistake(ottla: Ottla, wire: Wire, topic: str) -> None:
    producer = Producer(wire, f"known-{topic}")
    producer.add(topic)
    producer.produce(topic, b"open")
    command = ("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    refused = ottla(*command)
    assert refused.code == 1
    assert "use --yes to abort it anyway" in refused.err
    assert ottla(*command, "--yes").code == 0
    again = ottla(*command)
    assert (again.code, "no open transaction starts at offset 0" in again.err) == (1, True)
    by_producer = ("--producer-id", str(producer.producer_id), "--producer-epoch", "0")
    assert ottla(*command[:-2], *by_producer, "--json").code == 0
    fenced = ottla(*command[:-2], *by_producer, "--coordinator-epoch", "0")
    assert fenced.code == 0


def test_what_to_abort_has_to_be_said(ottla: Ottla, topic: str) -> None:
    command = ("transactions", "abort", "--topic", topic, "--partition")
    assert "name the transaction" in ottla(*command, "0").err
    assert ottla(*command, "0").code == 2
    assert "has no partition 9" in ottla(*command, "9", "--start-offset", "0").err
    assert "does not exist" in ottla("transactions", "abort", "--topic", "nope", "--partition", "0").err
