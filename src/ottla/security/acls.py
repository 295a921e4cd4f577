"""ACLs as values: what a rule allows or denies, to whom, from where. Numbers and names are Kafka's.

Kafka compares the host of a rule with the client's address as text. Here a host may also be a network such as
``10.0.0.0/8``, and addresses are compared as numbers: ``::1`` and ``0:0:0:0:0:0:0:1`` are the same host.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, Self, TypeAlias

from ottla.security.principals import parse_principal
from ottla.suggestions import nearest

WILDCARD = "*"
"""As the name of a literal pattern: every resource. As a host: every host."""
EVERYONE = "User:*"
"""The principal of a rule for everyone."""
CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""
Network: TypeAlias = IPv4Network | IPv6Network


@lru_cache
def _title(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


class _Named(IntEnum):
    """A number of the protocol with the name that Kafka's tools write. A number that nobody knows is UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> _Named | None:
        return cls(0) if isinstance(value, int) else None

    @property
    def title(self) -> str:
        """Return the name as Kafka's tools write it.

        >>> Operation.DESCRIBE_CONFIGS.title
        'DescribeConfigs'
        """
        return _title(self.name)

    @classmethod
    def of(cls, given: str | int) -> Self:
        """Return the member of a number or a name, in any case. Raise ValueError for a name that is none.

        >>> Operation.of("describe-configs"), ResourceType.of(2)
        (<Operation.DESCRIBE_CONFIGS: 10>, <ResourceType.TOPIC: 2>)
        """
        if not isinstance(given, str):
            return cls(given)
        names = {each.name.replace("_", "").lower(): each for each in cls}
        found = names.get(given.replace("_", "").replace("-", "").lower())
        if found is None:
            what = cls.__name__.replace("Type", " type").lower()
            titles = {each.title.lower(): each.title for each in cls}
            near = nearest(given.lower(), titles)
            hint = f"did you mean {titles[near]}?" if near else f"use one of {', '.join(e.title for e in cls if e)}"
            raise ValueError(f"{given!r} is no {what}; {hint}")
        return found


