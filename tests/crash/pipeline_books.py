"""The input numbers of a pipeline, and its output, read without Spark.

A writer sends numbered records, some of them broken, while the broker is killed and restarted. At the end, every number
must be once in the table and once in the committed records of the output topic, or once in the dead letters if broken.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from ottla import Admin, Consumer, OttlaError, Producer, TopicPartition
from ottla.clients.cluster.coordinators import by_broker
from ottla.clients.producer.prepared import PreparingProducer, _list_ongoing

#: Every n-th record is broken.
BROKEN = 13
PAUSE_SECONDS = 0.5
SHOWN = 10


def value_of(number: int) -> bytes:
    return b'{"n": %d' % number if is_broken(number) else b'{"n": %d}' % number


def is_broken(number: int) -> bool:
    return number % BROKEN == 0


class Writer(threading.Thread):
    """Send numbers, some at a time, until stopped."""

    def __init__(self, servers: str, topic: str, partitions: int, seed: int, burst: int) -> None:
        super().__init__(name="writer", daemon=True)
        self.sent = 0
        self.problems: list[str] = []
        self._servers = servers
        self._topic = topic
        self._partitions = partitions
        self._burst = burst
        self._chance = random.Random(seed)
        self._ended = threading.Event()
        self._may = threading.Event()

    def run(self) -> None:
        with Producer(
            bootstrap_servers=self._servers, delivery_timeout_ms=300_000, enable_idempotence=True, acks="all"
        ) as producer:
            futures: list[Future[Any]] = []
            while not self._ended.wait(PAUSE_SECONDS):
                if self._may.is_set():
                    futures += [self._send(producer) for _ in range(self._chance.randint(1, self._burst))]
            for future in futures:
                try:
                    future.result(300)
                except OttlaError as error:
                    self.problems.append(f"a record was not written: {error}")

    def _send(self, producer: Producer) -> Future[Any]:
        number, self.sent = self.sent, self.sent + 1
        return producer.send(self._topic, value_of(number), partition=self._chance.randrange(self._partitions))  # type: ignore[return-value]

    def go_on(self) -> None:
        self._may.set()

    def pause(self) -> None:
        self._may.clear()

    def finish(self) -> None:
        """Wait until everything is acknowledged."""
        self._ended.set()
        self.join()


# ── Output ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_topic(servers: str, topic: str) -> list[bytes]:
    """The committed records, up to the first open transaction."""
    with Admin(bootstrap_servers=servers) as admin:
        count = len(admin.describe_topics([topic])[topic].partitions)
    keys = [TopicPartition(topic, number) for number in range(count)]
    found: list[bytes] = []
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(keys)
        ends = consumer.end_offsets(keys)
        deadline = time.monotonic() + 60
        while any(consumer.position(key) < ends[key] for key in keys):
            assert time.monotonic() < deadline, f"{topic} could not be read up to {ends}"
            found += [record.value or b"" for record in consumer.poll(0.2)]
    return found


def open_transactions(servers: str, topics: Iterable[str]) -> list[str]:
    """Open transactions, according to the coordinator and to the ends of topics by isolation level."""
    with PreparingProducer(bootstrap_servers=servers, transactional_id="nobody") as producer:
        listed = producer._ask(lambda cluster: by_broker(cluster, _list_ongoing))
    found = [f"transaction {name} is open" for names in listed for name in names]
    with (
        Admin(bootstrap_servers=servers) as admin,
        Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer,
    ):
        for topic in topics:
            count = len(admin.describe_topics([topic])[topic].partitions)
            keys = [TopicPartition(topic, number) for number in range(count)]
            stable = consumer.end_offsets(keys)
            high = admin.list_offsets(dict.fromkeys(keys, "latest"))
            found += [f"{key} is stable up to {stable[key]} only" for key in keys if stable[key] < high[key].offset]
    return found


def read_table(directory: Path) -> list[int]:
    """The numbers in the files of the sink's log; other files in the directory do not count."""
    return [number for file in _files(directory) for number in pq.read_table(file, columns=["n"])["n"].to_pylist()]


def _files(directory: Path) -> Iterator[Path]:
    log = directory / "_spark_metadata"
    entries = {int(path.name.split(".")[0]): path for path in log.glob("*") if path.name.split(".")[0].isdecimal()}
    compacted = max((number for number, path in entries.items() if path.suffix == ".compact"), default=-1)
    for number, path in sorted(entries.items()):
        if number >= compacted:
            for line in path.read_text("utf-8").splitlines()[1:]:
                yield Path(unquote(urlparse(json.loads(line)["path"]).path))


# ── Problems ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def repeats(found: Iterable[Any], what: str) -> list[str]:
    counts = Counter(found)
    return [f"{what}: {value!r} is there {count} times" for value, count in counts.items() if count > 1][:SHOWN]


def differences(found: Iterable[Any], wanted: Iterable[Any], what: str) -> list[str]:
    counts, expected = Counter(found), Counter(wanted)
    missing, more = expected - counts, counts - expected
    lines = [f"{what}: {value!r} is missing" for value in list(missing)[:SHOWN]]
    lines += [f"{what}: {value!r} is there {counts[value]} times" for value in list(more)[:SHOWN]]
    if lines:
        lines.append(f"{what}: {missing.total()} missing and {more.total()} too many in all")
    return lines
