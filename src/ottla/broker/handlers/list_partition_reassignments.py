"""ListPartitionReassignments: always empty, because there is only one broker."""

from __future__ import annotations

from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.LIST_PARTITION_REASSIGNMENTS


def handle(node: Node, call: Call, request: Struct) -> Message:
    return {"error_message": None, "topics": []}
