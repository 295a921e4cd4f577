"""AlterConfigs: replace all configs of a resource. Clients of today use IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla import errors
from ottla.broker.configs import alter
from ottla.broker.node import Call, Node
from ottla.broker.turns import in_turns, once
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.ALTER_CONFIGS


async def handle(node: Node, call: Call, request: Struct) -> Message:
    async def replace(resource: Struct) -> None:
        change = {config.name: config.value for config in resource.configs}
        await alter(node, resource.resource_type, resource.resource_name, change, validate_only=request.validate_only)

    return {"responses": await answer_each(request, replace)}


async def answer_each(request: Struct, change: Callable[[Struct], Awaitable[None]]) -> list[Message]:
    """Change each resource of a request and tell how it went; a resource that is named twice is refused."""
    answers = []
    async for resource, twice in in_turns(once(request.resources, lambda r: (r.resource_type, r.resource_name))):
        answer: Message = {
            "error_message": None,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
        }
        try:
            if twice:
                raise errors.InvalidRequest("The resource is named more than once.")
            await change(resource)
        except errors.KafkaError as error:
            answer |= {"error_code": error.code, "error_message": str(error)}
        answers.append(answer)
    return answers
