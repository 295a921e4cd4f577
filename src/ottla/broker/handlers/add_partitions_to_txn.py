"""AddPartitionsToTxn: add partitions to a transaction.

Up to v3 a producer sends it for its own transaction; v2 adds PRODUCER_FENCED. From v4 it is for brokers (KIP-890): it
has many transactions, and can check whether partitions belong to one. v5 adds partitions for producers of the second
transaction protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ottla import errors
from ottla.broker.authorization import refusal
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.broker.verification import without_fenced
from ottla.metadata.machine import INTERNAL_TOPICS
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need
from ottla.transactions.messages import FIRST_VERSION, SECOND_VERSION, AddPartitionsRequest
from ottla.types import TopicPartition

API = ApiKey.ADD_PARTITIONS_TO_TXN
FENCED_FROM, BATCHED_FROM = 2, 4
WRITE = need("add_partitions_to_txn", Operation.WRITE, ResourceType.TOPIC)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if call.api_version >= BATCHED_FROM:
        transactions = with_pauses(request.transactions)
        return {"results_by_transaction": [await _transaction(node, each) async for each in transactions]}
    topics = request.v3_and_below_topics
    add_request = AddPartitionsRequest(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        partitions=_partitions(topics),
        version=FIRST_VERSION,
    )
    codes = await _add(node, add_request, _refused(node, call, topics))
    if call.api_version < FENCED_FROM:
        codes = {place: without_fenced(code) for place, code in codes.items()}
    return {"results_by_topic_v3_and_below": _results(topics, codes)}


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer each partition with the same error; from v4 the whole request."""
    topics = request.v3_and_below_topics
    codes = dict.fromkeys(_partitions(topics), error.code)
    return {
        "error_code": error.code,
        "results_by_transaction": [],
        "results_by_topic_v3_and_below": _results(topics, codes),
    }


def _refused(node: Node, call: Call, topics: Iterable[Struct]) -> dict[str, int]:
    """Return the error codes of topics that the client may not write to. Nobody may write to the broker's own ones."""
    own = {topic.name: errors.TopicAuthorizationFailed.code for topic in topics if topic.name in INTERNAL_TOPICS}
    return own | {
        topic.name: error.code
        for topic in topics
        if node.authorizer is not None
        and topic.name not in own
        and (error := refusal(node, call, WRITE, topic.name)) is not None
    }


async def _transaction(node: Node, transaction: Struct) -> Message:
    add_request = AddPartitionsRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        partitions=_partitions(transaction.topics),
        version=SECOND_VERSION,
    )
    codes = await (_verify if transaction.verify_only else _add)(node, add_request)
    return {"transactional_id": transaction.transactional_id, "topic_results": _results(transaction.topics, codes)}


async def _verify(node: Node, add_request: AddPartitionsRequest) -> dict[TopicPartition, int]:
    try:
        return await node.transactions.verify(add_request)
    except errors.KafkaError as error:
        return dict.fromkeys(add_request.partitions, error.code)


async def _add(
    node: Node, add_request: AddPartitionsRequest, refused: Mapping[str, int] = MappingProxyType({})
) -> dict[TopicPartition, int]:
    """Add all partitions or, if one of them does not exist or is refused, none."""
    missing, untried = errors.UnknownTopicOrPartition.code, errors.OperationNotAttempted.code
    failed = {
        place: refused.get(place.topic, missing)
        for place in add_request.partitions
        if place.topic in refused or not node.exists(place.topic, place.partition)
    }
    if failed:
        return {place: failed.get(place, untried) for place in add_request.partitions}
    try:
        code = await node.transactions.add_partitions(add_request)
    except errors.KafkaError as error:
        code = error.code
    return dict.fromkeys(add_request.partitions, code)


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
