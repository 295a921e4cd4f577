"""AlterUserScramCredentials: the passwords of users. The client sends a salted password, of which keys are stored."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.metadata.users import Deletion, Upsertion, alter_users
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
TO_CONTROLLER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    deletions = [Deletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [
        Upsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    try:
        found = await node.controller.run(alter_users, node.metadata, deletions, upsertions)
    except errors.KafkaError as error:
        return refuse(request, error)
    return {"results": [{"user": name, **_result(error)} for name, error in found.items()]}


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer each user with the same error."""
    names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return {"results": [{"user": name, **_result(error)} for name in names]}


def _result(error: errors.KafkaError | None) -> Message:
    if error is None:
        return {"error_message": None}
    return {"error_code": error.code, "error_message": str(error)}
