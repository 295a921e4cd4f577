"""AlterClientQuotas: set and remove quotas of users, client ids and addresses. Each entity succeeds or fails alone."""

from __future__ import annotations

from functools import partial

from ottla import errors
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.machine import Outcome
from ottla.metadata import MetadataRecord
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.quotas import Entity, describe, entity
from ottla.types import Millis

API = ApiKey.ALTER_CLIENT_QUOTAS
TO_CONTROLLER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    seen: set[Entity] = set()
    entries = with_pauses(request.entries)
    return {"entries": [await _alter(node, each, seen, request.validate_only) async for each in entries]}


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer each entity with the same error."""
    told = {"error_code": error.code, "error_message": str(error)}
    return {"entries": [_response(each) | told for each in request.entries]}


def _response(entry: Struct) -> Message:
    return {
        "entity": [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity],
        "error_message": None,
    }


async def _alter(node: Node, entry: Struct, seen: set[Entity], validate_only: bool) -> Message:
    response = _response(entry)
    changes = [(op.key, None if op.remove else op.value) for op in entry.ops]
    try:
        whom = entity((each.entity_type, each.entity_name) for each in entry.entity)
        if whom in seen:
            raise errors.InvalidRequest(f"Ignoring duplicate entity {describe(whom)}. Name each entity once.")
        seen.add(whom)
        decide = partial(_decide, node, whom, changes)
        decide(now=node.clock.now())
        if not validate_only:
            await node.changes.run(node.controller.run(decide))
    except errors.KafkaError as error:
        response |= {"error_code": error.code, "error_message": str(error)}
    return response


def _decide(
    node: Node, whom: Entity, changes: list[tuple[str, float | None]], *, now: Millis
) -> Outcome[MetadataRecord, None]:
    return node.metadata.client_quotas.alter(whom, changes, now=now)
