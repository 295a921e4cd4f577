"""SaslHandshake from a client that is known already, or on a listener without SASL: an error, as in Kafka.

Clients that must authenticate are served by `broker/authentication/`.
"""

from __future__ import annotations

from ottla.broker.node import Call, Node
from ottla.errors import IllegalSaslState
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.SASL_HANDSHAKE


def handle(node: Node, call: Call, request: Struct) -> Message:
    return {"error_code": IllegalSaslState.code, "mechanisms": []}
