"""Idempotence: producer id, epoch and sequence numbers, so that a broker drops duplicates and rejects gaps.

A partition numbers its records from 0 in each epoch. Sent batches keep their numbers, and are retried in that order.
When a broker shows that the numbers no longer fit (it lost them, or a batch with an unknown outcome was given up), the
epoch is raised and the batches in flight are numbered from 0 again.

These are the rules of Kafka's TransactionManager. In transactions (`TransactionalNumbers`) the coordinator assigns the
epochs: where a producer without them would raise it, the transaction has to be aborted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.errors import KafkaError, OutOfOrderSequenceNumber, UnknownProducerId
from ottla.producing.batch import MAX_SEQUENCE, NO_SEQUENCE, Batch, is_before
from ottla.types import NO_PRODUCER_ID, TopicPartition

MAX_EPOCH = 2**15 - 1
REMEMBERED_BATCHES = 5
"""How many batches of a producer a broker remembers per partition."""
_NOTHING_ACKED = -1


@dataclass(slots=True)
class _Entry:
    """The numbers of one partition."""

    producer_id: int
    producer_epoch: int
    next_sequence: int = 0
    last_acked_sequence: int = _NOTHING_ACKED
    last_acked_offset: int = -1
    numbered: int = 0
    """How many batches have been numbered."""
    in_flight: list[Batch] = field(default_factory=list)
    """In the order of their sequence numbers: in flight, or waiting for a retry."""
    unresolved: bool = False
    """A batch was given up after it was sent: it is unknown whether it was written."""
    first_unresolved: int = NO_SEQUENCE
    gap: int = NO_SEQUENCE
    """The first number that the broker cannot have, while a new epoch is due."""


class Idempotence:
    """The producer id and the sequence numbers of all partitions."""

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self._entries: dict[TopicPartition, _Entry] = {}
        self._to_renumber: set[TopicPartition] = set()
        self._unresolved: set[TopicPartition] = set()
        self._bump = False

    @property
    def identified(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def identify(self, producer_id: int, producer_epoch: int) -> None:
        """Use the result of InitProducerId."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    # Before a batch is sent.

    def must_wait(self, batch: Batch) -> bool:
        """Whether the first batch in the queue of a partition may not be sent yet."""
        if not self.identified:
            return True
        entry = self._entries.get(batch.topic_partition)
        if entry is None:
            return False
        if not batch.has_sequence:
            stale = (entry.producer_id, entry.producer_epoch) != (self.producer_id, self.producer_epoch)
            # A broker accepts any number from a producer that it does not know. So nothing follows the first batch
            # before it is acknowledged: the broker might reject that one and accept the next.
            first = entry.last_acked_sequence == _NOTHING_ACKED
            # A broker also remembers only its last batches. When a leader moves, some may be in flight to both.
            many = bool(entry.in_flight) and entry.numbered - entry.in_flight[0].ordinal >= REMEMBERED_BATCHES
            return entry.unresolved or many or bool(entry.in_flight and (stale or first))
        return bool(entry.in_flight) and entry.in_flight[0].base_sequence != batch.base_sequence

    def sending(self, batch: Batch) -> None:
        """Number a batch that goes out for the first time."""
        if batch.has_sequence:
            return
        entry = batch.numbers = self._entry(batch.topic_partition)
        if (entry.producer_id, entry.producer_epoch) != (self.producer_id, self.producer_epoch):
            self._begin(entry)
        batch.number(entry.producer_id, entry.producer_epoch, entry.next_sequence)
        batch.sequence_reset = False
        batch.ordinal = entry.numbered
        entry.numbered += 1
        entry.next_sequence = (entry.next_sequence + batch.count) & MAX_SEQUENCE
        entry.in_flight.append(batch)

    def _entry(self, key: TopicPartition) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(self.producer_id, self.producer_epoch)
        return entry

    # After a batch was sent.

    def completed(self, batch: Batch, last_offset: int) -> None:
        entry = batch.numbers
        self._forget(batch)
        if entry is None or not self._is_of(batch, entry):
            return
        acked = entry.last_acked_sequence
        if acked == _NOTHING_ACKED or is_before(acked, batch.last_sequence):
            entry.last_acked_sequence = batch.last_sequence
        entry.last_acked_offset = max(entry.last_acked_offset, last_offset)

    def failed(self, batch: Batch, *, outcome_known: bool) -> None:
        """A batch was given up. If it was surely not written, its numbers leave a gap: start over with a new epoch."""
        entry = batch.numbers
        self._forget(batch)
        if entry is None or not batch.has_sequence or not self._is_of(batch, entry):
            return
        if not outcome_known:
            entry.unresolved = True
            self._unresolved.add(batch.topic_partition)
            entry.first_unresolved = (batch.last_sequence + 1) & MAX_SEQUENCE
        else:
            self._request_bump(entry, batch)

    def split(self, batch: Batch, parts: list[Batch]) -> None:
        """The parts take over the numbers of the whole."""
        if not batch.has_sequence:
            return
        sequence = batch.base_sequence
        for part in parts:
            part.ordinal, part.numbers = batch.ordinal, batch.numbers
            part.number(batch.producer_id, batch.producer_epoch, sequence)
            sequence = (sequence + part.count) & MAX_SEQUENCE
        in_flight = self._entry(batch.topic_partition).in_flight
        place = in_flight.index(batch)
        in_flight[place : place + 1] = parts

    def surely_written(self, batch: Batch) -> bool:
        """Whether a later batch of the same numbers was acknowledged: a broker accepts them only in order."""
        entry = self._entries.get(batch.topic_partition)
        if entry is None or not batch.has_sequence or not self._is_of(batch, entry):
            return False
        return entry.last_acked_sequence != _NOTHING_ACKED and is_before(batch.last_sequence, entry.last_acked_sequence)

    def can_retry(self, batch: Batch, error: KafkaError, log_start_offset: int) -> bool:
        """Whether a retry could help; records if it needs another epoch."""
        if not batch.has_sequence:
            return error.retriable
        entry = self._entry(batch.topic_partition)
        if isinstance(error, UnknownProducerId):
            return self._can_retry_unknown(batch, entry, log_start_offset)
        if isinstance(error, OutOfOrderSequenceNumber):
            return self._can_retry_out_of_order(batch, entry)
        return error.retriable

    def _can_retry_unknown(self, batch: Batch, entry: _Entry, log_start_offset: int) -> bool:
        """The broker forgot the producer. Without the log start offset, or with numbers that are new already, the next
        response tells more; otherwise only another epoch helps."""
        told = log_start_offset >= 0 and not batch.sequence_reset
        if told and (entry.last_acked_offset < log_start_offset or self._is_current(batch)):
            self._request_bump(entry, batch)
        return True

    def _can_retry_out_of_order(self, batch: Batch, entry: _Entry) -> bool:
        """A batch that is not the next one came too early. If it is the next, numbers are missing: another epoch."""
        if not entry.unresolved and (batch.sequence_reset or not self._is_next(entry, batch.base_sequence)):
            return True
        if not entry.unresolved or batch.base_sequence == entry.first_unresolved:
            self._request_bump(entry, batch)
        return True

    def _is_next(self, entry: _Entry, sequence: int) -> bool:
        return sequence == (entry.last_acked_sequence + 1) & MAX_SEQUENCE

    def _is_current(self, batch: Batch) -> bool:
        return (batch.producer_id, batch.producer_epoch) == (self.producer_id, self.producer_epoch)

    def _is_of(self, batch: Batch, entry: _Entry) -> bool:
        return (batch.producer_id, batch.producer_epoch) == (entry.producer_id, entry.producer_epoch)

    def _forget(self, batch: Batch) -> None:
        entry = batch.numbers
        if entry is not None and batch in entry.in_flight:
            entry.in_flight.remove(batch)

    # Epochs.

    def _request_bump(self, entry: _Entry, batch: Batch) -> None:
        self._bump = True
        self._to_renumber.add(batch.topic_partition)
        if entry.gap == NO_SEQUENCE or is_before(batch.base_sequence, entry.gap):
            entry.gap = batch.base_sequence

    def settle(self) -> None:
        """Resolve what can be resolved, and raise the epoch if that is due. Call it before batches are drained."""
        for key in list(self._unresolved):
            self._resolve(key, self._entries[key])
        if self._bump and self.identified:
            self._bump = False
            if self.producer_epoch == MAX_EPOCH:
                # A producer id has a limited number of epochs: fetch a new id first.
                self.producer_id = NO_PRODUCER_ID
            else:
                self.producer_epoch += 1
        if self._to_renumber and self.identified:
            self._renumber_waiting()

    def _resolve(self, key: TopicPartition, entry: _Entry) -> None:
        """Once nothing is in flight, the last acknowledged number tells whether the lost batch was written."""
        if entry.in_flight:
            return
        self._unresolved.discard(key)
        if entry.unresolved:
            entry.unresolved = False
            if not self._is_next(entry, entry.next_sequence):
                self._bump = True
                self._to_renumber.add(key)

    def _renumber_waiting(self) -> None:
        for key in list(self._to_renumber):
            entry = self._entry(key)
            # Batches before the gap may have been written: they keep their numbers.
            if not any(is_before(batch.base_sequence, entry.gap) for batch in self._numbered(entry)):
                self._to_renumber.discard(key)
                self._begin(entry)

    def _numbered(self, entry: _Entry) -> list[Batch]:
        return entry.in_flight if entry.gap != NO_SEQUENCE else []

    def _begin(self, entry: _Entry) -> None:
        """Number the batches in flight from 0, in the present epoch."""
        entry.producer_id, entry.producer_epoch = self.producer_id, self.producer_epoch
        entry.next_sequence, entry.last_acked_sequence = 0, _NOTHING_ACKED
        entry.unresolved, entry.first_unresolved, entry.gap = False, NO_SEQUENCE, NO_SEQUENCE
        for batch in entry.in_flight:
            batch.number(entry.producer_id, entry.producer_epoch, entry.next_sequence)
            entry.next_sequence = (entry.next_sequence + batch.count) & MAX_SEQUENCE


class TransactionalNumbers(Idempotence):
    """The numbers of a transactional producer: it is given epochs, and raises none."""

    broken = False
    """Numbers are missing, so the present epoch cannot be used any more."""

    def renew(self, producer_id: int, producer_epoch: int) -> None:
        """Start with another epoch, in which nothing was sent."""
        self.identify(producer_id, producer_epoch)
        self._entries.clear()
        self._unresolved.clear()
        self._to_renumber.clear()
        self.broken = self._bump = False

    def settle(self) -> None:
        for key in list(self._unresolved):
            self._resolve(key, self._entries[key])
        self.broken = self.broken or self._bump
        self._bump = False
        self._to_renumber.clear()

    def _can_retry_unknown(self, batch: Batch, entry: _Entry, log_start_offset: int) -> bool:
        """The broker forgot the producer, which is normal if retention deleted its records."""
        told = log_start_offset >= 0 and not batch.sequence_reset
        if told and entry.last_acked_offset < log_start_offset:
            self._begin(entry)
            return True
        return not told

    def _can_retry_out_of_order(self, batch: Batch, entry: _Entry) -> bool:
        return not entry.unresolved and (batch.sequence_reset or not self._is_next(entry, batch.base_sequence))
