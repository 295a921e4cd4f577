"""DescribeUserScramCredentials: the users and their mechanisms, never their keys. No names means all users."""

from __future__ import annotations

from collections import Counter

from ottla.broker.node import Call, Node
from ottla.errors import DuplicateResource, ResourceNotFound
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS


def handle(node: Node, call: Call, request: Struct) -> Message:
    users = node.metadata.users
    asked = Counter(each.name for each in request.users) if request.users else Counter(users.names())
    return {"error_message": None, "results": [_result(node, name, times) for name, times in asked.items()]}


def _result(node: Node, name: str, times: int) -> Message:
    found = node.metadata.users.of(name)
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return {"user": name, "error_code": DuplicateResource.code, "error_message": text, "credential_infos": []}
    if not found:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return {"user": name, "error_code": ResourceNotFound.code, "error_message": text, "credential_infos": []}
    infos = [{"mechanism": int(kind), "iterations": credential.iterations} for kind, credential in found.items()]
    return {"user": name, "error_message": None, "credential_infos": infos}
