"""Whether a producer may write to a partition in its transaction (KIP-890).

A producer of the first version of the protocol has added the partition before, and that is looked up; for one of the
second version it is added now. Either way nothing is written for a transaction that nobody will end.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla import errors
from ottla.broker.node import Node
from ottla.transactions.messages import SECOND_VERSION, AddPartitionsRequest
from ottla.types import TopicPartition

ADDED: None = None


class Producer(NamedTuple):
    """Who writes."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


async def added_or_verified(
    node: Node, producer: Producer, partitions: frozenset[TopicPartition], *, adds: bool
) -> dict[TopicPartition, errors.KafkaError | None]:
    """For each of the partitions None, or why nothing may be written to it."""
    if not adds and not node.config.transaction_partition_verification_enable:
        return dict.fromkeys(partitions, ADDED)
    wish = AddPartitionsRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        partitions=partitions,
        version=SECOND_VERSION,
    )
    try:
        if adds:
            codes = dict.fromkeys(partitions, await node.transactions.add_partitions(wish))
        else:
            codes = await node.transactions.verify(wish)
    except errors.KafkaError as error:
        return dict.fromkeys(partitions, error)
    return {place: _error(code, place) for place, code in codes.items()}


def _error(code: int, place: TopicPartition) -> errors.KafkaError | None:
    if not code:
        return ADDED
    if code == errors.ProducerFenced.code:
        # Where records are written the producer may still abort and go on; only the coordinator tells it to stop.
        return errors.InvalidProducerEpoch(f"Another producer has taken over before something was written to {place}.")
    return errors.error_class(code)(f"{place} is not part of an ongoing transaction of the producer.")
