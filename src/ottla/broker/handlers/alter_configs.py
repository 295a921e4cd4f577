"""AlterConfigs: replace all configs of a resource. Current clients use IncrementalAlterConfigs instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from ottla import errors
from ottla.broker.configs import alter
from ottla.broker.large_requests import unique, with_pauses
from ottla.broker.node import Call, Node
from ottla.config import BrokerConfig, replace_broker, replace_group, replace_topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.ALTER_CONFIGS


class Replacement(NamedTuple):
    """Replace all settings of a resource."""

    values: Mapping[str, str | None]

    def topic(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, str]:
        return replace_topic(broker, self.values)

    def group(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, str]:
        return replace_group(broker, self.values)

    def broker(self, broker: BrokerConfig, *, for_all_brokers: bool) -> dict[str, str]:
        return replace_broker(broker, self.values, for_all_brokers=for_all_brokers)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    async def replace(resource: Struct) -> None:
        change = Replacement({config.name: config.value for config in resource.configs})
        await alter(node, resource.resource_type, resource.resource_name, change, validate_only=request.validate_only)

    return {"responses": await change_each(request, replace)}


async def change_each(request: Struct, change: Callable[[Struct], Awaitable[None]]) -> list[Message]:
    """Change each resource and return a response for each. A resource that is named twice is rejected."""
    responses = []
    async for resource, twice in with_pauses(unique(request.resources, lambda r: (r.resource_type, r.resource_name))):
        response: Message = {
            "error_message": None,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
        }
        try:
            if twice:
                raise errors.InvalidRequest("The request names this resource more than once. Name each resource once.")
            await change(resource)
        except errors.KafkaError as error:
            response |= {"error_code": error.code, "error_message": str(error)}
        responses.append(response)
    return responses
