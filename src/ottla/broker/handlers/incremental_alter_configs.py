"""IncrementalAlterConfigs: set, delete, append to or subtract from individual configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.broker.configs import alter
from ottla.broker.handlers.alter_configs import change_each
from ottla.broker.node import Call, Node
from ottla.config import Alteration, BrokerConfig, alter_broker, alter_group, alter_topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.INCREMENTAL_ALTER_CONFIGS


class Alterations(NamedTuple):
    """Changes to individual settings of a resource."""

    each: Sequence[Alteration]

    def topic(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, str]:
        return alter_topic(broker, overrides, self.each)

    def group(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, str]:
        return alter_group(broker, overrides, self.each)

    def broker(self, broker: BrokerConfig, *, for_all_brokers: bool) -> dict[str, str]:
        return alter_broker(broker, self.each, for_all_brokers=for_all_brokers)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    async def change(resource: Struct) -> None:
        changes = Alterations([Alteration(c.name, c.config_operation, c.value) for c in resource.configs])
        await alter(node, resource.resource_type, resource.resource_name, changes, validate_only=request.validate_only)

    return {"responses": await change_each(request, change)}
