"""DescribeGroups: classic groups and their members. v6 adds GROUP_ID_NOT_FOUND."""

from __future__ import annotations

from ottla import errors
from ottla.broker.authorization import NOT_ASKED, authorized_operations, check
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import DescribedGroup, DescribedMember
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need

API = ApiKey.DESCRIBE_GROUPS
DESCRIBE = need("describe_groups", Operation.DESCRIBE, ResourceType.GROUP)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    groups = [await _describe(node, call, group_id) async for group_id in with_pauses(request.groups)]
    return {"groups": with_operations(node, call, request, groups)}


def with_operations(node: Node, call: Call, request: Struct, groups: list[Message]) -> list[Message]:
    """Add what the client may do with each group, if it asked for that."""
    for group in groups:
        group["authorized_operations"] = NOT_ASKED
        if request.include_authorized_operations and not group["error_code"]:
            group["authorized_operations"] = authorized_operations(node, call, ResourceType.GROUP, group["group_id"])
    return groups


async def _describe(node: Node, call: Call, group_id: str) -> Message:
    try:
        check(node, call, DESCRIBE, group_id)
        group = await node.groups.run(group_id, Coordinator.describe, group_id)
    except errors.KafkaError as error:
        group = DescribedGroup(group_id=group_id, error_code=error.code, error_message=str(error))
    # Before v6 a missing group is reported as dead, without an error.
    is_missing = group.error_code == errors.GroupIdNotFound.code
    code = 0 if is_missing and call.api_version < 6 else group.error_code
    return {
        "error_code": code,
        "error_message": group.error_message,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name,
        "members": [_member(member) for member in group.members],
    }


def _member(member: DescribedMember) -> Message:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }
