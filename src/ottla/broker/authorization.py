"""The one place that asks the authorizer. What to ask is in the table of ``security/permissions.py``.

Without an authorizer (``authorizer.class.name`` is empty) everything is allowed. `Dispatcher` checks what a request
needs as a whole. Handlers check its parts with `check`, before they look whether the resource exists, and leave out of
their answers what the client may not see (`sees`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla import errors
from ottla.net.server.few_lines import FewLines
from ottla.protocol.codec import Struct
from ottla.security.acls import CLUSTER_NAME, SUPPORTED, Operation, ResourceType
from ottla.security.authorizer import Authorizer, shown
from ottla.security.permissions import Need
from ottla.security.principals import parse_principals

if TYPE_CHECKING:
    from ottla.broker.node import Call, Node

NOT_ASKED = -(2**31)
"""The bit field of operations if the client did not ask for it."""
#: How many refusals are remembered, so that each is logged once.
REMEMBERED = 10_000
logger = logging.getLogger("ottla.security")

_ERRORS: dict[ResourceType, type[errors.KafkaError]] = {
    ResourceType.TOPIC: errors.TopicAuthorizationFailed,
    ResourceType.GROUP: errors.GroupAuthorizationFailed,
    ResourceType.CLUSTER: errors.ClusterAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: errors.TransactionalIdAuthorizationFailed,
    ResourceType.DELEGATION_TOKEN: errors.DelegationTokenAuthorizationFailed,
    ResourceType.USER: errors.DelegationTokenAuthorizationFailed,
}


class Refusals:
    """Logs each refusal once, but not too many each second, and counts all of them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lines = FewLines(logger, "requests were refused")
        self._logged: set[tuple[Any, ...]] = set()

    def add(self, call: Call, need: Need, name: str) -> None:
        """Take note that a client was refused something."""
        self._node.metrics.denied(need.operation.title, need.resource_type.title)
        known = (call.principal, need.operation, need.resource_type, shown(name))
        # A request can name very many resources, so a line that is left out is not written either.
        if known in self._logged or self._node.authorizer is None or self._lines.leave_out():
            return
        question = (call.principal, call.connection.client_host, need.operation, need.resource_type, name)
        self._lines.warning("%s", self._node.authorizer.decide(*question).sentence(*question))
        if len(self._logged) >= REMEMBERED:
            self._logged.clear()
        self._logged.add(known)


def new_authorizer(node: Node) -> Authorizer | None:
    """Return the authorizer of a broker; None if its config has none."""
    config = node.config
    if not config.authorizer_class_name:
        return None
    return Authorizer(
        node.metadata.acls,
        super_users=map(str, parse_principals(config.super_users)),
        allow_without_rules=config.allow_everyone_if_no_acl_found,
    )


def is_allowed(node: Node, call: Call, operation: Operation, resource_type: ResourceType, name: str | None) -> bool:
    """Whether the client of a request may do something; with None as the name, with any resource of the type."""
    if node.authorizer is None:
        return True
    return node.authorizer.decide(call.principal, call.connection.client_host, operation, resource_type, name).allowed


def acts_for_cluster(node: Node, call: Call) -> bool:
    """Whether the client of a request is a broker, as far as its permissions say."""
    return is_allowed(node, call, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def sees(node: Node, call: Call, need: Need, name: str = CLUSTER_NAME) -> bool:
    """Whether the client has a permission. Nothing is logged: the client did not name the resource."""
    if node.authorizer is None or is_allowed(node, call, need.operation, need.resource_type, name):
        return True
    if need.instead is None:
        return False
    operation, resource_type = need.instead
    return is_allowed(
        node, call, operation, resource_type, CLUSTER_NAME if resource_type == ResourceType.CLUSTER else None
    )


def viewer(node: Node, call: Call, need: Need) -> Callable[[str], bool] | None:
    """Return what says whether the client may see a resource; None if it may see all. It outlives the connection."""
    if node.authorizer is None:
        return None
    decide = partial(node.authorizer.decide, call.principal, call.connection.client_host)
    return lambda name: decide(need.operation, need.resource_type, name).allowed


def refusal(node: Node, call: Call, need: Need, name: str = CLUSTER_NAME) -> errors.KafkaError | None:
    """Return the error for a client without a permission, and log it; None if the client has the permission."""
    if sees(node, call, need, name):
        return None
    node.refusals.add(call, need, name)
    kind = need.resource_type.name.lower().replace("_", " ")
    # Without the name: a client that has only the id of a topic must not learn it.
    return _ERRORS[need.error or need.resource_type](
        f"{call.principal} may not {need.operation.title} on this {kind}. Ask for a permission (ottla acls explain)."
    )


def check(node: Node, call: Call, need: Need, name: str = CLUSTER_NAME) -> None:
    """Raise the error for a client without a permission."""
    authorizer = node.authorizer
    if authorizer is None:
        return
    # Looked up here, because this runs for every partition of a produce and a fetch.
    connection = call.connection
    known = authorizer.remembered.get(
        (connection.channel.principal, connection.client_host, need.operation, need.resource_type, name)
    )
    if known is not None and known.allowed:
        return
    if (error := refusal(node, call, need, name)) is not None:
        raise error


def refusal_of_request(node: Node, call: Call, needs: Iterable[Need], request: Struct) -> errors.KafkaError | None:
    """Return why a request is refused as a whole; None if it is not."""
    for need in needs:
        if need.when is not None and not need.when.holds(request, call.api_version):
            continue
        for name in _names(need, request):
            if (error := refusal(node, call, need, name)) is not None:
                return error
    return None


def _names(need: Need, request: Struct) -> Iterable[str]:
    if not need.field:
        return (CLUSTER_NAME,)
    found = getattr(request, need.field)
    if found is None or isinstance(found, str):
        return () if found is None else (found,)
    names: Iterable[str] = found
    return names


def cluster_operations(node: Node, call: Call, need: Need) -> int:
    """Return what the client may do with the cluster, which needs a permission of its own: 0 without it."""
    if sees(node, call, need):
        return authorized_operations(node, call, ResourceType.CLUSTER, CLUSTER_NAME)
    return 0


def authorized_operations(node: Node, call: Call, resource_type: ResourceType, name: str) -> int:
    """Return everything that the client may do with a resource, as the bit field of describe responses."""
    allowed = (each for each in SUPPORTED[resource_type] if is_allowed(node, call, each, resource_type, name))
    return sum(1 << each for each in allowed)
