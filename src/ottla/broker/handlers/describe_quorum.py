"""DescribeQuorum: who decides about metadata, and who follows the decisions.

ZooKeeper is the quorum. Kafka's tools expect brokers here: the controller is the leader and only voter, and all other
brokers that are alive are observers. Offsets are positions in the metadata log. v1 adds timestamps, v2 addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla import errors
from ottla.broker.node import Address, Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.DESCRIBE_QUORUM
TO_CONTROLLER = True
TOPIC = "__cluster_metadata"
UNKNOWN = -1


async def handle(node: Node, call: Call, request: Struct) -> Message:
    asked = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if asked != [(TOPIC, 0)]:
        return {"error_message": None, "topics": [_unknown(topic) for topic in request.topics], "nodes": []}
    brokers = node.brokers(call.connection)
    leader = [each for each in brokers if each.broker_id == node.id]
    others = [each.broker_id for each in brokers if each.broker_id != node.id]
    partition = {
        "partition_index": 0,
        "error_message": None,
        "leader_id": node.id,
        "leader_epoch": node.controller.epoch,
        "high_watermark": node.controller.position,
        "current_voters": [_replica(node, node.id, node.controller.position)],
        "observers": [
            _replica(node, broker_id, position)
            for broker_id, position in zip(others, await _positions(node, others), strict=True)
        ],
    }
    return {
        "error_message": None,
        "topics": [{"topic_name": TOPIC, "partitions": [partition]}],
        "nodes": [_node(each, call.connection.listener) for each in leader],
    }


def _unknown(topic: Struct) -> Message:
    return {
        "topic_name": topic.topic_name,
        "partitions": [
            {
                "partition_index": each.partition_index,
                "error_code": errors.UnknownTopicOrPartition.code,
                "error_message": f"Only {TOPIC}-0 has a quorum.",
                "leader_id": UNKNOWN,
                "leader_epoch": UNKNOWN,
                "high_watermark": UNKNOWN,
                "current_voters": [],
                "observers": [],
            }
            for each in topic.partitions
        ],
    }


async def _positions(node: Node, broker_ids: Sequence[int]) -> list[int]:
    """Ask other brokers how far they have read the metadata log."""
    if node.cluster is None:
        return []
    return await asyncio.gather(*map(node.cluster.requests.position_of, broker_ids))


def _replica(node: Node, broker_id: int, position: int) -> Message:
    now = node.clock.now()
    return {
        "replica_id": broker_id,
        "replica_directory_id": None,
        "log_end_offset": position,
        "last_fetch_timestamp": UNKNOWN if position == UNKNOWN else now,
        "last_caught_up_timestamp": now if position >= node.controller.position else UNKNOWN,
    }


def _node(address: Address, listener_name: str) -> Message:
    listener = {"name": listener_name, "host": address.host, "port": address.port}
    return {"node_id": address.broker_id, "listeners": [listener]}
