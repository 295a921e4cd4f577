"""The API when Kafka misbehaves."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from shop_api import TOPIC, make_app

from ottla import Broker


@pytest.fixture
def shop(ottla_broker: Broker) -> Iterator[TestClient]:
    with TestClient(make_app(ottla_broker.bootstrap_servers)) as client:
        assert client.post("/orders", json={"id": 0, "customer": "first"}).status_code == 201
        yield client


def orders(broker: Broker) -> list[int]:
    return [json.loads(value)["id"] for value in broker.topics[TOPIC].values() if value is not None]


def test_an_order_is_written_once_although_the_answer_was_lost(shop: TestClient, ottla_broker: Broker) -> None:
    with ottla_broker.faults.cut("Produce", times=1, after=True) as lost:
        assert shop.post("/orders", json={"id": 1, "customer": "alice"}).status_code == 201
        assert lost.hits == 1
    assert orders(ottla_broker) == [0, 1]


def test_an_election_is_not_noticed(shop: TestClient, ottla_broker: Broker) -> None:
    with ottla_broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2):
        assert shop.post("/orders", json={"id": 1, "customer": "alice"}).status_code == 201
    assert orders(ottla_broker) == [0, 1]


def test_a_broker_that_hangs_is_told_in_time(shop: TestClient, ottla_broker: Broker) -> None:
    with ottla_broker.faults.drop("Produce"):
        started = time.monotonic()
        answer = shop.post("/orders", json={"id": 1, "customer": "alice"})
        assert (answer.status_code, time.monotonic() - started < 10) == (503, True)
    assert shop.post("/orders", json={"id": 2, "customer": "alice"}).status_code == 201
    assert orders(ottla_broker) == [0, 2]


def test_a_full_disk_is_told(shop: TestClient, ottla_broker: Broker) -> None:
    with ottla_broker.faults.full_disk():
        assert shop.post("/orders", json={"id": 1, "customer": "alice"}).status_code == 503
    assert orders(ottla_broker) == [0]
