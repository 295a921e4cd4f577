"""ConsumerGroupDescribe (KIP-848): groups of the consumer protocol, with current and target assignments."""

from __future__ import annotations

from ottla import errors
from ottla.broker.authorization import check
from ottla.broker.handlers.describe_groups import with_operations
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.coordinator.consumer.messages import DescribedConsumer, DescribedConsumerGroup, NamedPartitions
from ottla.coordinator.coordinator import Coordinator
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need

API = ApiKey.CONSUMER_GROUP_DESCRIBE
DESCRIBE = need("consumer_group_describe", Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_TOPIC = need("consumer_group_describe", Operation.DESCRIBE, ResourceType.TOPIC)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    groups = [await _describe(node, call, group_id) async for group_id in with_pauses(request.group_ids)]
    return {"groups": with_operations(node, call, request, groups)}


async def _describe(node: Node, call: Call, group_id: str) -> Message:
    try:
        check(node, call, DESCRIBE, group_id)
        group = await node.groups.run(group_id, Coordinator.describe_consumer, group_id)
        if node.authorizer is not None:
            for topic in sorted(_topics(group)):
                check(node, call, DESCRIBE_TOPIC, topic)
    except errors.KafkaError as error:
        group = DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=str(error))
    return group._asdict() | {"members": [_member(member) for member in group.members]}


def _topics(group: DescribedConsumerGroup) -> set[str]:
    """Return the topics that the description would name."""
    return {
        name
        for member in group.members
        for name in (
            *member.subscribed_topic_names,
            *(each.topic_name for each in (*member.assignment, *member.target_assignment)),
        )
    }


def _member(member: DescribedConsumer) -> Message:
    return member._asdict() | {
        "assignment": _assignment(member.assignment),
        "target_assignment": _assignment(member.target_assignment),
    }


def _assignment(topics: tuple[NamedPartitions, ...]) -> Message:
    return {"topic_partitions": [topic._asdict() for topic in topics]}
