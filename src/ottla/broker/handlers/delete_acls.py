"""DeleteAcls: remove the rules that filters select."""

from __future__ import annotations

from ottla import errors
from ottla.broker.acls import filter_of, no_authorizer
from ottla.broker.node import Call, Node
from ottla.metadata.acls import delete_acls
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import AclBinding

API = ApiKey.DELETE_ACLS
TO_CONTROLLER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if node.authorizer is None:
        return refuse(request, no_authorizer())
    filters = [filter_of(each) for each in request.filters]
    try:
        results = await node.changes.run(node.controller.run(delete_acls, node.metadata, filters))
    except errors.KafkaError as error:
        return refuse(request, error)
    return {"filter_results": [_result(each) for each in results]}


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer each filter with the same error."""
    return {"filter_results": [_result(error) for _ in request.filters]}


def _result(result: list[AclBinding] | errors.KafkaError) -> Message:
    if isinstance(result, errors.KafkaError):
        return {"error_code": result.code, "error_message": str(result), "matching_acls": []}
    return {"error_message": None, "matching_acls": [_removed(each) for each in result]}


def _removed(binding: AclBinding) -> Message:
    return {
        "error_message": None,
        "resource_type": binding.resource_type,
        "resource_name": binding.resource_name,
        "pattern_type": binding.pattern_type,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission,
    }
