"""AddPartitionsToTxn: a transaction reaches to more partitions.

Up to v3 a producer asks for its own transaction. v4 is for brokers: many transactions at once, and whether partitions
are in one already (KIP-890); v5 lets them add partitions for producers of the second version of the protocol. v2 tells
a fenced producer by its own error.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.transactions.messages import FIRST_VERSION, SECOND_VERSION, AddPartitionsRequest
from ottla.types import TopicPartition

API = ApiKey.ADD_PARTITIONS_TO_TXN
FENCED_FROM, BATCHED_FROM = 2, 4


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if call.api_version >= BATCHED_FROM:
        return {"results_by_transaction": [await _transaction(node, each) for each in request.transactions]}
    topics = request.v3_and_below_topics
    wish = AddPartitionsRequest(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        partitions=_partitions(topics),
        version=FIRST_VERSION,
    )
    codes = await _add(node, wish)
    if call.api_version < FENCED_FROM:
        codes = {place: _without_fenced(code) for place, code in codes.items()}
    return {"results_by_topic_v3_and_below": _results(topics, codes)}


async def _transaction(node: Node, asked: Struct) -> Message:
    wish = AddPartitionsRequest(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        partitions=_partitions(asked.topics),
        version=SECOND_VERSION,
    )
    codes = await (_verify if asked.verify_only else _add)(node, wish)
    return {"transactional_id": asked.transactional_id, "topic_results": _results(asked.topics, codes)}


async def _verify(node: Node, wish: AddPartitionsRequest) -> dict[TopicPartition, int]:
    try:
        return await node.transactions.verify(wish)
    except errors.KafkaError as error:
        return dict.fromkeys(wish.partitions, error.code)


async def _add(node: Node, wish: AddPartitionsRequest) -> dict[TopicPartition, int]:
    """All or nothing: a partition that does not exist keeps the others out, too."""
    unknown = {place for place in wish.partitions if not _exists(node, place)}
    if unknown:
        missing, untried = errors.UnknownTopicOrPartition.code, errors.OperationNotAttempted.code
        return {place: missing if place in unknown else untried for place in wish.partitions}
    try:
        code = await node.transactions.add_partitions(wish)
    except errors.KafkaError as error:
        code = error.code
    return dict.fromkeys(wish.partitions, code)


def _exists(node: Node, place: TopicPartition) -> bool:
    return 0 <= place.partition < len(node.partitions.get(place.topic, ()))


def _without_fenced(code: int) -> int:
    return errors.InvalidProducerEpoch.code if code == errors.ProducerFenced.code else code


def _partitions(topics: Iterable[Struct]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _results(topics: Iterable[Struct], codes: dict[TopicPartition, int]) -> list[Message]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": codes[TopicPartition(topic.name, index)]}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]
