"""The producer state of a partition: epochs, last batches and open transactions.

It finds the original offset of a duplicate batch, rejects batches that are out of order or from a fenced producer, and
knows the first offset of each open transaction. `check` changes nothing; `update` records a batch after it was written.
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


class BatchRecord(NamedTuple):
    """A batch written by a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: Millis


class Marker(NamedTuple):
    """The content of a transaction's control record."""

    coordinator_epoch: int
    aborted: bool
    timestamp: Millis


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    """One producer: its current epoch and its last batches, oldest first."""

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
        """False while only the newest batch is known, as after loading a snapshot."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(self, header: BatchHeader) -> BatchRecord | None:
        """The written batch with the same sequence numbers, if it is one of the last batches."""
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

    __slots__ = ("_completed", "_ongoing", "entries", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}
        """First offset of each open transaction, by producer id."""
        self._completed: list[CompletedTransaction] = []
        """Ended transactions whose markers may still be above the high watermark."""

    def check(self, header: BatchHeader, offset: int) -> None:
        """Reject a client's data batch that is out of order or from an old epoch."""
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.producer_epoch == -1:
            return
        self._check_epoch(entry, header.producer_epoch, offset)
        if header.producer_epoch != entry.producer_epoch:
            if header.base_sequence:
                raise OutOfOrderSequenceNumber(
                    f"the first batch of epoch {header.producer_epoch} of producer {header.producer_id} has sequence "
                    f"{header.base_sequence} in {self.topic_partition}, but a new epoch starts with 0"
                )
        elif not in_sequence(entry.last_sequence, header.base_sequence):
            raise OutOfOrderSequenceNumber(
                f"the batch of producer {header.producer_id} has sequence {header.base_sequence} in "
                f"{self.topic_partition}, but the last one written there is {entry.last_sequence}"
            )
        if entry.current_txn_start_offset >= 0 and not header.is_transactional:
            raise InvalidTxnState(
                f"producer {header.producer_id} wrote a non-transactional batch to {self.topic_partition} while its "
                f"transaction from offset {entry.current_txn_start_offset} is open"
            )

    def check_own(self, header: BatchHeader, offset: int) -> None:
        """Reject a transactional batch of the broker itself, which has no sequence, from an old epoch."""
        entry = self.entries.get(header.producer_id)
        if entry is not None:
            self._check_epoch(entry, header.producer_epoch, offset)

    def check_marker(self, header: BatchHeader, marker: Marker, offset: int, *, version: int = 0) -> None:
        """Reject a transaction marker from an old epoch of the producer or of its coordinator.

        In version 2 of the protocol a marker has a newer epoch than the batches of its transaction. A marker with the
        epoch of the open transaction is late and must not end it. If no transaction is open, it is a repetition by a
        coordinator that missed the first response.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, header.producer_epoch, offset)
        if version >= 2 and header.producer_epoch == entry.producer_epoch and entry.current_txn_start_offset >= 0:
            raise InvalidProducerEpoch(
                f"a marker of epoch {header.producer_epoch} of producer {header.producer_id} is too late in "
                f"{self.topic_partition}: a transaction of that epoch is open from offset "
                f"{entry.current_txn_start_offset}"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker for producer {header.producer_id} in {self.topic_partition} is from coordinator epoch "
                f"{marker.coordinator_epoch}, but epoch {entry.coordinator_epoch} has already written there"
            )

    def _check_epoch(self, entry: ProducerEntry, epoch: int, offset: int) -> None:
        if epoch < entry.producer_epoch:
            raise InvalidProducerEpoch(
                f"epoch {epoch} of producer {entry.producer_id} at offset {offset} in {self.topic_partition} is older "
                f"than its last seen epoch {entry.producer_epoch}"
            )

    def update(self, header: BatchHeader, first_offset: int, last_offset: int, timestamp: Millis) -> None:
        """Record a data batch that was written."""
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
        """Record a marker that was written; return the transaction that it ended, or None if none was open."""
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
        """Whether any transaction is open in this partition."""
        return bool(self._ongoing)

    def has_ongoing(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this producer and epoch is open in this partition."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.current_txn_start_offset >= 0 and entry.producer_epoch == producer_epoch

    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return min(self._ongoing.values()) if self._ongoing else None

    @property
    def uncommitted_count(self) -> int:
        """The number of ended transactions whose markers are not known to be committed."""
        return len(self._completed)

    def commit(self, high_watermark: int) -> None:
        """Forget the ended transactions whose markers are below the high watermark."""
        if self._completed:
            self._completed = [done for done in self._completed if done.last_offset >= high_watermark]

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open or ends at or above the high watermark."""
        if not self._ongoing and not self._completed:
            return None
        self.commit(high_watermark)
        candidates = [*self._ongoing.values(), *(done.first_offset for done in self._completed)]
        return min(candidates, default=None)

    def expire(self, *, now: Millis, after: Millis) -> int:
        """Remove the producers that have not written for `after` and have no open transaction."""
        idle = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.current_txn_start_offset < 0 and now - entry.last_timestamp >= after
        ]
        for producer_id in idle:
            del self.entries[producer_id]
        return len(idle)

    def load(self, entries: Iterable[ProducerEntry]) -> None:
        """Replace the state by the entries of a snapshot."""
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
    """Whether `following` is the sequence after `last`; 0 follows the largest number."""
    return following == last + 1 or (following == 0 and last == MAX_SEQUENCE)
