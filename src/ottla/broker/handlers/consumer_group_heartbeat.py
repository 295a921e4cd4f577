"""ConsumerGroupHeartbeat (KIP-848): members join, stay alive, reconcile and leave with this one API.

v1 adds patterns and member ids that clients generate.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla import errors
from ottla.broker.authorization import viewer
from ottla.broker.groups import group_error
from ottla.broker.node import Call, Node
from ottla.coordinator.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.records import TopicPartitions
from ottla.net.server.connection import Later
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Buffer, Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need

API = ApiKey.CONSUMER_GROUP_HEARTBEAT
SEE_TOPIC = need("consumer_group_heartbeat", Operation.DESCRIBE, ResourceType.TOPIC, Denied.HIDDEN)
#: Creates a named tuple in half the time of a call to its class.
_new: Any = tuple.__new__


def handle(node: Node, call: Call, request: Struct) -> Message | Buffer | Later:
    heartbeat = _heartbeat_request(node, call, request)
    if heartbeat.member_epoch > 0 and (frame := _followed(node, call, heartbeat)) is not None:
        return frame
    return node.groups.ask(heartbeat.group_id, Coordinator.consumer_heartbeat, heartbeat, _message)


def _followed(node: Node, call: Call, heartbeat: ConsumerHeartbeatRequest) -> Buffer | None:
    """Take an ordinary heartbeat, to be written together with others, and return its provisional response."""
    frame = Buffer()
    response = node.groups.follow(heartbeat, partial(_fail, call, frame))
    if response is None:
        return None
    frame += codec.encode_response(API, call.api_version, call.correlation_id, _message(response))
    return frame


def _fail(call: Call, frame: Buffer, error: Exception) -> None:
    """Put an error into the frame of a provisional response."""
    frame[:] = codec.encode_response(API, call.api_version, call.correlation_id, _message(group_error(error)))


def _heartbeat_request(node: Node, call: Call, request: Struct) -> ConsumerHeartbeatRequest:
    values = (
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout,
        None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if request.topic_partitions is None else _owned(request),
        call.client_id or "",
        f"/{call.connection.client_host}",
        call.api_version >= 1,
        viewer(node, call, SEE_TOPIC),
    )
    heartbeat: ConsumerHeartbeatRequest = _new(ConsumerHeartbeatRequest, values)
    return heartbeat


def _message(response: ConsumerHeartbeatResponse | errors.KafkaError) -> Message:
    if isinstance(response, errors.KafkaError):
        response = ConsumerHeartbeatResponse(error_code=response.code, error_message=str(response))
    return {
        "error_code": response.error_code,
        "error_message": response.error_message,
        "member_id": response.member_id,
        "member_epoch": response.member_epoch,
        "heartbeat_interval": response.heartbeat_interval,
        "assignment": None if response.assignment is None else _assignment(response.assignment),
    }


def _owned(request: Struct) -> tuple[TopicPartitions, ...]:
    return tuple([TopicPartitions(topic.topic_id, tuple(topic.partitions)) for topic in request.topic_partitions])


def _assignment(assignment: tuple[TopicPartitions, ...]) -> Message:
    topics = [{"topic_id": topic.topic_id, "partitions": topic.partitions} for topic in assignment]
    return {"topic_partitions": topics}
