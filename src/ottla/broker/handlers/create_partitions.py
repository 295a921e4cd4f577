"""CreatePartitions: raise the number of partitions of topics."""

from __future__ import annotations

from ottla import errors
from ottla.broker.handlers.create_topics import check_replicas
from ottla.broker.node import Call, Node
from ottla.broker.topics import add_partitions
from ottla.broker.turns import in_turns, once
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.CREATE_PARTITIONS


async def handle(node: Node, call: Call, request: Struct) -> Message:
    results = []
    async for wish, twice in in_turns(once(request.topics, lambda topic: str(topic.name))):
        results.append(await _add(node, wish, twice, validate_only=request.validate_only))
    return {"results": results}


async def _add(node: Node, wish: Struct, twice: bool, *, validate_only: bool) -> Message:
    try:
        if twice:
            raise errors.InvalidRequest(f"The topic '{wish.name}' is named more than once.")
        _check_assignments(node, wish)
        await add_partitions(node, wish.name, wish.count, validate_only=validate_only)
    except errors.KafkaError as error:
        return {"name": wish.name, "error_code": error.code, "error_message": str(error)}
    return {"name": wish.name}


def _check_assignments(node: Node, wish: Struct) -> None:
    if wish.assignments is None:
        return
    added = wish.count - node.metadata.topic(wish.name).partitions
    if len(wish.assignments) != added:
        raise errors.InvalidReplicaAssignment(
            f"{added} partitions are to be added, and {len(wish.assignments)} are assigned."
        )
    for assignment in wish.assignments:
        check_replicas(node, assignment.broker_ids)
