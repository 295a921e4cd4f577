"""What a partition knows of its producers: their epochs, their last batches, their open transactions.

With it a batch that comes twice is answered with the offset it already has, one that comes too early or
from a fenced producer is refused, and the first offset of an undecided transaction is known. `check` only
looks, `update` only records: between the two lies the write to the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from ottla.records import BatchHeader
from ottla.types import Millis, TopicPartition

CACHED_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1
MOST_PUT_OFF = 1000


class BatchRecord(NamedTuple):
    """A batch that a producer wrote."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: Millis


class Marker(NamedTuple):
    """The end of a transaction, as its control record says."""

    coordinator_epoch: int
    aborted: bool
    timestamp: Millis


class CompletedTransaction(NamedTuple):
    """A transaction that has its marker in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    """One producer: its current epoch and its last batches, of which the newest is the last."""

    __slots__ = (
        "batches",
        "complete",
        "coordinator_epoch",
        "current_txn_start_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int, producer_epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = -1
        self.last_timestamp: Millis = -1
        self.current_txn_start_offset = -1
        self.batches: deque[BatchRecord] = deque(maxlen=CACHED_BATCHES)
        self.complete = True
        """False while only the newest of the last batches is known, as after loading a snapshot."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(self, header: BatchHeader) -> BatchRecord | None:
        """The batch that was written with the same sequence numbers, if it is still remembered."""
        if header.producer_epoch == self.producer_epoch:
            last_sequence = header.last_sequence
            for batch in self.batches:
                if batch.first_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.producer_epoch:
            self.batches.clear()
            self.complete = True
            self.producer_epoch = epoch


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_completed", "_expected", "_ongoing", "entries", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}
        """First offset of each undecided transaction, by producer id."""
        self._completed: list[CompletedTransaction] = []
        """Decided transactions whose markers may still lie above the high watermark."""
        self._expected: dict[int, tuple[int, int]] = {}
        """Epoch and lowest sequence of batches that were put off: what comes after them must not be written first."""

    def put_off(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """A batch that may begin a transaction is to come again: those that follow it have to wait for it."""
        epoch, lowest = self._expected.get(producer_id, (producer_epoch, base_sequence))
        if len(self._expected) >= MOST_PUT_OFF:
            self._expected.clear()  # Somebody makes them up.
        if producer_epoch >= epoch:
            lowest = min(lowest, base_sequence) if producer_epoch == epoch else base_sequence
            self._expected[producer_id] = (producer_epoch, lowest)

    def check(self, header: BatchHeader, offset: int) -> None:
        """Refuse a client's data batch that is out of order or from an old epoch; nothing is changed."""
        if self._expected:
            self._check_put_off(header)
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.producer_epoch == -1:
            return
        self._check_epoch(entry, header.producer_epoch, offset)
        if header.producer_epoch != entry.producer_epoch:
            if header.base_sequence:
                raise OutOfOrderSequenceNumber(
                    f"the first batch of epoch {header.producer_epoch} of producer {header.producer_id} has sequence "
                    f"{header.base_sequence} in {self.topic_partition}, but a new epoch begins with 0"
                )
        elif not in_sequence(entry.last_sequence, header.base_sequence):
            raise OutOfOrderSequenceNumber(
                f"the batch of producer {header.producer_id} has sequence {header.base_sequence} in "
                f"{self.topic_partition}, but the last one written there is {entry.last_sequence}"
            )
        if entry.current_txn_start_offset >= 0 and not header.is_transactional:
            raise InvalidTxnState(
                f"producer {header.producer_id} wrote outside of a transaction to {self.topic_partition} while the "
                f"one that began at offset {entry.current_txn_start_offset} is open"
            )

    def _check_put_off(self, header: BatchHeader) -> None:
        epoch, lowest = self._expected.get(header.producer_id, (-1, 0))
        if epoch == header.producer_epoch and header.base_sequence > lowest:
            raise OutOfOrderSequenceNumber(
                f"the batch of producer {header.producer_id} has sequence {header.base_sequence} in "
                f"{self.topic_partition}, but {lowest} was put off and has not come again"
            )

    def check_own(self, header: BatchHeader, offset: int) -> None:
        """Refuse a batch of the broker's own in a transaction, which has no sequence, from an old epoch."""
        entry = self.entries.get(header.producer_id)
        if entry is not None:
            self._check_epoch(entry, header.producer_epoch, offset)

    def check_marker(self, header: BatchHeader, marker: Marker, offset: int, *, version: int = 0) -> None:
        """Refuse a transaction marker from an old epoch of the producer or of its coordinator.

        In the second version of the protocol a marker has an epoch that no batch of its transaction has: one of the
        epoch that writes here now is late, and must not end what has begun since. Only where nothing is open may it
        come again, from a coordinator that did not hear of the first time.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, header.producer_epoch, offset)
        if version >= 2 and header.producer_epoch == entry.producer_epoch and entry.current_txn_start_offset >= 0:
            raise InvalidProducerEpoch(
                f"a marker of epoch {header.producer_epoch} of producer {header.producer_id} came late in "
                f"{self.topic_partition}: a transaction of that epoch is open from offset "
                f"{entry.current_txn_start_offset}"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker for producer {header.producer_id} in {self.topic_partition} is from coordinator epoch "
                f"{marker.coordinator_epoch}, but {entry.coordinator_epoch} has written there"
            )

    def _check_epoch(self, entry: ProducerEntry, epoch: int, offset: int) -> None:
        if epoch < entry.producer_epoch:
            raise InvalidProducerEpoch(
                f"epoch {epoch} of producer {entry.producer_id} at offset {offset} in {self.topic_partition} is older "
                f"than its last seen epoch {entry.producer_epoch}"
            )

    def update(self, header: BatchHeader, first_offset: int, last_offset: int, timestamp: Millis) -> None:
        """A data batch of a producer was written."""
        if self._expected:
            self._expected.pop(header.producer_id, None)
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        elif entry.producer_epoch != header.producer_epoch:
            entry.take_epoch(header.producer_epoch)
        entry.batches.append(
            BatchRecord(header.base_sequence, header.last_sequence, first_offset, last_offset, timestamp)
        )
        entry.last_timestamp = timestamp
        if header.is_transactional and entry.current_txn_start_offset < 0:
            entry.current_txn_start_offset = first_offset
            self._ongoing[header.producer_id] = first_offset

    def complete(self, header: BatchHeader, marker: Marker, offset: int) -> CompletedTransaction | None:
        """A marker was written: the transaction that it ended, or None if the producer had none open here."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        entry.take_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        entry.current_txn_start_offset = -1
        first_offset = self._ongoing.pop(header.producer_id, -1)
        if first_offset < 0:
            return None
        completed = CompletedTransaction(header.producer_id, first_offset, offset, marker.aborted)
        self._completed.append(completed)
        return completed

    @property
    def has_any_ongoing(self) -> bool:
        """Whether any transaction is open here."""
        return bool(self._ongoing)

    def has_ongoing(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this epoch of the producer is open here."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.current_txn_start_offset >= 0 and entry.producer_epoch == producer_epoch

    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return min(self._ongoing.values()) if self._ongoing else None

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open, or whose end is not below the high watermark."""
        if not self._ongoing and not self._completed:
            return None
        self._completed = [done for done in self._completed if done.last_offset >= high_watermark]
        candidates = [*self._ongoing.values(), *(done.first_offset for done in self._completed)]
        return min(candidates, default=None)

    def expire(self, *, now: Millis, after: Millis) -> int:
        """Forget the producers that have not written for `after` and have no open transaction."""
        idle = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.current_txn_start_offset < 0 and now - entry.last_timestamp >= after
        ]
        for producer_id in idle:
            del self.entries[producer_id]
        return len(idle)

    def load(self, entries: Iterable[ProducerEntry]) -> None:
        """Start from what a snapshot says."""
        self.entries = {entry.producer_id: entry for entry in entries}
        self._completed.clear()
        self._ongoing = {
            entry.producer_id: entry.current_txn_start_offset
            for entry in self.entries.values()
            if entry.current_txn_start_offset >= 0
        }

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)


def in_sequence(last: int, following: int) -> bool:
    """Whether `following` comes right after `last`; after the largest number comes 0."""
    return following == last + 1 or (following == 0 and last == MAX_SEQUENCE)
