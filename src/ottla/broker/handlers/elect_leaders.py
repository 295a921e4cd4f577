"""ElectLeaders: preferred leaders, or any leaders for partitions without one. v0 knows only preferred ones."""

from __future__ import annotations

from collections.abc import Mapping

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.broker.partition_results import by_topic, partitions_of
from ottla.metadata.partitions import elect_leaders
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import TopicPartition

API = ApiKey.ELECT_LEADERS
TO_CONTROLLER = True
PREFERRED, UNCLEAN = 0, 1


async def handle(node: Node, call: Call, request: Struct) -> Message:
    kind = request.election_type if call.api_version >= 1 else PREFERRED
    wanted = None if request.topic_partitions is None else partitions_of(request.topic_partitions, "topic")
    try:
        if kind not in (PREFERRED, UNCLEAN):
            raise errors.InvalidRequest(f"There is no election type {kind}. Use 0 (preferred) or 1 (unclean).")
        found = await node.controller.run(elect_leaders, node.metadata, wanted, unclean=kind == UNCLEAN)
    except errors.KafkaError as error:
        return {"error_code": error.code, "replica_election_results": []}
    return {"replica_election_results": _results(found)}


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer each partition with the same error, as v0 has none for the whole request."""
    wanted = [] if request.topic_partitions is None else partitions_of(request.topic_partitions, "topic")
    return {"error_code": error.code, "replica_election_results": _results(dict.fromkeys(wanted, error))}


def _results(found: Mapping[TopicPartition, errors.KafkaError | None]) -> list[Message]:
    return [
        {"topic": topic, "partition_result": [_result(key, error) for key, error in results]}
        for topic, results in by_topic(found).items()
    ]


def _result(key: TopicPartition, error: errors.KafkaError | None) -> Message:
    if error is None:
        return {"partition_id": key.partition, "error_message": None}
    return {"partition_id": key.partition, "error_code": error.code, "error_message": str(error)}
