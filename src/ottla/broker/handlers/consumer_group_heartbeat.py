"""ConsumerGroupHeartbeat (KIP-848): a member joins, lives, reconciles and leaves by this one API.

v1 brings patterns, and ids that members make themselves.
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.consumer_messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.records import TopicPartitions
from ottla.net.connection import Later
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.CONSUMER_GROUP_HEARTBEAT


def handle(node: Node, call: Call, request: Struct) -> Message | Later:
    wish = ConsumerHeartbeatRequest(  # By position: by names it takes much longer, and members ask all the time.
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
    return node.groups.ask(wish.group_id, Coordinator.consumer_heartbeat, wish, _told)


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