class Operation(_Named):
    """What a client may do with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(_Named):
    """What a client may do something with."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """How the name of a rule is compared with the name of a resource. ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(_Named):
    """What a rule does. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
SUPPORTED: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        *_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, *_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}  # fmt: skip
"""The operations that make sense for each type of resource."""

#: What a rule that allows an operation also allows. A rule that denies one denies nothing else.
IMPLIED: dict[Operation, frozenset[Operation]] = {
    Operation.READ: frozenset({Operation.DESCRIBE}),
    Operation.WRITE: frozenset({Operation.DESCRIBE}),
    Operation.DELETE: frozenset({Operation.DESCRIBE}),
    Operation.ALTER: frozenset({Operation.DESCRIBE}),
    Operation.ALTER_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS}),
}


class _AclBinding(NamedTuple):
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclBinding(_AclBinding):
    """One rule: allow or deny a principal an operation on the resources of a pattern, from some hosts.

    >>> print(AclBinding("topic", "orders", principal="User:etl", operation="read"))
    allow User:etl Read on topic orders from every host
    """

    __slots__ = ()

    def __new__(
        cls,
        resource_type: ResourceType | str,
        resource_name: str,
        pattern_type: PatternType | str = PatternType.LITERAL,
        principal: str = EVERYONE,
        host: str = WILDCARD,
        operation: Operation | str = Operation.ALL,
        permission: Permission | str = Permission.ALLOW,
    ) -> Self:
        """Types, operations and permissions may be names, in any case."""
        return super().__new__(
            cls,
            ResourceType.of(resource_type),
            resource_name,
            PatternType.of(pattern_type),
            principal,
            host,
            Operation.of(operation),
            Permission.of(permission),
        )

    def __str__(self) -> str:
        hosts = "every host" if self.host == WILDCARD else self.host
        return f"{self.permission.name.lower()} {self.principal} {self.operation.title} on {self.resource} from {hosts}"

    @property
    def resource(self) -> str:
        """The resources of the rule in words.

        >>> AclBinding(ResourceType.GROUP, "etl-", PatternType.PREFIXED).resource
        'groups that start with etl-'
        """
        return resource_text(self.resource_type, self.resource_name, self.pattern_type)


class _AclFilter(NamedTuple):
    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission


class AclFilter(_AclFilter):
    """Selects rules. None and ANY match everything, as in Kafka.

    >>> AclFilter("topic", "orders", "match").matches(AclBinding("topic", "ord", "prefixed"))
    True
    """

    __slots__ = ()

    def __new__(
        cls,
        resource_type: ResourceType | str = ResourceType.ANY,
        resource_name: str | None = None,
        pattern_type: PatternType | str = PatternType.ANY,
        principal: str | None = None,
        host: str | None = None,
        operation: Operation | str = Operation.ANY,
        permission: Permission | str = Permission.ANY,
    ) -> Self:
        """Types, operations and permissions may be names, in any case."""
        return super().__new__(
            cls,
            ResourceType.of(resource_type),
            resource_name,
            PatternType.of(pattern_type),
            principal,
            host,
            Operation.of(operation),
            Permission.of(permission),
        )

    def matches(self, binding: AclBinding) -> bool:
        """Whether a rule is selected. With MATCH all rules that apply to the named resource are."""
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self._matches_name(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (Operation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
        )

    def _matches_name(self, binding: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.resource_name == binding.resource_name
        return applies_to(binding, self.resource_name)


def applies_to(binding: AclBinding, name: str) -> bool:
    """Whether the pattern of a rule has a resource of this name."""
    if binding.pattern_type == PatternType.PREFIXED:
        return name.startswith(binding.resource_name)
    return binding.resource_name in (name, WILDCARD)


def resource_text(resource_type: ResourceType, name: str, pattern_type: PatternType = PatternType.LITERAL) -> str:
    """Name resources in words.

    >>> resource_text(ResourceType.TOPIC, "orders")
    'topic orders'
    """
    if resource_type == ResourceType.CLUSTER:
        return "the cluster"
    kind = resource_type.name.lower().replace("_", " ")
    if pattern_type == PatternType.PREFIXED:
        return f"{kind}s that start with {name}"
    return f"every {kind}" if name == WILDCARD else f"{kind} {name}"


def wrong_with(binding: AclBinding) -> str | None:
    """Return why a rule cannot be created, as a sentence; None if it can.

    >>> wrong_with(AclBinding(ResourceType.TOPIC, ""))
    'The name of the resource is empty.'
    """
    if binding.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"The resource type {binding.resource_type.name} is only for filters. Name one type."
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"The pattern type must be LITERAL or PREFIXED, not {binding.pattern_type.name}."
    if binding.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"The operation {binding.operation.name} is only for filters. Name one operation, or ALL."
    if binding.permission not in (Permission.DENY, Permission.ALLOW):
        return f"The permission must be ALLOW or DENY, not {binding.permission.name}."
    if not binding.resource_name:
        return "The name of the resource is empty."
    if binding.resource_type == ResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        return f"The cluster has the name {CLUSTER_NAME}, not {binding.resource_name[:300]!r}."
    try:
        parse_principal(binding.principal)
    except ValueError as error:
        return f"{error}."
    if "/" in binding.host and network_of(binding.host) is None:
        return f"{binding.host[:300]!r} is not a network like 10.0.0.0/8."
    return None


def unknown_in(acl_filter: AclFilter) -> str | None:
    """Return the field of a filter with a value that nobody knows; None if there is none."""
    fields = ("resource_type", "pattern_type", "operation", "permission")
    return next((field for field in fields if getattr(acl_filter, field) == 0), None)


def network_of(host: str) -> Network | None:
    """Return the addresses of a rule's host; None if it is no address, and then never matches.

    >>> network_of("10.1.2.3/8")
    IPv4Network('10.0.0.0/8')
    """
    try:
        network = ip_network(host, strict=False)
    except ValueError:
        return None
    if isinstance(network, IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        return network if mapped is None else IPv4Network((int(mapped), network.prefixlen - 96), strict=False)
    return network


@lru_cache(maxsize=4096)
def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address of a client; None if it has none. An IPv4 address in IPv6 form is an IPv4 address.

    >>> address_of("::ffff:10.1.2.3")
    IPv4Address('10.1.2.3')
    """
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
