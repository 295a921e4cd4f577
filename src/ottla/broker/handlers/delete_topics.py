"""DeleteTopics: up to v5 by name, from v6 by name or id."""

from __future__ import annotations

from ottla import errors
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.broker.quotas import TopicChanges
from ottla.broker.topics import Charge, delete_topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.DELETE_TOPICS
TO_CONTROLLER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    entries = [(name, None) for name in request.topic_names] or [(t.name, t.topic_id) for t in request.topics]
    changes = TopicChanges(node, call)
    responses = [await _delete(node, *entry, changes.charge) async for entry in with_pauses(entries)]
    return {"responses": responses, "throttle_time": changes.pause()}


async def _delete(node: Node, name: str | None, topic_id: object, charge: Charge) -> Message:
    response: Message = {"name": name, "topic_id": topic_id}
    try:
        if name is not None and topic_id is not None:
            raise errors.InvalidRequest("Identify a topic by name or by id, not both.")
        topic = node.metadata.topic(name) if name is not None else node.topic_by_id(topic_id)  # type: ignore[arg-type]
        response = {"name": topic.name, "topic_id": topic.topic_id}
        await delete_topic(node, topic.name, charge)
    except errors.KafkaError as error:
        return response | {"error_code": error.code, "error_message": str(error)}
    return response
