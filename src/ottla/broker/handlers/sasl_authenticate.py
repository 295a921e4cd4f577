"""SaslAuthenticate from a client that is known already, or on a listener without SASL: an error, as in Kafka."""

from __future__ import annotations

from ottla.broker.node import Call, Node
from ottla.errors import IllegalSaslState
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.SASL_AUTHENTICATE


def handle(node: Node, call: Call, request: Struct) -> Message:
    text = "SaslAuthenticate request received after successful authentication, or without SaslHandshake."
    return {"error_code": IllegalSaslState.code, "error_message": text, "auth_bytes": b""}
