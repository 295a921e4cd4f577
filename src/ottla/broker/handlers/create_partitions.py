"""CreatePartitions: add partitions to topics."""

from __future__ import annotations

from ottla import errors
from ottla.broker.authorization import check
from ottla.broker.large_requests import unique, with_pauses
from ottla.broker.node import Call, Node
from ottla.broker.quotas import TopicChanges
from ottla.broker.topics import Charge, add_partitions
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need

API = ApiKey.CREATE_PARTITIONS
TO_CONTROLLER = True
ALTER = need("create_partitions", Operation.ALTER, ResourceType.TOPIC)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    entries = with_pauses(unique(request.topics, lambda topic: str(topic.name)))
    changes = TopicChanges(node, call)
    results = [await _add(node, call, *entry, changes.charge, request.validate_only) async for entry in entries]
    return {"results": results, "throttle_time": changes.pause()}


async def _add(node: Node, call: Call, entry: Struct, twice: bool, charge: Charge, validate_only: bool) -> Message:
    try:
        if twice:
            raise errors.InvalidRequest(
                f"The topic '{entry.name}' is in the request more than once. Name each topic once."
            )
        check(node, call, ALTER, entry.name)
        assignments = _assignments(node, entry)
        await add_partitions(
            node, entry.name, entry.count, assignments=assignments, validate_only=validate_only, charge=charge
        )
    except errors.KafkaError as error:
        return {"name": entry.name, "error_code": error.code, "error_message": str(error)}
    return {"name": entry.name}


def _assignments(node: Node, entry: Struct) -> list[tuple[int, ...]] | None:
    """Return the brokers of each new partition if the client chooses them."""
    if entry.assignments is None:
        return None
    added = entry.count - node.metadata.topic(entry.name).partitions
    if len(entry.assignments) != added:
        raise errors.InvalidReplicaAssignment(
            f"The request adds {added} partitions but assigns {len(entry.assignments)}. Assign each new partition."
        )
    return [assignment.broker_ids for assignment in entry.assignments]
