"""AlterPartitionReassignments: move partitions to other brokers, or stop moving them. v1 can keep their number."""

from __future__ import annotations

from collections.abc import Mapping

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.broker.partition_results import by_topic
from ottla.metadata.reassignment import reassign
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import TopicPartition

API = ApiKey.ALTER_PARTITION_REASSIGNMENTS
TO_CONTROLLER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    keep_number = call.api_version >= 1 and not request.allow_replication_factor_change
    wanted = {
        TopicPartition(topic.name, entry.partition_index): entry.replicas
        for topic in request.topics
        for entry in topic.partitions
    }
    refused = {key: error for key in wanted if keep_number and (error := _other_number(node, key, wanted[key]))}
    allowed = {key: replicas for key, replicas in wanted.items() if key not in refused}
    try:
        found = {**refused, **await node.controller.run(reassign, node.metadata, allowed)}
    except errors.KafkaError as error:
        return {"error_code": error.code, "error_message": str(error), "responses": []}
    return {"error_message": None, "responses": _responses(found)}


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer the request and each partition with the same error, as Kafka does."""
    wanted = [TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    responses = _responses(dict.fromkeys(wanted, error))
    return {"error_code": error.code, "error_message": str(error), "responses": responses}


def _responses(found: Mapping[TopicPartition, errors.KafkaError | None]) -> list[Message]:
    return [
        {"name": topic, "partitions": [_result(key, error) for key, error in results]}
        for topic, results in by_topic(found).items()
    ]


def _other_number(node: Node, key: TopicPartition, replicas: list[int] | None) -> errors.KafkaError | None:
    topic = node.metadata.topics.get(key.topic)
    if replicas is None or topic is None or not 0 <= key.partition < topic.partitions:
        return None
    state = topic.states[key.partition]
    now = len(state.replicas) - len(state.adding)
    if len(replicas) == now:
        return None
    return errors.InvalidReplicationFactor(f"{key} has {now} replicas and would have {len(replicas)}.")


def _result(key: TopicPartition, error: errors.KafkaError | None) -> Message:
    if error is None:
        return {"partition_index": key.partition, "error_message": None}
    return {"partition_index": key.partition, "error_code": error.code, "error_message": str(error)}
