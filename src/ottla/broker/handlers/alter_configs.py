"""AlterConfigs: replace all configs of a resource. Current clients use IncrementalAlterConfigs instead."""

from __future__ import annotations

from ottla.broker.configs import Change, alter_each
from ottla.broker.node import Call, Node
from ottla.config import replace_broker, replace_group, replace_topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.ALTER_CONFIGS


async def handle(node: Node, call: Call, request: Struct) -> Message:
    return {"responses": await alter_each(node, request, _replacement)}


def _replacement(resource: Struct) -> Change:
    values = {config.name: config.value for config in resource.configs}
    return Change(
        topic=lambda broker, overrides: replace_topic(broker, values),
        group=lambda broker, overrides: replace_group(broker, values),
        broker=lambda broker, for_all: replace_broker(broker, values, for_all_brokers=for_all),
    )
