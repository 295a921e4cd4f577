"""IncrementalAlterConfigs: set, delete, append to or subtract from individual configs."""

from __future__ import annotations

from ottla.broker.configs import BROKER_LOGGER, alter_each, config_needs
from ottla.broker.node import Call, Node
from ottla.config import Alteration, Change
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
TO_CONTROLLER = True
NEEDS = config_needs("incremental_alter_configs", Operation.ALTER_CONFIGS)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    return {"responses": await alter_each(node, call, NEEDS, request, _alterations)}


def stays(request: Struct) -> bool:
    """Whether the request is for this broker even if another is the controller: its loggers are here."""
    return all(resource.resource_type == BROKER_LOGGER for resource in request.resources)


def _alterations(resource: Struct) -> Change:
    return [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]
