"""DescribeAcls: the rules that a filter selects, by pattern."""

from __future__ import annotations

from collections import defaultdict

from ottla import errors
from ottla.broker.acls import filter_of, no_authorizer
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import unknown_in

API = ApiKey.DESCRIBE_ACLS


def handle(node: Node, call: Call, request: Struct) -> Message:
    if node.authorizer is None:
        return _failed(no_authorizer())
    acl_filter = filter_of(request)
    if (unknown := unknown_in(acl_filter)) is not None:
        return _failed(errors.InvalidRequest(f"The filter has an unknown {unknown.replace('_', ' ')}."))
    by_pattern = defaultdict(list)
    for each in node.metadata.acls.matching(acl_filter):
        by_pattern[each[:3]].append(each)
    return {
        "error_message": None,
        "resources": [
            {
                "resource_type": resource_type,
                "resource_name": name,
                "pattern_type": pattern_type,
                "acls": [
                    {
                        "principal": each.principal,
                        "host": each.host,
                        "operation": each.operation,
                        "permission_type": each.permission,
                    }
                    for each in rules
                ],
            }
            for (resource_type, name, pattern_type), rules in by_pattern.items()
        ],
    }


def _failed(error: errors.KafkaError) -> Message:
    return {"error_code": error.code, "error_message": str(error), "resources": []}
