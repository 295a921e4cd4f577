"""FindCoordinator: the coordinator of a group or a transactional id. v1 adds key types; v4 takes several keys.

The only broker is always the coordinator. The first request creates `__consumer_offsets` or `__transaction_state`.
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.FIND_COORDINATOR
GROUP, TRANSACTION = 0, 1


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if call.api_version < 4:
        return await _find(node, call, request.key_type, request.key)
    keys = dict.fromkeys(request.coordinator_keys)
    return {"coordinators": [{"key": key, **await _find(node, call, request.key_type, key)} for key in keys]}


async def _find(node: Node, call: Call, key_type: int, key: str) -> Message:
    try:
        if key_type == GROUP:
            await node.groups.shards.ready()
        elif key_type == TRANSACTION:
            await node.transactions.shards.ready()
        else:
            raise errors.InvalidRequest(
                f"The coordinator type {key_type} is unknown. Use 0 for groups or 1 for transactions."
            )
    except errors.KafkaError as error:
        return {"error_code": error.code, "error_message": str(error), "node_id": -1, "host": "", "port": -1}
    host, port = node.address(call.connection)
    message = "NONE" if call.api_version < 4 else ""
    return {"error_message": message, "node_id": node.id, "host": host, "port": port}
