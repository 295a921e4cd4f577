"""TxnOffsetCommit: commit the offsets of a group as part of a transaction.

v2 adds leader epochs; v3 the member, to reject one that was replaced; v5 is the second transaction protocol, without
AddOffsetsToTxn.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import repeat

from ottla import errors
from ottla.broker.authorization import refusal
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.broker.verification import ADDED, Producer, added_or_verified
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import Offset, TransactionalCommitRequest
from ottla.metadata.machine import CONSUMER_OFFSETS
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need
from ottla.types import TopicPartition

API = ApiKey.TXN_OFFSET_COMMIT
ABORTABLE_FROM, ADDS_FROM = 4, 5
READ = need("txn_offset_commit", Operation.READ, ResourceType.TOPIC)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    refused = {
        topic.name: error.code
        async for topic in with_pauses(request.topics)
        if node.authorizer is not None and (error := refusal(node, call, READ, topic.name)) is not None
    }
    commit_request = _commit_request(node, call, request, refused)
    existing = {(topic, partition) for topic, partition, *_ in commit_request.offsets}
    codes: Iterator[int]
    try:
        codes = iter(await _commit(node, call, commit_request))
    except errors.KafkaError as error:
        codes = repeat(_code_for(error, call.api_version))
    unknown = errors.UnknownTopicOrPartition.code
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": next(codes)
                        if (topic.name, each.partition_index) in existing
                        else refused.get(topic.name, unknown),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer each partition with the same error."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": error.code} for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


async def _commit(node: Node, call: Call, commit_request: TransactionalCommitRequest) -> tuple[int, ...]:
    if not commit_request.offsets:
        return ()
    if not commit_request.group_id:
        raise errors.InvalidGroupId("The group id is empty. Set group.id.")
    await node.groups.shards.ready()
    shard = node.groups.shards.of(commit_request.group_id)
    producer = Producer(commit_request.transactional_id, commit_request.producer_id, commit_request.producer_epoch)
    if not shard.has_ongoing(producer.producer_id, producer.producer_epoch):
        place = TopicPartition(CONSUMER_OFFSETS, node.groups.shards.index_of(commit_request.group_id))
        verdicts = await added_or_verified(node, producer, frozenset({place}), adds=call.api_version >= ADDS_FROM)
        if (error := verdicts[place]) is not ADDED:
            raise error
    response = await node.groups.run(commit_request.group_id, Coordinator.commit_transactional, commit_request)
    return response.error_codes


def _code_for(error: errors.KafkaError, version: int) -> int:
    """Map an error to a code that an older client knows."""
    if isinstance(error, errors.TransactionAbortable) and version < ABORTABLE_FROM:
        return errors.InvalidTxnState.code
    if isinstance(error, errors.ConcurrentTransactions) and version < ADDS_FROM:
        return errors.CoordinatorLoadInProgress.code
    if isinstance(error, errors.KafkaStorageError):
        return errors.CoordinatorNotAvailable.code
    return error.code


def _commit_request(node: Node, call: Call, request: Struct, refused: Container[str]) -> TransactionalCommitRequest:
    return TransactionalCommitRequest(
        group_id=request.group_id,
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        member_id=request.member_id,
        generation_id=request.generation_id,
        group_instance_id=request.group_instance_id,
        api_version=call.api_version,
        offsets=tuple(_offsets(node, request, refused)),
    )


def _offsets(node: Node, request: Struct, refused: Container[str]) -> Iterator[Offset]:
    for topic in request.topics:
        if topic.name in refused:
            continue
        for each in topic.partitions:
            if _exists(node, topic, each):
                offset, leader_epoch = each.committed_offset, each.committed_leader_epoch
                topic_id = node.metadata.topics[topic.name].topic_id
                yield topic.name, each.partition_index, offset, leader_epoch, each.committed_metadata, topic_id


def _exists(node: Node, topic: Struct, each: Struct) -> bool:
    return node.exists(topic.name, each.partition_index)
