"""ConsumerGroupDescribe (KIP-848): groups of the consumer protocol, with current and target assignments."""

from __future__ import annotations

from ottla import errors
from ottla.broker.handlers.metadata import GROUP_OPERATIONS, NOT_ASKED
from ottla.broker.node import Call, Node
from ottla.coordinator.consumer_messages import DescribedConsumer, DescribedConsumerGroup, NamedPartitions
from ottla.coordinator.coordinator import Coordinator
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.CONSUMER_GROUP_DESCRIBE


async def handle(node: Node, call: Call, request: Struct) -> Message:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    return {"groups": [await _describe(node, group_id, operations) for group_id in request.group_ids]}


async def _describe(node: Node, group_id: str, operations: int) -> Message:
    try:
        group = await node.groups.run(group_id, Coordinator.describe_consumer, group_id)
    except errors.KafkaError as error:
        group = DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=str(error))
    return {
        "error_code": group.error_code,
        "error_message": group.error_message,
        "group_id": group.group_id,
        "group_state": group.group_state,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor_name,
        "members": [_member(member) for member in group.members],
        "authorized_operations": NOT_ASKED if group.error_code else operations,
    }


def _member(member: DescribedConsumer) -> Message:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": _assignment(member.assignment),
        "target_assignment": _assignment(member.target_assignment),
        "member_type": member.member_type,
    }


def _assignment(topics: tuple[NamedPartitions, ...]) -> Message:
    return {"topic_partitions": [topic._asdict() for topic in topics]}
