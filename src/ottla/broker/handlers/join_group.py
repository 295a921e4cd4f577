"""JoinGroup: join a classic group.

v1 adds the rebalance timeout; v4 gives a new member its id first; v5 adds static members; v7 allows a null protocol;
v8 adds the reason (KIP-800); v9 lets a leader skip the assignment.
"""

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
    join_request = JoinRequest(
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
    message = partial(_message, call.api_version, request.member_id)
    return node.groups.ask(join_request.group_id, Coordinator.join, join_request, message)


def _message(version: int, member_id: str, response: JoinResponse | errors.KafkaError) -> Message:
    if isinstance(response, errors.KafkaError):
        response = JoinResponse(error_code=response.code, member_id=member_id)
    name = response.protocol_name
    return response._asdict() | {
        "protocol_name": "" if name is None and version < 7 else name,
        "members": [member._asdict() for member in response.members],
    }
