"""IncrementalAlterConfigs: set, delete, append to or subtract from individual configs."""

from __future__ import annotations

from ottla.broker.configs import Change, alter_each
from ottla.broker.node import Call, Node
from ottla.config import Alteration, alter_broker, alter_group, alter_topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.INCREMENTAL_ALTER_CONFIGS


async def handle(node: Node, call: Call, request: Struct) -> Message:
    return {"responses": await alter_each(node, request, _alterations)}


def _alterations(resource: Struct) -> Change:
    changes = [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]
    return Change(
        topic=lambda broker, overrides: alter_topic(broker, overrides, changes),
        group=lambda broker, overrides: alter_group(broker, overrides, changes),
        broker=lambda broker, for_all: alter_broker(broker, changes, for_all_brokers=for_all),
    )
