"""DescribeDelegationToken: there are no tokens, see `delegation_tokens`."""

from __future__ import annotations

from ottla.broker.delegation_tokens import may_ask
from ottla.broker.node import Call, Node
from ottla.errors import DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.DESCRIBE_DELEGATION_TOKEN


def handle(node: Node, call: Call, request: Struct) -> Message:
    error = DelegationTokenAuthDisabled if may_ask(node, call) else DelegationTokenRequestNotAllowed
    return {"error_code": error.code, "tokens": []}
