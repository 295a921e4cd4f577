"""AssignReplicasToDirs: a broker tells the controller that the directory of replicas has failed. For brokers only.

The controller does not need to know other directories.
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.cluster.disks import LOST
from ottla.broker.node import Call, Node
from ottla.metadata.brokers import fail_replicas
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import TopicPartition

API = ApiKey.ASSIGN_REPLICAS_TO_DIRS
ONLY_IN_CLUSTER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    try:
        if any(directory.id_ != LOST for directory in request.directories):
            raise errors.InvalidRequest(f"Only the lost directory {LOST} can have replicas.")
        partitions = [
            TopicPartition(known.name, entry.partition_index)
            for directory in request.directories
            for topic in directory.topics
            if (known := node.metadata.topics_by_id.get(topic.topic_id)) is not None
            for entry in topic.partitions
        ]
        await node.controller.run(fail_replicas, node.metadata, request.broker_id, request.broker_epoch, partitions)
    except errors.KafkaError as error:
        return {"error_code": error.code, "directories": []}
    return {
        "directories": [
            {
                "id_": directory.id_,
                "topics": [
                    {
                        "topic_id": topic.topic_id,
                        "partitions": [{"partition_index": entry.partition_index} for entry in topic.partitions],
                    }
                    for topic in directory.topics
                ],
            }
            for directory in request.directories
        ]
    }
