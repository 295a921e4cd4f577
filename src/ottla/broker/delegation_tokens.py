"""Delegation tokens are disabled, as in Kafka without delegation.token.secret.key: their APIs check and say so."""

from __future__ import annotations

from ottla.broker.node import Call, Node
from ottla.errors import DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed
from ottla.protocol.codec import Message
from ottla.security.principals import ANONYMOUS

#: The time in a response to a client that may not ask.
NO_TIME = -1


def may_ask(node: Node, call: Call) -> bool:
    """Whether the client has authenticated on its connection, by SASL or with a certificate."""
    protocol = node.config.listener(call.connection.listener).protocol
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and call.principal == ANONYMOUS)


def not_changed(node: Node, call: Call) -> Message:
    """Return the response to a request to renew or expire a token."""
    if not may_ask(node, call):
        return {"error_code": DelegationTokenRequestNotAllowed.code, "expiry_timestamp": NO_TIME}
    return {"error_code": DelegationTokenAuthDisabled.code, "expiry_timestamp": 0}
