"""Envelope: another broker forwards a client's request to the controller. For brokers only.

The request has the permissions of the client that the envelope names. So only who may act for the cluster
(CLUSTER_ACTION) may send one.
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.forwarding import forwarded_client
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.ENVELOPE
ONLY_IN_CLUSTER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if node.cluster is None or not node.cluster.is_controller:
        return {"error_code": errors.NotController.code}
    call.connection.may_pause = False  # The client's connection does. Other clients use this one too.
    try:
        client = forwarded_client(call.connection, request)
    except errors.KafkaError as error:
        return {"error_code": error.code}
    response = await node.forwarded(client, memoryview(bytearray(request.request_data)))
    return {"response_data": response}
