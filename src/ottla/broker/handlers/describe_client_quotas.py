"""DescribeClientQuotas: the quotas of users, client ids and addresses."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.quotas import Filter

API = ApiKey.DESCRIBE_CLIENT_QUOTAS


def handle(node: Node, call: Call, request: Struct) -> Message:
    components = ((each.entity_type, each.match_type, each.match) for each in request.components)
    try:
        wanted = Filter.of(components, strict=request.strict)
    except errors.KafkaError as error:
        return {"error_code": error.code, "error_message": str(error), "entries": None}
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in whom],
            "values": [{"key": key, "value": value} for key, value in values.items()],
        }
        for whom, values in node.metadata.client_quotas.matching(wanted)
    ]
    return {"error_message": None, "entries": entries}
