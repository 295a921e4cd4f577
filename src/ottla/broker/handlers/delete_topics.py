"""DeleteTopics: up to v5 by name, from v6 by name or id."""

from __future__ import annotations

from ottla import errors
from ottla.broker.authorization import check, sees
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.broker.quotas import TopicChanges
from ottla.broker.topics import Charge, delete_topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need

API = ApiKey.DELETE_TOPICS
TO_CONTROLLER = True
DELETE = need("delete_topics", Operation.DELETE, ResourceType.TOPIC)
DESCRIBE = need("delete_topics", Operation.DESCRIBE, ResourceType.TOPIC)
SEE_NAME = need("delete_topics", Operation.DESCRIBE, ResourceType.TOPIC, Denied.HIDDEN)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    entries = [(name, None) for name in request.topic_names] or [(t.name, t.topic_id) for t in request.topics]
    changes = TopicChanges(node, call)
    responses = [await _delete(node, call, *entry, changes.charge) async for entry in with_pauses(entries)]
    return {"responses": responses, "throttle_time": changes.pause()}


async def _delete(node: Node, call: Call, name: str | None, topic_id: object, charge: Charge) -> Message:
    response: Message = {"name": name, "topic_id": topic_id}
    try:
        if name is not None and topic_id is not None:
            raise errors.InvalidRequest("Identify a topic by name or by id, not both.")
        if name is not None:
            check(node, call, DESCRIBE, name)
        topic = node.metadata.topic(name) if name is not None else node.topic_by_id(topic_id)  # type: ignore[arg-type]
        if sees(node, call, SEE_NAME, topic.name):
            response = {"name": topic.name, "topic_id": topic.topic_id}
        check(node, call, DELETE, topic.name)
        await delete_topic(node, topic.name, charge)
    except errors.KafkaError as error:
        return response | {"error_code": error.code, "error_message": str(error)}
    return response
