"""A transaction coordinator in virtual time, for the tests of this folder.

Each call runs one operation with the broker's driver. Tests compare records, response and timers exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from tests.virtual import Log, VirtualJournal, begin, manual_driver

from ottla.machine import Outcome, Timer
from ottla.timers import TimerQueue
from ottla.transactions import messages as m
from ottla.transactions.config import TransactionConfig
from ottla.transactions.coordinator import TransactionCoordinator
from ottla.transactions.records import TransactionRecord, decode, encode
from ottla.transactions.transaction import Transaction
from ottla.types import Millis, TopicPartition

START = 1_000_000
ID = "payments"
TIMEOUT = 60_000
FIRST_PRODUCER = 1000
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = TopicPartition("__consumer_offsets", 31)
V1, V2 = m.FIRST_VERSION, m.SECOND_VERSION


class Call(NamedTuple):
    """The result of an operation."""

    response: Any
    records: Sequence[TransactionRecord]
    timers: tuple[Timer, ...]

    @property
    def value(self) -> Transaction | None:
        """The value of the only record."""
        (record,) = self.records
        return record.value

    @property
    def code(self) -> int:
        return int(self.response.error_code)


class WatchedCoordinator(TransactionCoordinator):
    """Remembers what the timers did."""

    def __init__(self, config: TransactionConfig) -> None:
        super().__init__(config)
        self.fired: list[Call] = []

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[TransactionRecord, None]:
        outcome = super().fire(key, now=now)
        self.fired.append(Call(None, outcome.records, outcome.timers))
        return outcome


class TransactionContext:
    """A coordinator with its log, its timers and a manual clock."""

    def __init__(self, **config: int) -> None:
        self.config = TransactionConfig(**config)
        self.now = START
        self.log: Log = []
        self._ids = count(FIRST_PRODUCER)
        self.restart()

    def run(self, operation: Callable[..., Outcome[TransactionRecord, Any]], *args: Any, **kwargs: Any) -> Call:
        outcome, response = begin(self.driver, operation, *args, **kwargs)
        return Call(response, outcome.records, outcome.timers)

    def sleep(self, milliseconds: int) -> list[Call]:
        """Advance the clock and return the results of due timers."""
        self.now += milliseconds
        self.coordinator.fired.clear()
        while (deadline := self.timers.next_deadline()) is not None and deadline <= self.now:
            self.driver.fire_due(self.now)
        return list(self.coordinator.fired)

    def restart(self) -> None:
        """Forget everything that is not in the log."""
        self.coordinator = WatchedCoordinator(self.config)
        self.journal = VirtualJournal(self.log, encode)
        self.driver = manual_driver(self.coordinator, self.journal, self)
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            self.coordinator.replay(record)
        self.run(self.coordinator.loaded)

    def force(self, **changes: Any) -> None:
        """Write a state to the log that would take long to reach."""
        record = TransactionRecord(ID, replace(self.state, **changes))
        self.driver.write_through(lambda: self.journal.append([record]), lambda: self.coordinator.replay(record))

    @property
    def timers(self) -> TimerQueue:
        return self.driver.timers

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def init(self, producer_id: int = -1, producer_epoch: int = -1, *, name: str = ID, timeout: int = TIMEOUT) -> Call:
        request = m.InitRequest(
            transactional_id=name,
            timeout=timeout,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            spare_producer_id=self.spare(name),
        )
        return self.run(self.coordinator.init_producer_id, request)

    def spare(self, name: str = ID) -> int:
        return next(self._ids) if self.coordinator.needs_producer_id(name) else -1

    def add(self, *partitions: TopicPartition, epoch: int = 0, producer_id: int = FIRST_PRODUCER, name: str = ID,
            version: int = V1) -> Call:  # fmt: skip
        return self.run(self.coordinator.add_partitions, self._adding(partitions, epoch, producer_id, name, version))

    def verify(self, *partitions: TopicPartition, epoch: int = 0, producer_id: int = FIRST_PRODUCER) -> Call:
        return self.run(self.coordinator.verify, self._adding(partitions, epoch, producer_id, ID, V2))

    def _adding(
        self, partitions: tuple[TopicPartition, ...], epoch: int, producer_id: int, name: str, version: int
    ) -> m.AddPartitionsRequest:
        return m.AddPartitionsRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            partitions=frozenset(partitions or (P0,)),
            version=version,
        )

    def end(self, committed: bool, *, epoch: int = 0, producer_id: int = FIRST_PRODUCER, name: str = ID,
            version: int = V1) -> Call:  # fmt: skip
        request = m.EndRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
            version=version,
            spare_producer_id=self.spare(name) if version >= V2 else -1,
        )
        return self.run(self.coordinator.end, request)

    def commit(self, **changes: Any) -> Call:
        return self.end(True, **changes)

    def abort(self, **changes: Any) -> Call:
        return self.end(False, **changes)

    def finish(self) -> list[m.Markers]:
        """Write all missing markers, as the shell does, and return them."""
        found = list(self.coordinator.unfinished())
        for markers in found:
            assert self.run(self.coordinator.markers_written, markers).response is True
        return found

    @property
    def state(self) -> Transaction:
        return self.coordinator.transactions[ID]
