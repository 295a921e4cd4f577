"""DeleteTopics: up to v5 by name, from v6 by name or id."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.broker.topics import delete_topic
from ottla.broker.turns import in_turns
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.DELETE_TOPICS


async def handle(node: Node, call: Call, request: Struct) -> Message:
    wishes = [(name, None) for name in request.topic_names] or [(t.name, t.topic_id) for t in request.topics]
    return {"responses": [await _delete(node, name, topic_id) async for name, topic_id in in_turns(wishes)]}


async def _delete(node: Node, name: str | None, topic_id: object) -> Message:
    answer: Message = {"name": name, "topic_id": topic_id}
    try:
        if name is not None and topic_id is not None:
            raise errors.InvalidRequest("Name a topic by its name or by its id, not both.")
        topic = node.metadata.topic(name) if name is not None else node.topic_by_id(topic_id)  # type: ignore[arg-type]
        answer = {"name": topic.name, "topic_id": topic.topic_id}
        await delete_topic(node, topic.name)
    except errors.KafkaError as error:
        return answer | {"error_code": error.code, "error_message": str(error)}
    return answer
