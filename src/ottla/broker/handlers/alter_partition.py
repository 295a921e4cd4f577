"""AlterPartition: the leader of partitions asks the controller to change their in-sync replicas. For brokers only."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.metadata import PartitionState
from ottla.metadata.partitions import IsrChange, alter_partitions
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.ALTER_PARTITION
FIRST = 3
ONLY_IN_CLUSTER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    changes = [
        IsrChange(
            topic.topic_id,
            entry.partition_index,
            entry.leader_epoch,
            entry.partition_epoch,
            tuple((each.broker_id, each.broker_epoch) for each in entry.new_isr_with_epochs),
        )
        for topic in request.topics
        for entry in topic.partitions
    ]
    try:
        answers = iter(
            await node.controller.run(alter_partitions, node.metadata, request.broker_id, request.broker_epoch, changes)
        )
    except errors.KafkaError as error:
        return {"error_code": error.code, "topics": []}
    return {
        "topics": [
            {
                "topic_id": topic.topic_id,
                "partitions": [_answer(entry.partition_index, next(answers)) for entry in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _answer(index: int, answer: object) -> Message:
    if isinstance(answer, errors.KafkaError):
        return {
            "partition_index": index,
            "error_code": answer.code,
            "leader_id": -1,
            "leader_epoch": -1,
            "partition_epoch": -1,
        }
    assert isinstance(answer, PartitionState)
    return {
        "partition_index": index,
        "leader_id": answer.leader,
        "leader_epoch": answer.leader_epoch,
        "isr": answer.isr,
        "partition_epoch": answer.partition_epoch,
    }
