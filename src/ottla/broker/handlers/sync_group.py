"""SyncGroup: v3 adds static members; v5 the protocol, which must be the one that the group chose."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import MemberAssignment, SyncRequest, SyncResponse
from ottla.net.server.connection import Later
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.SYNC_GROUP


def handle(node: Node, call: Call, request: Struct) -> Message | Later:
    if call.api_version >= 5 and None in (request.protocol_type, request.protocol_name):
        return {"error_code": errors.InconsistentGroupProtocol.code, "assignment": b""}
    sync_request = SyncRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple(MemberAssignment(each.member_id, each.assignment) for each in request.assignments),
    )
    return node.groups.ask(sync_request.group_id, Coordinator.sync, sync_request, _message)


def _message(response: SyncResponse | errors.KafkaError) -> Message:
    if isinstance(response, errors.KafkaError):
        return {"error_code": response.code, "assignment": b""}
    return response._asdict()
