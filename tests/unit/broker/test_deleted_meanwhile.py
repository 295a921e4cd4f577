"""A topic is deleted while requests for it wait: they get responses, and nothing else is affected."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

import ottla
from ottla.protocol.apis import ApiKey
from unit.broker.wire import Wire, batch


@pytest.fixture
def broker() -> Iterator[ottla.Broker]:
    with ottla.Broker() as broker:
        yield broker


class SlowDisk:
    """An fdatasync that blocks until released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self._original = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.reached.set()
        assert self.go_on.wait(30)
        self._original(descriptor)


def produce_request(topic: str) -> dict[str, object]:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch(b"value")}]}]
    return {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": data}


def test_a_topic_is_deleted_while_producers_wait_for_its_flush(
    broker: ottla.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second producer waits for a flush that starts after the files are deleted."""
    servers = broker.bootstrap_servers
    with Wire(servers) as first, Wire(servers) as second, Wire(servers) as other:
        other.create_topic("flushed", flush_messages="1")
        disk = SlowDisk(monkeypatch)
        first.send(ApiKey.PRODUCE, 9, produce_request("flushed"))
        assert disk.reached.wait(30)
        second.send(ApiKey.PRODUCE, 9, produce_request("flushed"))
        while other.call(ApiKey.LIST_OFFSETS, 5, latest("flushed")).topics[0].partitions[0].offset < 2:
            pass
        deleted = other.call(ApiKey.DELETE_TOPICS, 4, {"topic_names": ["flushed"], "timeout": 1000})
        assert deleted.responses[0].error_code == 0
        disk.go_on.set()
        for number, wire in enumerate((first, second)):
            answer = wire.receive(ApiKey.PRODUCE, 9).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, number)  # written before the topic was deleted


def latest(topic: str) -> dict[str, object]:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [partition]}]}
