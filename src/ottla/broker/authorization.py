"""The one place that asks an authorizer. Numbers are those of Kafka's protocol.

Every check goes through `is_allowed`. Without an authorizer (``authorizer.class.name`` is empty) everything is allowed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from ottla.security.principals import Principal

if TYPE_CHECKING:
    from ottla.broker.node import Call, Node


class Operation(IntEnum):
    """What a client may do with a resource."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """What a client may do something with."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4


_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
SUPPORTED = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        *_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, *_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip
CLUSTER_NAME = "kafka-cluster"
NOT_ASKED = -(2**31)
"""The bit field of operations if the client did not ask for it."""


class Authorizer(Protocol):
    """Decides what a principal may do."""

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool: ...


def is_allowed(node: Node, call: Call, operation: Operation, resource_type: ResourceType, name: str) -> bool:
    """Whether the client of a request may do something."""
    if node.authorizer is None:
        return True
    return node.authorizer.allows(call.principal, call.connection.client_host, operation, resource_type, name)


def authorized_operations(node: Node, call: Call, resource_type: ResourceType, name: str) -> int:
    """Return everything that the client may do with a resource, as the bit field of describe responses."""
    allowed = (each for each in SUPPORTED[resource_type] if is_allowed(node, call, each, resource_type, name))
    return sum(1 << each for each in allowed)
