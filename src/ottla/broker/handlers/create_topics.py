"""CreateTopics: v5 returns the configs of each topic, v7 its id."""

from __future__ import annotations

from collections.abc import Mapping

from ottla import errors
from ottla.broker.authorization import check, sees
from ottla.broker.handlers.describe_configs import config_message
from ottla.broker.large_requests import unique, with_pauses
from ottla.broker.node import Call, Node
from ottla.broker.quotas import TopicChanges
from ottla.broker.topics import Charge, create_topic
from ottla.config.alter import check_value
from ottla.config.describe import describe_topic
from ottla.metadata import Topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need

API = ApiKey.CREATE_TOPICS
TO_CONTROLLER = True
CREATE = need("create_topics", Operation.CREATE, ResourceType.TOPIC)
DESCRIBE_CONFIGS = need("create_topics", Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, Denied.HIDDEN)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    entries = with_pauses(unique(request.topics, lambda topic: str(topic.name)))
    changes = TopicChanges(node, call)
    topics = [await _create(node, call, *entry, changes.charge, request.validate_only) async for entry in entries]
    return {"topics": topics, "throttle_time": changes.pause()}


async def _create(node: Node, call: Call, entry: Struct, twice: bool, charge: Charge, validate_only: bool) -> Message:
    try:
        if twice:
            raise errors.InvalidRequest(
                f"The topic '{entry.name}' is in the request more than once. Name each topic once."
            )
        check(node, call, CREATE, entry.name)
        assignments = _assignments(entry)
        topic = await create_topic(
            node,
            entry.name,
            len(assignments) if assignments is not None else _partition_count(node, entry),
            _configs(entry),
            replication_factor=_replication_factor(node, entry),
            assignments=assignments,
            validate_only=validate_only,
            charge=charge,
        )
    except errors.KafkaError as error:
        return {
            "name": entry.name,
            "topic_id": None,
            "error_code": error.code,
            "error_message": str(error),
            "configs": None,
        }
    return _created(node, call, topic, validate_only=validate_only)


def _created(node: Node, call: Call, topic: Topic, *, validate_only: bool) -> Message:
    created: Message = {
        "name": topic.name,
        "topic_id": None if validate_only else topic.topic_id,
        "error_message": None,
    }
    if not sees(node, call, DESCRIBE_CONFIGS, topic.name):
        return created | {"topic_config_error_code": errors.TopicAuthorizationFailed.code, "configs": None}
    return created | {
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "configs": [config_message(entry) for entry in describe_topic(node.config, topic.configs)],
    }


def _configs(entry: Struct) -> Mapping[str, str]:
    for config in entry.configs:
        if config.value is None:
            raise errors.InvalidConfig(f"The config {config.name} has no value. Give it one or leave it out.")
    return {config.name: check_value(config.name, config.value) for config in entry.configs}


def _partition_count(node: Node, entry: Struct) -> int:
    count: int = entry.num_partitions
    return node.config.num_partitions if count == -1 else count


def _replication_factor(node: Node, entry: Struct) -> int:
    factor: int = entry.replication_factor
    return node.config.default_replication_factor if factor == -1 else factor


def _assignments(entry: Struct) -> list[tuple[int, ...]] | None:
    """Return the brokers of each partition if the client chooses them."""
    if not entry.assignments:
        return None
    if entry.num_partitions != -1 or entry.replication_factor != -1:
        raise errors.InvalidRequest("Set num_partitions and replication_factor to -1 when you assign replicas.")
    by_index = {assignment.partition_index: assignment.broker_ids for assignment in entry.assignments}
    indexes = sorted(assignment.partition_index for assignment in entry.assignments)
    if indexes != list(range(len(indexes))):
        raise errors.InvalidReplicaAssignment(
            f"The assigned partitions are {indexes}; number them from 0 without gaps."
        )
    return [by_index[index] for index in indexes]
