"""CreateAcls: add rules. A rule that is there already is a success."""

from __future__ import annotations

from ottla import errors
from ottla.broker.acls import no_authorizer
from ottla.broker.node import Call, Node
from ottla.metadata.acls import create_acls
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import AclBinding

API = ApiKey.CREATE_ACLS
TO_CONTROLLER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if node.authorizer is None:
        return refuse(request, no_authorizer())
    bindings = [_binding(each) for each in request.creations]
    try:
        results = await node.changes.run(node.controller.run(create_acls, node.metadata, bindings))
    except errors.KafkaError as error:
        return refuse(request, error)
    return {"results": [_result(each) for each in results]}


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer each rule with the same error."""
    return {"results": [_result(error) for _ in request.creations]}


def _result(error: errors.KafkaError | None) -> Message:
    return {"error_message": None} if error is None else {"error_code": error.code, "error_message": str(error)}


def _binding(creation: Struct) -> AclBinding:
    return AclBinding(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
