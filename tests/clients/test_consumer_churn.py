"""Members join and leave while records are written: each record is read exactly once, since all leave properly."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.clients.consumer.blocking import Consumer

from .consumer_scenes import new_group

PARTITIONS = 6
SECONDS = 2.0
KINDS = {
    "eager": {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 100},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 100},
    "consumer protocol": {"group_protocol": "consumer"},
}


@pytest.fixture
def servers(own_broker: Any) -> str:
    settings = {"group_consumer_min_heartbeat_interval_ms": "50", "group_consumer_heartbeat_interval_ms": "50"}
    return str(own_broker(**settings).bootstrap_servers)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_or_doubled(servers: str, kind: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(20)
    scene = Churn(servers, KINDS[kind])
    scene.run(random.Random(kind))
    assert scene.errors == []
    assert len(scene.seen) == scene.written
    assert max(scene.seen.values()) == 1


class Churn:
    def __init__(self, servers: str, config: dict[str, Any]) -> None:
        self.servers, self.group = servers, new_group()
        self.config = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 100, **config}
        self.seen: Counter[tuple[int, int]] = Counter()
        self.lock = threading.Lock()
        self.errors: list[BaseException] = []
        self.written = 0
        self.done = threading.Event()

    def run(self, dice: random.Random) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        threads: list[threading.Thread] = []
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            threads = [thread for thread in threads if thread.is_alive()]
            if len(threads) < 3:
                threads.append(threading.Thread(target=self.member, args=(dice.uniform(0.1, 1.5),)))
                threads[-1].start()
            for number in range(600):
                producer.produce("t", b"x", partition=number % PARTITIONS)
                self.written += 1
            producer.flush(20)
            self.done.wait(dice.uniform(0.02, 0.2))
        threads.append(threading.Thread(target=self.member, args=(90.0,)))
        threads[-1].start()
        while len(self.seen) < self.written and time.monotonic() < end + 60:
            self.done.wait(0.02)
        self.done.set()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)

    def member(self, seconds: float) -> None:
        try:
            with Consumer(bootstrap_servers=self.servers, group_id=self.group, **self.config) as consumer:
                consumer.subscribe(["t"])
                end = time.monotonic() + seconds
                while time.monotonic() < end and not self.done.is_set():
                    records = consumer.poll(0.05)
                    with self.lock:
                        self.seen.update((record.partition, record.offset) for record in records)
        except BaseException as error:
            self.errors.append(error)
