"""Appends records to the batches of a producer, from any thread."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.clients.blocking import IllegalUse
from ottla.producing.accumulator import Appended
from ottla.producing.batch import Batch
from ottla.producing.buffer_pool import Ticket
from ottla.producing.partitioning import StickyPartitioner
from ottla.producing.transaction_states import State
from ottla.producing.values import EncodedBatch
from ottla.records.builder import Lanes
from ottla.records.values import Headers
from ottla.types import Millis, TopicPartition

if TYPE_CHECKING:
    from ottla.clients.producer.core import ProducerCore

Owner = Callable[[], object]
"""Wakes the caller that waits for memory."""
_SMALL_OVERHEAD = 200


def now_ms() -> Millis:
    return time.monotonic_ns() // 1_000_000


class Appender:
    """The slow path of appending, under the lock of the core, and the callers that wait for memory."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self._accumulator = core.accumulator
        self._owners: dict[Ticket, Owner] = {}
        self._sticky = StickyPartitioner(
            core.config.batch_size,
            adaptive=core.config.partitioner_adaptive_partitioning_enable,
            choose=random.randrange,
        )

    def _check_not_ended(self) -> None:
        """Under the lock: a record that is appended after the end would wait forever, or belong to no transaction."""
        if self._core.closed:
            raise IllegalUse("this producer was closed by another thread")
        if self._core.transactions is not None:
            self._core.transactions.check_send()

    def append(
        self,
        lanes: Lanes,
        partition: int | None,
        timestamp: Millis,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        *,
        owner: Callable[[], Owner],
        ticket: Ticket | None = None,
    ) -> Appended | Ticket:
        """Append a record to a partition, None being the sticky one. A ticket means that memory is out: the owner is
        woken once it is granted, and repeats the call with it."""
        with self._core.lock:
            self._check_not_ended()
            sticks, before = partition is None, lanes.sticky
            chosen = self._sticky_partition(lanes, key, value) if partition is None else partition
            moved_on = sticks and chosen != before
            where = TopicPartition(lanes.topic, chosen)
            outcome = self._accumulator.append(where, timestamp, key, value, headers, now=now_ms(), ticket=ticket)
            if isinstance(outcome, Ticket):
                self._owners[outcome] = owner()
            elif sticks:
                lanes.sticky_bytes += len(key or b"") + len(value or b"")
                outcome.filled |= moved_on
            granted = self._accumulator.take_granted()
        self._after_append(outcome, granted)
        return outcome

    def append_to_next_batch(self, lanes: Lanes, timestamp: Millis, value: bytes) -> tuple[Batch, int] | None:
        """Append a record without key and headers if the sticky batch is full or missing: the usual slow path.

        None if it needs the full slow path.
        """
        if len(value) + _SMALL_OVERHEAD > self._core.config.batch_size or self._core.sender.fatal is not None:
            return None
        with self._core.lock:
            if self._core.closing or not self._takes_records:
                return None
            opened = lanes.opened(lanes.sticky)
            if opened is not None:
                index = opened.append(timestamp, None, value)
                if index >= 0:
                    return opened, index  # type: ignore[return-value]
                self._accumulator.full(opened)  # type: ignore[arg-type]
            partition = self._sticky.partition(lanes, lambda: self._queue_lengths(lanes))
            last = lanes.opened(partition)
            index = -1 if last is None else last.append(timestamp, None, value)
            batch = last if index >= 0 else self._accumulator.begin_batch(lanes.topic, partition, now=now_ms())
            if batch is None:
                return None
            index = index if index >= 0 else batch.append(timestamp, None, value)
            lanes.sticky_bytes += len(value)
        self._core.wake()
        return batch, index  # type: ignore[return-value]

    @property
    def _takes_records(self) -> bool:
        return self._core.transactions is None or self._core.transactions.state is State.IN_TRANSACTION

    def _sticky_partition(self, lanes: Lanes, key: bytes | None, value: bytes | None) -> int:
        opened = lanes.opened(lanes.sticky)
        buffer = opened.buffer if opened is not None else None
        if opened is not None and (
            buffer is None or opened.size + self._accumulator.size_for(key, value, ()) > len(buffer)
        ):
            self._accumulator.full(opened)  # type: ignore[arg-type]
        return self._sticky.partition(lanes, lambda: self._queue_lengths(lanes))

    def _queue_lengths(self, lanes: Lanes) -> list[tuple[int, int]]:
        led = self._core.topics.view.led.get(lanes.topic, {})
        if self._core.config.partitioner_availability_timeout_ms:
            now = now_ms()
            led = {
                partition: leader for partition, leader in led.items() if not self._core.sender.stuck(leader, now=now)
            }
        return self._accumulator.queue_lengths(lanes.topic, led)

    def append_batch(
        self, encoded: EncodedBatch, *, owner: Callable[[], Owner], ticket: Ticket | None = None
    ) -> Appended | Ticket:
        """Append a batch of encoded records: see `Accumulator.append_batch`."""
        with self._core.lock:
            self._check_not_ended()
            outcome = self._accumulator.append_batch(encoded, now=now_ms(), ticket=ticket)
            if isinstance(outcome, Ticket):
                self._owners[outcome] = owner()
            granted = self._accumulator.take_granted()
        self._after_append(outcome, granted)
        return outcome

    def _after_append(self, outcome: Appended | Ticket, granted: Iterable[Ticket]) -> None:
        self.wake_owners(granted)
        if isinstance(outcome, Ticket) or outcome.new_batch:
            self._core.wake()

    def give_up(self, ticket: Ticket | None) -> None:
        """Leave the queue for memory, and release what was granted in the meantime."""
        if ticket is None:
            return
        with self._core.lock:
            self._owners.pop(ticket, None)
            self._accumulator.give_up(ticket)
            granted = self._accumulator.take_granted()
        self.wake_owners(granted)

    def waiting(self) -> list[Ticket]:
        return [*self._owners]

    def wake_owners(self, granted: Iterable[Ticket]) -> None:
        for ticket in granted:
            owner = self._owners.pop(ticket, None)
            if owner is not None:
                owner()
