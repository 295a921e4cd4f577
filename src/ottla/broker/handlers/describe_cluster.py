"""DescribeCluster: the brokers. v1 selects brokers or controllers; v2 can include fenced brokers (there are none)."""

from __future__ import annotations

from ottla.broker.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.broker.node import Call, Node
from ottla.errors import MismatchedEndpointType
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.DESCRIBE_CLUSTER
BROKERS = 1


def handle(node: Node, call: Call, request: Struct) -> Message:
    response = {
        "endpoint_type": request.endpoint_type,
        "cluster_id": node.metadata.cluster_id,
        "controller_id": node.id,
        "brokers": [],
    }
    if request.endpoint_type != BROKERS:
        return response | {
            "error_code": MismatchedEndpointType.code,
            "error_message": "This address belongs to a broker, not a controller. Set endpoint_type to 1.",
        }
    host, port = node.address(call.connection)
    brokers = [{"broker_id": node.id, "host": host, "port": port, "rack": node.config.broker_rack}]
    with_operations = request.include_cluster_authorized_operations
    return response | {
        "brokers": brokers,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if with_operations else NOT_ASKED,
    }
