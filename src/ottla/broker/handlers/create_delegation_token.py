"""CreateDelegationToken: nobody gets a token, see `delegation_tokens`."""

from __future__ import annotations

from ottla.broker.authorization import refusal
from ottla.broker.delegation_tokens import NO_TIME, may_ask
from ottla.broker.node import Call, Node
from ottla.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    KafkaError,
)
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need
from ottla.security.principals import Principal

API = ApiKey.CREATE_DELEGATION_TOKEN
#: A token for oneself needs no permission, and a connection without a login comes first.
CHECKS_REQUEST = True
_FOR_ANOTHER = need("create_delegation_token", Operation.CREATE_TOKENS, ResourceType.USER, Denied.REQUEST)


def handle(node: Node, call: Call, request: Struct) -> Message:
    owner = call.principal
    if call.api_version >= 3 and request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    error = _error(node, call, request, owner)
    time = 0 if error is DelegationTokenAuthDisabled else NO_TIME
    return {
        "error_code": error.code,
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": call.principal.type,
        "token_requester_principal_name": call.principal.name,
        "issue_timestamp": time,
        "expiry_timestamp": time,
        "max_timestamp": time,
        "token_id": "",
        "hmac": b"",
    }


def _error(node: Node, call: Call, request: Struct, owner: Principal) -> type[KafkaError]:
    if not may_ask(node, call):
        return DelegationTokenRequestNotAllowed
    if owner != call.principal and refusal(node, call, _FOR_ANOTHER, str(owner)) is not None:
        return DelegationTokenAuthorizationFailed
    if any(renewer.principal_type != "User" for renewer in request.renewers):
        return InvalidPrincipalType
    return DelegationTokenAuthDisabled
