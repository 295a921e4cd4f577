"""FindCoordinator: the coordinator of a group or a transactional id. v1 adds key types; v4 takes several keys.

The coordinator is the leader of the partition that has the key. The first request creates `__consumer_offsets` or
`__transaction_state`.
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.authorization import check
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Address, Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need

API = ApiKey.FIND_COORDINATOR
GROUP, TRANSACTION = 0, 1
DESCRIBE_GROUP = need("find_coordinator", Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_TRANSACTIONAL_ID = need("find_coordinator", Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if node.cluster is not None:
        await node.cluster.until_led()  # The client has often just lost a coordinator.
    if call.api_version < 4:
        return await _find(node, call, request.key_type, request.key)
    keys = with_pauses(dict.fromkeys(request.coordinator_keys))
    return {"coordinators": [{"key": key, **await _find(node, call, request.key_type, key)} async for key in keys]}


async def _find(node: Node, call: Call, key_type: int, key: str) -> Message:
    try:
        if key_type == GROUP:
            check(node, call, DESCRIBE_GROUP, key)
            coordinator_id = await node.groups.shards.coordinator_id(key)
        elif key_type == TRANSACTION:
            check(node, call, DESCRIBE_TRANSACTIONAL_ID, key)
            coordinator_id = await node.transactions.shards.coordinator_id(key)
        else:
            raise errors.InvalidRequest(
                f"The coordinator type {key_type} is unknown. Use 0 for groups or 1 for transactions."
            )
        broker = _broker(node, call, coordinator_id)
    except errors.KafkaError as error:
        return {"error_code": error.code, "error_message": str(error), "node_id": -1, "host": "", "port": -1}
    message = "NONE" if call.api_version < 4 else ""
    return {"error_message": message, "node_id": coordinator_id, "host": broker.host, "port": broker.port}


def _broker(node: Node, call: Call, broker_id: int) -> Address:
    for broker in node.brokers(call.connection):
        if broker.broker_id == broker_id:
            return broker
    raise errors.CoordinatorNotAvailable("The coordinator is being elected. Try again.")
