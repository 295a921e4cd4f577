"""An authorizer that reads all rules for every question. It shares no code with ``ottla.security``.

It works on plain texts and tuples: (resource type, name, pattern, principal, host, operation, permission).
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

Rule = tuple[str, str, str, str, str, str, str]


def bits(address: str) -> tuple[int, int] | None:
    """The number of bits of an address and its value."""
    for family, size in ((socket.AF_INET, 32), (socket.AF_INET6, 128)):
        try:
            value = int.from_bytes(socket.inet_pton(family, address), "big")
        except (OSError, ValueError):
            continue
        if size == 128 and value >> 32 == 0xFFFF:
            return 32, value & 0xFFFFFFFF
        return size, value
    return None


def host_matches(wanted: str, host: str) -> bool:
    if wanted in ("*", host):
        return True
    network, slash, length = wanted.partition("/")
    ours, theirs = bits(network), bits(host)
    if ours is None or theirs is None or ours[0] != theirs[0]:
        return False
    kept = int(length) if slash else ours[0]
    return ours[1] >> (ours[0] - kept) == theirs[1] >> (ours[0] - kept)


def operation_matches(rule: Rule, operation: str) -> bool:
    given, permission = rule[5], rule[6]
    if given in ("ALL", operation):
        return True
    if permission == "DENY":
        return False
    if operation == "DESCRIBE":
        return given in ("READ", "WRITE", "DELETE", "ALTER")
    return operation == "DESCRIBE_CONFIGS" and given == "ALTER_CONFIGS"


def name_matches(rule: Rule, name: str) -> bool:
    if rule[2] == "PREFIXED":
        return name[: len(rule[1])] == rule[1]
    return rule[1] == "*" or rule[1] == name


def applies(rule: Rule, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
    return (
        rule[0] == resource_type
        and name_matches(rule, name)
        and rule[3] in (principal, "User:*")
        and host_matches(rule[4], host)
        and operation_matches(rule, operation)
    )


def allowed(
    rules: Sequence[Rule],
    super_users: Sequence[str],
    default: bool,
    principal: str,
    host: str,
    operation: str,
    resource_type: str,
    name: str,
) -> bool:
    """Whether Kafka allows it."""
    if principal in super_users:
        return True
    of_resource = [rule for rule in rules if rule[0] == resource_type and name_matches(rule, name)]
    if not of_resource:
        return default
    permissions = [rule[6] for rule in of_resource if applies(rule, principal, host, operation, resource_type, name)]
    return "DENY" not in permissions and "ALLOW" in permissions


def allowed_on_any(
    rules: Sequence[Rule],
    super_users: Sequence[str],
    default: bool,
    principal: str,
    host: str,
    operation: str,
    resource_type: str,
) -> bool:
    """Whether Kafka allows it on some resource of a type."""
    if allowed(rules, super_users, default, principal, host, operation, resource_type, "hardcode"):
        return True
    mine = [
        rule
        for rule in rules
        if rule[0] == resource_type
        and rule[3] in (principal, "User:*")
        and host_matches(rule[4], host)
        and rule[5] in ("ALL", operation)
    ]
    denied = [rule for rule in mine if rule[6] == "DENY"]
    if any(rule[1] == "*" and rule[2] == "LITERAL" for rule in denied):
        return False

    def is_covered(rule: Rule, deny: Rule) -> bool:
        if rule[1] == "*" and rule[2] == "LITERAL":
            return False
        if deny[2] == "PREFIXED":
            return rule[1].startswith(deny[1])
        return rule[2] == "LITERAL" and rule[1] == deny[1]

    return any(rule[6] == "ALLOW" and not any(is_covered(rule, deny) for deny in denied) for rule in mine)
