"""JoinGroup: v1 brought the rebalance timeout; v4 gives a new member its id first; v5 static members; v7 lets the
protocol be
null; v8 brings the reason (KIP-800); v9 lets a leader skip the assignment."""

from __future__ import annotations

from functools import partial

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import JoinRequest, JoinResponse, MemberProtocol
from ottla.net.server.connection import Later
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.JOIN_GROUP


def handle(node: Node, call: Call, request: Struct) -> Message | Later:
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
    told = partial(_told, call.api_version, request.member_id)
    return node.groups.ask(wish.group_id, Coordinator.join, wish, told)


def _told(version: int, member_id: str, answer: JoinResponse | errors.KafkaError) -> Message:
    if isinstance(answer, errors.KafkaError):
        answer = JoinResponse(error_code=answer.code, member_id=member_id)
    name = answer.protocol_name
    return {
        "error_code": answer.error_code,
        "generation_id": answer.generation_id,
        "protocol_type": answer.protocol_type,
        "protocol_name": "" if name is None and version < 7 else name,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [member._asdict() for member in answer.members],
    }
