"""RenewDelegationToken: there are no tokens, see `delegation_tokens`."""

from __future__ import annotations

from ottla.broker.delegation_tokens import not_changed
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.RENEW_DELEGATION_TOKEN


def handle(node: Node, call: Call, request: Struct) -> Message:
    return not_changed(node, call)
