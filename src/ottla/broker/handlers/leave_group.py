"""LeaveGroup: up to v2 one member, from v3 several by id or instance id; v5 adds the reason (KIP-800)."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import LeaveRequest, LeavingMember
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.LEAVE_GROUP


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if call.api_version < 3:
        members: tuple[LeavingMember, ...] = (LeavingMember(request.member_id),)
    else:
        members = tuple(
            LeavingMember(member.member_id, member.group_instance_id, member.reason or "") for member in request.members
        )
    leave_request = LeaveRequest(group_id=request.group_id, members=members)
    try:
        response = await node.groups.run(leave_request.group_id, Coordinator.leave, leave_request)
    except errors.KafkaError as error:
        return {"error_code": error.code, "members": []}
    code = response.error_code
    if call.api_version < 3 and not code and response.members:
        code = response.members[0].error_code
    return {"error_code": code, "members": [member._asdict() for member in response.members]}
