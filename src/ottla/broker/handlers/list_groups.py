"""ListGroups: v4 filters by state, v5 by type. Both filters ignore case."""

from __future__ import annotations

from ottla import errors
from ottla.broker.authorization import sees
from ottla.broker.groups import group_error
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need

API = ApiKey.LIST_GROUPS
SEE = need("list_groups", Operation.DESCRIBE, ResourceType.GROUP, Denied.HIDDEN)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    filters = set(map(str.lower, request.states_filter)), set(map(str.lower, request.types_filter))
    try:
        shards = list(node.groups.shards.readable())
        found = [each for shard in shards for each in await shard.runner.run(shard.coordinator.list_groups, *filters)]
    except errors.KafkaError as error:
        return {"error_code": group_error(error).code, "groups": []}
    return {
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.type.lower(),
            }
            for group in found
            if sees(node, call, SEE, group.group_id)
        ]
    }
