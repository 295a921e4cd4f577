"""DescribeCluster: the brokers. v1 selects brokers or controllers; v2 can include fenced brokers."""

from __future__ import annotations

from ottla.broker.authorization import NOT_ASKED, cluster_operations
from ottla.broker.node import Call, Node
from ottla.errors import MismatchedEndpointType
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need

API = ApiKey.DESCRIBE_CLUSTER
BROKERS = 1
SEE_OPERATIONS = need("describe_cluster", Operation.DESCRIBE, ResourceType.CLUSTER, Denied.HIDDEN)


def handle(node: Node, call: Call, request: Struct) -> Message:
    response = {
        "endpoint_type": request.endpoint_type,
        "cluster_id": node.metadata.cluster_id,
        "controller_id": node.controller_id,
        "brokers": [],
    }
    if request.endpoint_type != BROKERS:
        return response | {
            "error_code": MismatchedEndpointType.code,
            "error_message": "This address belongs to a broker, not a controller. Set endpoint_type to 1.",
        }
    brokers = [each._asdict() for each in node.brokers(call.connection, fenced=request.include_fenced_brokers)]
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(node, call, SEE_OPERATIONS)
    return response | {
        "brokers": brokers,
        "cluster_authorized_operations": operations,
    }
