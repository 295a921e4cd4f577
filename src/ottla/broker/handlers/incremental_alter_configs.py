"""IncrementalAlterConfigs: set, delete, append to and subtract from single configs."""

from __future__ import annotations

from ottla.broker.configs import alter
from ottla.broker.handlers.alter_configs import answer_each
from ottla.broker.node import Call, Node
from ottla.config import Alteration
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.INCREMENTAL_ALTER_CONFIGS


async def handle(node: Node, call: Call, request: Struct) -> Message:
    async def change(resource: Struct) -> None:
        changes = [Alteration(c.name, c.config_operation, c.value) for c in resource.configs]
        await alter(node, resource.resource_type, resource.resource_name, changes, validate_only=request.validate_only)

    return {"responses": await answer_each(request, change)}
