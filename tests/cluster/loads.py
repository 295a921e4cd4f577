"""Clients that work while brokers die, and write down what they see in a `History`.

The producers and the watcher of `tests.crash.loads` are used with a ledger that fills the history. Here are those that
only a cluster needs: our own producer, transactions over several partitions, and a group that commits offsets.
"""

from __future__ import annotations

import abc
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.crash.ledger import Ledger, key_of, value_of
from tests.crash.loads import JOIN_SECONDS, PATIENT, Load, send_bursts
from tests.wire import batches

import ottla
from ottla import KafkaError, OttlaError
from ottla.records import BatchHeader
from ottla.types import TopicPartition

from .checker import Acked, Commit, History, Outcome, Read, Sent


class Recorder(Ledger):
    """A ledger that keeps a history. Each producer and each reader is one thread."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history

    @property
    def acknowledged(self) -> int:
        return len(self.history.acked)

    def next_record(self, producer: str, where: TopicPartition, rng: random.Random) -> tuple[bytes, bytes]:
        sequence = self.sent[producer, where]
        self.sent[producer, where] = sequence + 1
        value = value_of(f"{producer}@{where.topic}-{where.partition}", sequence, rng.randrange(300))
        self.history.sent.append(Sent(producer, where, value))
        return key_of(producer, sequence), value

    def acknowledge(self, value: bytes, where: TopicPartition, offset: int) -> None:
        self.history.acked.append(Acked(where, offset, value))


class OttlaLoad(Load):
    """Our own producer, idempotent."""

    def produce(self) -> None:
        with ottla.Producer(bootstrap_servers=self.servers, **PATIENT) as producer:
            send_bursts(self, producer)


class HistoryLoad(Load, abc.ABC):
    """A load that writes into the history by itself."""

    def __init__(
        self, name: str, servers: str, partitions: Sequence[TopicPartition], recorder: Recorder, seed: int
    ) -> None:
        super().__init__(name, servers, partitions, recorder, seed)
        self.history = recorder.history


class TransactionLoad(HistoryLoad):
    """Transactions over several partitions, some of them aborted, each with a known outcome if possible."""

    def produce(self) -> None:
        life = 0
        while not self.halt.is_set():
            life += 1
            try:
                self._live(life)
            except OttlaError as error:
                # The next life fences this one and ends its transaction.
                self.halt.wait(0.1)
                print(f"{self.name}: {type(error).__name__}: {error}", flush=True)

    def _live(self, life: int) -> None:
        with ottla.Producer(
            bootstrap_servers=self.servers,
            transactional_id=self.name,
            transaction_timeout_ms=15_000,
            max_block_ms=30_000,
            retry_backoff_ms=20,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
            linger_ms=0,
        ) as producer:
            producer.init_transactions()
            number = 0
            while not self.halt.is_set():
                if self.wants_to_send():
                    number += 1
                    self._transaction(producer, f"{self.name}/{life}/{number}")
                self.rest()

    def _transaction(self, producer: ottla.Producer, name: str) -> None:
        history = self.history
        commits = self.rng.random() < 0.8
        history.transactions[name] = Outcome.UNKNOWN
        producer.begin_transaction()
        try:
            for number in range(self.rng.randint(1, 6)):
                where = self.rng.choice(self.partitions)
                value = f"{name}|{number}|".encode()
                history.sent.append(Sent(self.name, where, value, name))
                producer.send(where.topic, value, partition=where.partition)
            if commits:
                producer.commit_transaction()
                history.transactions[name] = Outcome.COMMITTED
                return
            producer.abort_transaction()
            history.transactions[name] = Outcome.ABORTED
        except KafkaError as error:
            if error.remedy != "abort":
                raise
            producer.abort_transaction()
            history.transactions[name] = Outcome.ABORTED


class CommitLoad(HistoryLoad):
    """The only committer of a group: it commits growing offsets, and reads them back."""

    def produce(self) -> None:
        history = self.history
        place = self.partitions[0]
        offset = 0
        while not self.halt.is_set():
            try:
                with ottla.Consumer(
                    bootstrap_servers=self.servers, group_id=self.name, enable_auto_commit=False,
                    auto_offset_reset="earliest", retry_backoff_ms=20,
                ) as consumer:  # fmt: skip
                    consumer.assign([place])
                    while not self.halt.is_set():
                        if self.wants_to_send():
                            offset += 1
                            history.commits[self.name].append(Commit(offset, acknowledged=False))
                            consumer.commit({place: offset}, timeout=20)
                            history.commits[self.name][-1] = Commit(offset, acknowledged=True)
                            if self.rng.random() < 0.3:
                                self._read_back(consumer, place)
                        self.halt.wait(0.02)
                    self._read_back(consumer, place)
            except OttlaError as error:
                print(f"{self.name}: {type(error).__name__}: {error}", flush=True)
                self.halt.wait(0.1)

    def _read_back(self, consumer: ottla.Consumer, place: TopicPartition) -> None:
        history = self.history
        tried = len(history.commits[self.name])
        found = consumer.committed([place], timeout=20)[place]
        history.fetched.append((self.name, tried, -1 if found is None else found.offset))


class Reader(threading.Thread):
    """A consumer of ours that reads everything from the start, whatever happens to brokers."""

    def __init__(self, name: str, servers: str, partitions: Sequence[TopicPartition], recorder: Recorder) -> None:
        super().__init__(name=name, daemon=True)
        self._servers = servers
        self._partitions = list(partitions)
        self._recorder = recorder
        self._halt = threading.Event()
        self.positions: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)

    def run(self) -> None:
        reads = self._recorder.history.reads
        for where in self._partitions:
            reads[self.name, where] = []
        while not self._halt.is_set():
            try:
                with ottla.Consumer(
                    bootstrap_servers=self._servers, auto_offset_reset="none", isolation_level="read_committed",
                    fetch_max_wait_ms=100, retry_backoff_ms=20, reconnect_backoff_ms=10, reconnect_backoff_max_ms=100,
                ) as consumer:  # fmt: skip
                    consumer.assign(self._partitions)
                    for where in self._partitions:
                        consumer.seek(where, self.positions[where])
                    self._read(consumer)
            except OttlaError as error:
                self._recorder.problem(f"{self.name} failed: {type(error).__name__}: {error}")
                self._halt.wait(0.5)

    def _read(self, consumer: ottla.Consumer) -> None:
        reads = self._recorder.history.reads
        while not self._halt.is_set():
            for record in consumer.poll(0.1):
                where = TopicPartition(record.topic, record.partition)
                reads[self.name, where].append(Read(record.offset, record.value or b""))
                self.positions[where] = record.offset + 1
            for where in self._partitions:
                self.positions[where] = max(self.positions[where], consumer.position(where))

    def finish(self, ends: dict[TopicPartition, int], seconds: float = 30) -> None:
        """Wait until it has read up to these offsets, and stop it."""
        deadline = time.monotonic() + seconds
        behind = list(self._partitions)
        while behind and time.monotonic() < deadline and self.is_alive():
            time.sleep(0.05)
            behind = [where for where in self._partitions if self.positions[where] < ends[where]]
        self._halt.set()
        self.join(JOIN_SECONDS)
        for where in behind:
            self._recorder.problem(
                f"{self.name} is at offset {self.positions[where]} of {where} after {seconds:g} s, not at {ends[where]}"
            )


# ── replicas ──────────────────────────────────────────────────────────────────────────────────────────────────────


def replica_on_disk(data_dir: Path, where: TopicPartition) -> tuple[list[Read], list[BatchHeader]]:
    """Read the files of a replica: its records, and the headers of its batches. Markers are no records."""
    reads: list[Read] = []
    headers: list[BatchHeader] = []
    for file in sorted((data_dir / f"{where.topic}-{where.partition}").glob("*.log")):
        for batch in batches(file.read_bytes(), str(file)):
            headers.append(batch.header)
            if not batch.header.is_control:
                reads += [Read(record.offset, record.value or b"") for record in batch.records]
    return reads, headers


def end_of(headers: Iterable[BatchHeader]) -> int:
    """The offset after the last batch."""
    return max((header.next_offset for header in headers), default=0)


def read_replicas(
    data_dirs: dict[int, Path], places: Iterable[TopicPartition], seconds: float = 30
) -> tuple[dict[tuple[int, TopicPartition], list[Read]], dict[TopicPartition, int], list[str]]:
    """Read all replicas as soon as they end at the same offset: records, ends, and what differs nevertheless."""
    found: dict[tuple[int, TopicPartition], list[Read]] = defaultdict(list)
    ends: dict[TopicPartition, int] = {}
    problems: list[str] = []
    deadline = time.monotonic() + seconds
    for place in places:
        while True:
            logs = {broker: replica_on_disk(directory, place) for broker, directory in data_dirs.items()}
            theirs = {broker: end_of(headers) for broker, (_, headers) in logs.items()}
            if len(set(theirs.values())) == 1:
                break
            if time.monotonic() > deadline:
                problems.append(f"the replicas of {place} end at different offsets: {theirs}")
                break
            time.sleep(0.1)
        prints = {broker: [(h.base_offset, h.crc) for h in headers] for broker, (_, headers) in logs.items()}
        if len({tuple(each) for each in prints.values()}) > 1 and len(set(theirs.values())) == 1:
            problems.append(f"the replicas of {place} have different batches")
        ends[place] = max(theirs.values())
        for broker, (reads, _) in logs.items():
            found[broker, place] = reads
    return found, ends, problems
