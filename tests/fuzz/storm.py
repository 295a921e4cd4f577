"""Many connections send valid requests for the same few topics, so that all operations overlap.

Topics are deleted while other requests wait for a flush, fetch, search by time or create them again. Any response is
fine, but the broker must not log an unexpected error.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.wire import Wire

from ottla.protocol.apis import ApiKey

from .batches import valid_batch

TOPICS = [f"storm-{number}" for number in range(4)]
CONFIGS = [
    {"flush.messages": "1"},
    {"internal.segment.bytes": "3000", "flush.messages": "1"},
    {"cleanup.policy": "compact", "internal.segment.bytes": "3000", "segment.ms": "200", "file.delete.delay.ms": "0"},
    {"compression.type": "gzip", "retention.bytes": "10000", "internal.segment.bytes": "3000"},
]
PARTITIONS = 2


class Storm:
    """The connections, each a thread."""

    def __init__(self, port: int, seed: int, connections: int = 8) -> None:
        self.answers: Counter[str] = Counter()
        self._port = port
        self._end = 0.0
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed} {number}"),), daemon=True)
            for number in range(connections)
        ]

    def run(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join(seconds + 60)
            assert not thread.is_alive(), "a request has had no answer for a minute"

    def _run(self, rng: random.Random) -> None:
        while time.monotonic() < self._end:
            try:
                with Wire(self._port, timeout=30.0) as wire:
                    for _ in range(rng.randint(1, 200)):
                        self._step(wire, rng)
            except ConnectionError:
                self.answers["closed"] += 1

    def _step(self, wire: Wire, rng: random.Random) -> None:
        if time.monotonic() > self._end:
            return
        (make,) = rng.choices(list(_STEPS), _STEPS.values())
        api_key, version, message = make(rng)
        wire.call(api_key, version, message)
        self.answers[ApiKey(api_key).name] += 1


Made = tuple[int, int, dict[str, Any]]


def _produce(rng: random.Random) -> Made:
    data = [
        {"name": name, "partition_data": [{"index": rng.randrange(PARTITIONS), "records": valid_batch(rng)}]}
        for name in rng.sample(TOPICS, rng.randint(1, 3))
    ]
    return ApiKey.PRODUCE, 8, {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": data}


def _fetch(rng: random.Random) -> Made:
    wanted = {
        "current_leader_epoch": -1, "fetch_offset": rng.choice([0, 0, 1, 20]), "last_fetched_epoch": -1,
        "log_start_offset": -1, "partition_max_bytes": rng.choice([100, 1 << 20]),
    }  # fmt: skip
    partitions = [{"partition": index, **wanted} for index in range(PARTITIONS)]
    request = {
        "replica_id": -1, "max_wait": rng.choice([0, 10, 100]), "min_bytes": rng.choice([0, 1, 10**6]),
        "max_bytes": 1 << 20, "isolation_level": rng.randrange(2), "session_id": 0,
        "session_epoch": rng.choice([-1, 0]),
        "topics": [{"topic": name, "partitions": partitions} for name in rng.sample(TOPICS, 2)],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    return ApiKey.FETCH, 11, request


def _list_offsets(rng: random.Random) -> Made:
    timestamp = rng.choice([-1, -2, -3, 0, time.time_ns() // 1_000_000 - 5000])
    wanted = [{"partition_index": i, "current_leader_epoch": -1, "timestamp": timestamp} for i in range(PARTITIONS)]
    topics = [{"name": name, "partitions": wanted} for name in TOPICS]
    return ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "isolation_level": 0, "topics": topics}


def _create(rng: random.Random) -> Made:
    number = rng.randrange(len(TOPICS))
    wish = {
        "name": TOPICS[number], "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in CONFIGS[number].items()],
    }  # fmt: skip
    return ApiKey.CREATE_TOPICS, 4, {"topics": [wish], "timeout": 1000, "validate_only": False}


def _delete(rng: random.Random) -> Made:
    return ApiKey.DELETE_TOPICS, 4, {"topic_names": [rng.choice(TOPICS)], "timeout": 1000}


def _delete_records(rng: random.Random) -> Made:
    wanted = [{"partition_index": index, "offset": rng.choice([-1, 1, 5])} for index in range(PARTITIONS)]
    return ApiKey.DELETE_RECORDS, 1, {"topics": [{"name": rng.choice(TOPICS), "partitions": wanted}], "timeout": 1000}


def _alter(rng: random.Random) -> Made:
    name, value = rng.choice([
        ("retention.ms", "1"), ("retention.ms", "100000"), ("flush.messages", "1"), ("compression.type", "zstd"),
        ("cleanup.policy", "compact"), ("cleanup.policy", "delete"), ("segment.ms", "100"),
    ])  # fmt: skip
    config = {"name": name, "config_operation": rng.randrange(2), "value": value}
    resource = {"resource_type": 2, "resource_name": rng.choice(TOPICS), "configs": [config]}
    return ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}


def _grow(rng: random.Random) -> Made:
    wish = {"name": rng.choice(TOPICS), "count": rng.choice([3, 4]), "assignments": None}
    return ApiKey.CREATE_PARTITIONS, 2, {"topics": [wish], "timeout": 1000, "validate_only": False}


def _look(rng: random.Random) -> Made:
    return rng.choice([
        (ApiKey.METADATA, 8, {"topics": None, "allow_auto_topic_creation": True}),
        (ApiKey.DESCRIBE_LOG_DIRS, 1, {"topics": None}),
        (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": name, "partition_indexes": [0]} for name in TOPICS]}),
        (ApiKey.INIT_PRODUCER_ID, 1, {"transactional_id": None, "transaction_timeout": 1}),
    ])  # fmt: skip


_STEPS: dict[Callable[[random.Random], Made], int] = {
    _produce: 40, _fetch: 20, _list_offsets: 8, _create: 8, _delete: 4, _delete_records: 3, _alter: 4, _grow: 1,
    _look: 6,
}  # fmt: skip
