"""Check whether a producer may write to a partition in its transaction (KIP-890).

A producer of the first transaction protocol must have added the partition, which is verified. For the second protocol
the partition is added now. Either way, every transaction that writes records has a coordinator that ends it.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla import errors
from ottla.broker.node import Node
from ottla.transactions.messages import SECOND_VERSION, AddPartitionsRequest
from ottla.types import TopicPartition

ADDED: None = None


class Producer(NamedTuple):
    """The transactional producer that writes."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


async def added_or_verified(
    node: Node, producer: Producer, partitions: frozenset[TopicPartition], *, adds: bool
) -> dict[TopicPartition, errors.KafkaError | None]:
    """Return for each partition None, or the error that rejects the write."""
    if not adds and not node.config.transaction_partition_verification_enable:
        return dict.fromkeys(partitions, ADDED)
    add_request = AddPartitionsRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        partitions=partitions,
        version=SECOND_VERSION,
    )
    try:
        codes = await node.transactions.added_or_verified(add_request, adds=adds)
    except errors.KafkaError as error:
        return dict.fromkeys(partitions, error)
    return {place: _error(code, place) for place, code in codes.items()}


def _error(code: int, place: TopicPartition) -> errors.KafkaError | None:
    if not code:
        return ADDED
    if code == errors.ProducerFenced.code:
        # On a write the producer may still abort and continue; only the coordinator tells it to stop.
        return errors.InvalidProducerEpoch(
            f"A newer producer with the same transactional id fenced this one before its write to {place}."
        )
    return errors.error_class(code)(f"{place} is not part of an ongoing transaction of this producer.")


def without_fenced(code: int) -> int:
    """Replace PRODUCER_FENCED, which older clients do not know."""
    return errors.InvalidProducerEpoch.code if code == errors.ProducerFenced.code else code
