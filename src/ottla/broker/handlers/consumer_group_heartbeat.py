"""ConsumerGroupHeartbeat (KIP-848): a member joins, lives, reconciles and leaves by this one API.

v1 brings patterns, and ids that members make themselves.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla import errors
from ottla.broker.groups import group_error
from ottla.broker.node import Call, Node
from ottla.coordinator.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.records import TopicPartitions
from ottla.net.server.connection import Later
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Buffer, Message, Struct

API = ApiKey.CONSUMER_GROUP_HEARTBEAT
#: Makes a tuple of a class in half the time that the class takes.
_new: Any = tuple.__new__


def handle(node: Node, call: Call, request: Struct) -> Message | Buffer | Later:
    wish = _wish(call, request)
    if wish.member_epoch > 0 and (answer := _followed(node, call, wish)) is not None:
        return answer
    return node.groups.ask(wish.group_id, Coordinator.consumer_heartbeat, wish, _told)


def _followed(node: Node, call: Call, wish: ConsumerHeartbeatRequest) -> Buffer | None:
    """Take an ordinary heartbeat, to be written together with others, and return its provisional response."""
    frame = Buffer()
    response = node.groups.follow(wish, partial(_refuse, call, frame))
    if response is None:
        return None
    frame += codec.encode_response(API, call.api_version, call.correlation_id, _told(response))
    return frame


def _refuse(call: Call, frame: Buffer, error: Exception) -> None:
    """Put an error into the frame of a provisional response."""
    frame[:] = codec.encode_response(API, call.api_version, call.correlation_id, _told(group_error(error)))


def _wish(call: Call, request: Struct) -> ConsumerHeartbeatRequest:
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
    )
    wish: ConsumerHeartbeatRequest = _new(ConsumerHeartbeatRequest, values)
    return wish


def _told(answer: ConsumerHeartbeatResponse | errors.KafkaError) -> Message:
    if isinstance(answer, errors.KafkaError):
        answer = ConsumerHeartbeatResponse(error_code=answer.code, error_message=str(answer))
    return {
        "error_code": answer.error_code,
        "error_message": answer.error_message,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": answer.heartbeat_interval,
        "assignment": None if answer.assignment is None else _assignment(answer.assignment),
    }


def _owned(request: Struct) -> tuple[TopicPartitions, ...]:
    return tuple([TopicPartitions(topic.topic_id, tuple(topic.partitions)) for topic in request.topic_partitions])


def _assignment(assignment: tuple[TopicPartitions, ...]) -> Message:
    topics = [{"topic_id": topic.topic_id, "partitions": topic.partitions} for topic in assignment]
    return {"topic_partitions": topics}
