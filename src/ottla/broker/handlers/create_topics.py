"""CreateTopics: v5 returns the topic's configs, v7 its id. Each topic has its own answer."""

from __future__ import annotations

from collections.abc import Mapping

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.broker.topics import create_topic
from ottla.broker.turns import in_turns, once
from ottla.config.describe import describe_topic
from ottla.metadata import Topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.CREATE_TOPICS


async def handle(node: Node, call: Call, request: Struct) -> Message:
    answers = []
    async for wish, twice in in_turns(once(request.topics, lambda topic: str(topic.name))):
        answers.append(await _create(node, wish, twice, validate_only=request.validate_only))
    return {"topics": answers}


async def _create(node: Node, wish: Struct, twice: bool, *, validate_only: bool) -> Message:
    try:
        if twice:
            raise errors.InvalidRequest(f"The topic '{wish.name}' is named more than once.")
        partitions = _partition_count(node, wish)
        topic = await create_topic(node, wish.name, partitions, _configs(wish), validate_only=validate_only)
    except errors.KafkaError as error:
        return {
            "name": wish.name,
            "topic_id": None,
            "error_code": error.code,
            "error_message": str(error),
            "configs": None,
        }
    return _created(node, topic, validate_only=validate_only)


def _created(node: Node, topic: Topic, *, validate_only: bool) -> Message:
    return {
        "name": topic.name,
        "topic_id": None if validate_only else topic.topic_id,
        "error_message": None,
        "num_partitions": topic.partitions,
        "replication_factor": 1,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "config_source": entry.source,
                "is_sensitive": entry.is_sensitive,
            }
            for entry in describe_topic(node.config, topic.configs)
        ],
    }


def _configs(wish: Struct) -> Mapping[str, str]:
    for config in wish.configs:
        if config.value is None:
            raise errors.InvalidConfig(f"The config {config.name} has no value.")
    return {config.name: config.value for config in wish.configs}


def _partition_count(node: Node, wish: Struct) -> int:
    if wish.assignments:
        return _assigned(node, wish)
    factor = wish.replication_factor
    if factor == -1:
        factor = node.config.default_replication_factor
    if factor <= 0:
        raise errors.InvalidReplicationFactor("The replication factor must be larger than 0, or -1 for the default.")
    if factor > 1:
        raise errors.InvalidReplicationFactor(
            f"Unable to replicate the partitions {factor} times: there is 1 broker. Use a replication factor of 1."
        )
    count: int = wish.num_partitions
    return node.config.num_partitions if count == -1 else count


def _assigned(node: Node, wish: Struct) -> int:
    if wish.num_partitions != -1 or wish.replication_factor != -1:
        raise errors.InvalidRequest("Give either an assignment or a number of partitions and replicas, not both.")
    indexes = sorted(assignment.partition_index for assignment in wish.assignments)
    if indexes != list(range(len(indexes))):
        raise errors.InvalidReplicaAssignment("The assigned partitions must be numbered from 0 without a gap.")
    for assignment in wish.assignments:
        check_replicas(node, assignment.broker_ids)
    return len(indexes)


def check_replicas(node: Node, broker_ids: tuple[int, ...]) -> None:
    """Raise InvalidReplicaAssignment unless the replicas are just this broker."""
    if list(broker_ids) != [node.id]:
        raise errors.InvalidReplicaAssignment(
            f"The replicas {list(broker_ids)} cannot be had: the only broker is {node.id}."
        )
