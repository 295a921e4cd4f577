"""JoinGroup: v1 brought the rebalance timeout; v4 gives a new member its id first; v5 static members; v7 lets the
protocol be
null; v8 brings the reason (KIP-800); v9 lets a leader skip the assignment."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.messages import JoinRequest, JoinResponse, MemberProtocol
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.JOIN_GROUP


async def handle(node: Node, call: Call, request: Struct) -> Message:
    wish = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        client_host=f"/{call.connection.client_host}",
        session_timeout=request.session_timeout,
        rebalance_timeout=request.rebalance_timeout if call.api_version >= 1 else request.session_timeout,
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(protocol.name, protocol.metadata) for protocol in request.protocols),
        reason=request.reason or "",
        requires_known_member_id=call.api_version >= 4,
        supports_skipping_assignment=call.api_version >= 9,
    )
    try:
        answer = await node.groups.run(wish.group_id, lambda group: group.join, wish)
    except errors.KafkaError as error:
        answer = JoinResponse(error_code=error.code, member_id=request.member_id)
    return _message(call, answer)


def _message(call: Call, answer: JoinResponse) -> Message:
    name = answer.protocol_name
    return {
        "error_code": answer.error_code,
        "generation_id": answer.generation_id,
        "protocol_type": answer.protocol_type,
        "protocol_name": "" if name is None and call.api_version < 7 else name,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [member._asdict() for member in answer.members],
    }
