"""AlterConfigs: replace all configs of a resource. Current clients use IncrementalAlterConfigs instead."""

from __future__ import annotations

from ottla.broker.configs import alter_each
from ottla.broker.node import Call, Node
from ottla.config import Change
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.ALTER_CONFIGS
TO_CONTROLLER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    return {"responses": await alter_each(node, request, _replacement)}


def _replacement(resource: Struct) -> Change:
    return {config.name: config.value for config in resource.configs}
