"""ListConfigResources: the resources that have configs. v0 lists only client metrics, of which there are none."""

from __future__ import annotations

from ottla import errors
from ottla.broker.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.LIST_CONFIG_RESOURCES


def handle(node: Node, call: Call, request: Struct) -> Message:
    brokers = [str(id_) for id_ in sorted({node.id, *node.metadata.brokers})]
    names = {
        GROUP: sorted(node.metadata.group_configs),
        CLIENT_METRICS: [],
        BROKER_LOGGER: brokers,
        BROKER: brokers,
        TOPIC: sorted(node.metadata.topics),
    }
    wanted = set(request.resource_types or names) if call.api_version >= 1 else {CLIENT_METRICS}
    if not wanted <= names.keys():
        return {"error_code": errors.UnsupportedVersion.code, "config_resources": []}
    found = [
        {"resource_name": name, "resource_type": type_} for type_ in names if type_ in wanted for name in names[type_]
    ]
    return {"error_code": 0, "config_resources": found}
