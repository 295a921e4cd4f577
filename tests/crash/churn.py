"""Topics that are created, filled, altered, grown, deleted and created again while the broker dies.

The possible states of each topic are known: one after a response, two while an operation has none.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.wire import Wire, list_offset, read_log

from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.records import Record, encode_batch

from .ledger import Ledger

NAMES = [f"churn-{number}" for number in range(12)]
MAX_PARTITIONS = 6
PAUSE = 0.02
RETENTION = "retention.ms"
TOPIC = 2


class Shape(NamedTuple):
    """The current or future state of a topic."""

    incarnation: int
    partitions: int
    retention_ms: int


State = Shape | None
"""None: the topic does not exist."""


class Churn(threading.Thread):
    """Runs one operation at a time, on topics whose state is certain."""

    def __init__(self, port: int, ledger: Ledger, seed: int) -> None:
        super().__init__(name="churn", daemon=True)
        self.in_flight = threading.Event()
        """Set while an operation waits for its response: a good moment to kill the broker."""
        self.operations = 0
        self._port = port
        self._ledger = ledger
        self._rng = random.Random(f"{seed} churn")
        self._halt = threading.Event()
        self._lock = threading.Lock()
        self._possible: dict[str, set[State]] = {name: {None} for name in NAMES}
        self._filled: dict[str, int] = {}
        """The number of acknowledged records in partition 0 of the current incarnation."""
        self._incarnations = 0

    def run(self) -> None:
        while not self._halt.is_set():
            try:
                with Wire(self._port, timeout=30.0) as wire:
                    while not self._halt.is_set():
                        with self._lock:
                            self._step(wire)
                        self._halt.wait(self._rng.random() * PAUSE)
            except OSError:
                self._halt.wait(PAUSE)
            finally:
                self.in_flight.clear()

    def finish(self) -> None:
        self._halt.set()
        self.join(60.0)

    # ── operations ────────────────────────────────────────────────────────────────────────────────────────────────

    def _step(self, wire: Wire) -> None:
        certain = [name for name, states in self._possible.items() if len(states) == 1]
        if not certain:
            return
        name = self._rng.choice(certain)
        (present,) = self._possible[name]
        if present is None:
            self._create_topic(wire, name)
            return
        alter, fill = self._alter_topic, self._fill_topic
        operation = self._rng.choice([self._grow_topic, self._delete_topic, alter, alter, fill, fill])
        operation(wire, name, present)

    def _change(self, name: str, after: State, ask: Callable[[], int]) -> None:
        """Request a change; `ask` returns the error code of the response."""
        self._possible[name] |= {after}
        self.in_flight.set()
        code = ask()
        self.in_flight.clear()
        self.operations += 1
        if code:
            self._ledger.problem(f"{name} could not become {after}: error {code}")
        self._possible[name] = {after}

    def _create_topic(self, wire: Wire, name: str) -> None:
        self._incarnations += 1
        shape = Shape(self._incarnations, self._rng.randint(1, 3), self._rng.randrange(10**9, 10**10))
        self._filled[name] = 0
        entry = {
            "name": name, "num_partitions": shape.partitions, "replication_factor": 1, "assignments": [],
            "configs": [{"name": RETENTION, "value": str(shape.retention_ms)}],
        }  # fmt: skip
        request = {"topics": [entry], "timeout": 30_000, "validate_only": False}
        self._change(name, shape, lambda: wire.call(ApiKey.CREATE_TOPICS, 5, request).topics[0].error_code)

    def _grow_topic(self, wire: Wire, name: str, present: Shape) -> None:
        if present.partitions >= MAX_PARTITIONS:
            return
        after = present._replace(partitions=present.partitions + 1)
        entry = {"name": name, "count": after.partitions, "assignments": None}
        request = {"topics": [entry], "timeout": 30_000, "validate_only": False}
        self._change(name, after, lambda: wire.call(ApiKey.CREATE_PARTITIONS, 2, request).results[0].error_code)

    def _alter_topic(self, wire: Wire, name: str, present: Shape) -> None:
        after = present._replace(retention_ms=self._rng.randrange(10**9, 10**10))
        change = {"name": RETENTION, "config_operation": 0, "value": str(after.retention_ms)}
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": [change]}
        request = {"resources": [resource], "validate_only": False}
        key = ApiKey.INCREMENTAL_ALTER_CONFIGS
        self._change(name, after, lambda: wire.call(key, 1, request).responses[0].error_code)

    def _delete_topic(self, wire: Wire, name: str, present: Shape) -> None:
        request = {"topic_names": [name], "timeout": 30_000}
        self._change(name, None, lambda: wire.call(ApiKey.DELETE_TOPICS, 4, request).responses[0].error_code)

    def _fill_topic(self, wire: Wire, name: str, present: Shape) -> None:
        """Write a record that names the incarnation of the topic. Records of earlier ones must never show up."""
        batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, b"%d" % present.incarnation)])
        data = [{"name": name, "partition_data": [{"index": 0, "records": batch}]}]
        answer = wire.call(
            ApiKey.PRODUCE, 8, {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": data}
        )
        code = answer.responses[0].partition_responses[0].error_code
        if code:
            self._ledger.problem(f"{name} did not take a record: error {code}")
        self._filled[name] += 1

    # ── verification ──────────────────────────────────────────────────────────────────────────────────────────────

    def verify(self, wire: Wire) -> int:
        """Compare the broker's topics with the possible states, then take them as certain. Return their number."""
        with self._lock:
            asked: dict[str, Any] = {"topics": None, "allow_auto_topic_creation": False}
            found = {topic.name: topic for topic in wire.call(ApiKey.METADATA, 8, asked).topics}
            for name, states in self._possible.items():
                self._possible[name] = {self._verify_one(wire, name, states, found.get(name))}
            return len(found)

    def _verify_one(self, wire: Wire, name: str, states: set[State], topic: Struct | None) -> State:
        if topic is None:
            assert None in states, f"{name} is gone; it should be {states}"
            return None
        retention_ms = self._retention(wire, name)
        for state in states - {None}:
            assert state is not None
            if (len(topic.partitions), retention_ms) == state[1:]:
                self._verify_contents(wire, name, state)
                return state
        raise AssertionError(f"{name} has {len(topic.partitions)} partitions, {RETENTION}={retention_ms}, not {states}")

    def _retention(self, wire: Wire, name: str) -> int:
        resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": [RETENTION]}
        request = {"resources": [resource], "include_synonyms": False}
        return int(wire.call(ApiKey.DESCRIBE_CONFIGS, 1, request).results[0].configs[0].value)

    def _verify_contents(self, wire: Wire, name: str, state: Shape) -> None:
        values = [record.value for batch in read_log(wire, name, 0, 0) for record in batch.records]
        assert set(values) <= {b"%d" % state.incarnation}, f"{name} is {state}, and has {values}"
        # There may be one more: the one without a response.
        assert len(values) - self._filled[name] in (0, 1), f"{name} has {len(values)} records of {self._filled[name]}"
        self._filled[name] = len(values)
        for partition in range(1, state.partitions):
            assert list_offset(wire, name, partition, -1) == 0, f"{name}-{partition} is not empty"
