"""ListPartitionReassignments: the partitions that are being moved."""

from __future__ import annotations

from ottla.broker.node import Call, Node
from ottla.broker.partition_results import by_topic, partitions_of
from ottla.metadata.reassignment import reassignments
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.LIST_PARTITION_REASSIGNMENTS


def handle(node: Node, call: Call, request: Struct) -> Message:
    wanted = None if request.topics is None else partitions_of(request.topics, indexes="partition_indexes")
    found = reassignments(node.metadata, wanted)
    return {
        "error_message": None,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": key.partition,
                        "replicas": state.replicas,
                        "adding_replicas": state.adding,
                        "removing_replicas": state.removing,
                    }
                    for key, state in results
                ],
            }
            for topic, results in by_topic(found).items()
        ],
    }
