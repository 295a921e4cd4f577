"""First batches of producers that were refused and will be sent again: later ones must not overtake them.

A producer has several batches under way. A leader that is not ready yet refuses the first one, and may be ready when
the second one comes. A partition that does not know the producer takes any sequence number, because it may have
forgotten the producer. librdkafka then takes the first batch for written, too, and never sends it again. So a batch
behind a refused one gets OUT_OF_ORDER_SEQUENCE_NUMBER, and clients send both again, in order.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from ottla.errors import OutOfOrderSequenceNumber
from ottla.protocol.codec import Struct
from ottla.records import BATCH_OVERHEAD, MAGIC, MAGIC_AT
from ottla.storage.producers import ProducerState
from ottla.types import Millis

#: Longer than a client has batches under way that it sent before it got the refusal.
REMEMBERED_MS = 60_000
#: So many are remembered at most; the oldest are forgotten first.
MOST = 10_000
#: The producer id, producer epoch and first sequence number of a batch, and their position.
_PRODUCER, _PRODUCER_AT = struct.Struct(">qhi"), 43


class ProducerOfBatch(NamedTuple):
    """Who wrote a batch, as its header says."""

    producer_id: int
    epoch: int
    sequence: int


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    forgotten_at: Millis


class DeferredBatches:
    """The refused batches of one broker. `if deferred` tells whether there are any, which is rare."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        # By producer id and partition; the topic by its name or id, as the request has it. A refusing broker may know
        # neither, because it is late to hear of a new topic.
        self._refused: dict[tuple[int, str | UUID, int], _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def add(self, topic: Struct, data: Struct, *, now: Millis) -> None:
        """Record that the batch for a partition was refused with an error after which clients send it again."""
        producer = None if data.records is None else producer_of(data.records)
        if producer is None or producer.producer_id < 0:
            return
        key = producer.producer_id, topic.name or topic.topic_id, data.index
        known, sequence = self._refused.pop(key, None), producer.sequence
        if known is not None and known.epoch == producer.epoch and known.forgotten_at > now:
            sequence = min(sequence, known.sequence)
        elif len(self._refused) >= MOST:
            del self._refused[next(iter(self._refused))]
        self._refused[key] = _Refused(producer.epoch, sequence, now + REMEMBERED_MS)

    def check(self, topic: Struct, data: Struct, producers: ProducerState, *, now: Millis) -> None:
        """Reject a batch whose predecessor was refused, before it is written."""
        self._forget(now)
        producer = None if data.records is None else producer_of(data.records)
        if producer is None:
            return
        key = producer.producer_id, topic.name or topic.topic_id, data.index
        refused = self._refused.get(key)
        if refused is None:
            return
        overtakes = producer.epoch == refused.epoch and producer.sequence > refused.sequence
        # The log of a partition that knows the producer checks the sequence itself.
        if overtakes and producer.producer_id not in producers.entries:
            raise OutOfOrderSequenceNumber(
                f"the batch of producer {producer.producer_id} has sequence {producer.sequence} in "
                f"{producers.topic_partition}, but sequence {refused.sequence} was refused and has not been sent again"
            )
        del self._refused[key]

    def _forget(self, now: Millis) -> None:
        """Remove the oldest ones, so that most of the time there are none to look for."""
        while self._refused and self._refused[oldest := next(iter(self._refused))].forgotten_at <= now:
            del self._refused[oldest]


def producer_of(records: memoryview) -> ProducerOfBatch | None:
    """Read the producer of the first batch; None if it is no batch of magic 2."""
    if len(records) < BATCH_OVERHEAD or records[MAGIC_AT] != MAGIC:
        return None
    return ProducerOfBatch(*_PRODUCER.unpack_from(records, _PRODUCER_AT))
