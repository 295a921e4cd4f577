"""The state of one transactional id, and its transitions.

A transition returns a new value. The whole value is written to ``__transaction_state`` and replaces the old one on
replay. ``transitions`` has the table of allowed transitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ottla.transactions.messages import FIRST_VERSION, NO_EPOCH, SECOND_VERSION
from ottla.transactions.transitions import RESTING, TRANSITIONS, State
from ottla.types import NO_PRODUCER_ID, NO_TIMESTAMP, Millis, TopicPartition

MAX_EPOCH = 2**15 - 1
#: The last epoch of a producer. One more is reserved to fence it.
LAST_EPOCH = MAX_EPOCH - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The producer and the transaction of a transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    """The previous epoch, which identifies a repeated InitProducerId. Not in the log, as in Kafka."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The previous producer id, whose epochs are used up. It identifies a repeated request."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after this transaction, if the epochs are used up."""
    timeout: Millis
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_at: Millis = NO_TIMESTAMP
    updated_at: Millis = NO_TIMESTAMP
    version: int = FIRST_VERSION
    """The protocol version of the last transition."""

    @property
    def is_exhausted(self) -> bool:
        """Whether there is no next epoch for the producer."""
        return self.producer_epoch >= LAST_EPOCH

    def _step(self, state: State, **changes: Any) -> Transaction:
        TRANSITIONS.check(self.state, state)
        return replace(self, state=state, **changes)

    def started_again(self, *, timeout: Millis, last_epoch: int, now: Millis) -> Transaction:
        """Give a starting producer the next epoch."""
        return self._initialised(self.producer_id, self.producer_epoch + 1, last_epoch, timeout, now)

    def same_again(self, *, timeout: Millis, now: Millis) -> Transaction:
        """Repeat an InitProducerId with the same epoch."""
        return self._initialised(self.producer_id, self.producer_epoch, self.last_producer_epoch, timeout, now)

    def rotated(self, producer_id: int, *, timeout: Millis, last_epoch: int, now: Millis) -> Transaction:
        """Give the producer a new id, because all epochs are used."""
        return self._initialised(producer_id, 0, last_epoch, timeout, now)

    def _initialised(self, producer_id: int, epoch: int, last_epoch: int, timeout: Millis, at: Millis) -> Transaction:
        return self._step(
            State.EMPTY,
            producer_id=producer_id,
            previous_producer_id=self.previous_producer_id if producer_id == self.producer_id else self.producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout=timeout,
            partitions=frozenset(),
            started_at=NO_TIMESTAMP,
            updated_at=at,
        )

    def with_partitions(self, added: frozenset[TopicPartition], *, version: int, now: Millis) -> Transaction:
        """Add partitions. The first ones start the transaction."""
        return self._step(
            State.ONGOING,
            partitions=self.partitions | added,
            started_at=now if self.state in RESTING else self.started_at,
            updated_at=now,
            version=version,
        )

    def prepared(self, *, committed: bool, version: int, next_producer_id: int, now: Millis) -> Transaction:
        """Decide to commit or abort. The second version raises the epoch, which fences late requests."""
        target = State.PREPARE_COMMIT if committed else State.PREPARE_ABORT
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if version >= SECOND_VERSION:
            epoch, last_epoch = epoch + 1, epoch
        return self._step(
            target,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            started_at=now if self.state in RESTING else self.started_at,
            updated_at=now,
            version=version,
        )

    def fenced(self, *, now: Millis) -> Transaction:
        """Abort by the broker. The new epoch fences the producer."""
        TRANSITIONS.check(self.state, State.PREPARE_EPOCH_FENCE)
        return replace(
            self,
            state=State.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            updated_at=now,
            version=SECOND_VERSION,
        )

    def completed(self, *, now: Millis) -> Transaction:
        """Complete the transaction after all markers are written."""
        target = State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        changed = self.next_producer_id != NO_PRODUCER_ID
        return self._step(
            target,
            producer_id=self.next_producer_id if changed else self.producer_id,
            previous_producer_id=self.producer_id if changed else self.previous_producer_id,
            producer_epoch=0 if changed else self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            updated_at=now,
        )
