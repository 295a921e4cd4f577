"""DeleteGroups: delete groups without members, with their committed offsets."""

from __future__ import annotations

from ottla import errors
from ottla.broker.authorization import check
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need

API = ApiKey.DELETE_GROUPS
DELETE = need("delete_groups", Operation.DELETE, ResourceType.GROUP)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    groups = with_pauses(dict.fromkeys(request.groups_names))
    return {"results": [await _delete(node, call, group_id) async for group_id in groups]}


async def _delete(node: Node, call: Call, group_id: str) -> Message:
    try:
        check(node, call, DELETE, group_id)
        results = await node.groups.run(group_id, Coordinator.delete_groups, (group_id,))
    except errors.KafkaError as error:
        return {"group_id": group_id, "error_code": error.code}
    return {"group_id": group_id, "error_code": results[0].error_code}
