"""AlterConfigs: replace all configs of a resource. Current clients use IncrementalAlterConfigs instead."""

from __future__ import annotations

from ottla.broker.configs import alter_each, config_needs
from ottla.broker.node import Call, Node
from ottla.config import Change
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation

API = ApiKey.ALTER_CONFIGS
TO_CONTROLLER = True
NEEDS = config_needs("alter_configs", Operation.ALTER_CONFIGS)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    return {"responses": await alter_each(node, call, NEEDS, request, _replacement)}


def _replacement(resource: Struct) -> Change:
    return {config.name: config.value for config in resource.configs}
