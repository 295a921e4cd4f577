"""ACLs as short texts, for tests: ``alice read,write topic orders``."""

from __future__ import annotations

from ottla.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "user": ResourceType.USER,
}
_OPERATIONS = {
    kind: {each.name.lower().replace("_", "-"): each for each in (*SUPPORTED[kind], Operation.ALL)}
    for kind in _TYPES.values()
}
FORM = "[allow|deny] USER OPERATION[,OPERATION] TYPE NAME"


def parse_acls(text: str) -> list[AclBinding]:
    """Return the rules of a text. A name that ends in ``*`` is a prefix, and ``*`` alone means every name.

    >>> for rule in parse_acls("alice read,write topic orders-*"):
    ...     print(rule)
    allow User:alice Read on topics that start with orders- from every host
    allow User:alice Write on topics that start with orders- from every host
    >>> print(*parse_acls("deny * delete topic *"))
    deny User:* Delete on every topic from every host

    The cluster has no name: ``alice create cluster``. Raises ValueError with the reason.
    """
    words = text.split()
    permission = Permission.ALLOW
    if words and words[0].lower() in ("allow", "deny"):
        permission = Permission[words.pop(0).upper()]
    if len(words) == 3 and words[2].lower() == "cluster":
        words.append(CLUSTER_NAME)
    if len(words) != 4:
        raise ValueError(f"{text!r} is not an ACL of the form {FORM!r}, such as 'alice read,write topic orders'")
    user, operations, kind, name = words
    resource_type = _TYPES.get(kind.lower())
    if resource_type is None:
        raise ValueError(f"{kind!r} in {text!r} must be one of {', '.join(_TYPES)}")
    is_prefix = len(name) > 1 and name.endswith("*")
    return [
        AclBinding(
            resource_type,
            name[:-1] if is_prefix else name,
            PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
            principal=user if ":" in user else f"User:{user}",
            operation=_operation(operation, resource_type, text),
            permission=permission,
        )
        for operation in operations.split(",")
    ]


def _operation(name: str, resource_type: ResourceType, text: str) -> Operation:
    known = _OPERATIONS[resource_type]
    operation = known.get(name.lower().replace("_", "-"))
    if operation is None:
        raise ValueError(f"{name!r} in {text!r} must be one of {', '.join(known)}")
    return operation
