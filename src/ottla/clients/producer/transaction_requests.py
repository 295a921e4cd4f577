"""The requests of a transactional producer: an `Ask` becomes a request, the response an `Answer`.

`ottla.producing.transactions` decides what to request and what a response means.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.coordinators import GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE, find_coordinators
from ottla.clients.cluster.leaders import by_topic, read_error
from ottla.config.producer import ProducerConfig
from ottla.errors import KafkaError, NetworkException, OttlaError
from ottla.net.client.connection import Connection
from ottla.producing.transaction_values import (
    AddOffsets,
    AddPartitions,
    Answer,
    Ask,
    CommitOffsets,
    EndTransaction,
    FindCoordinator,
    InitProducerId,
)
from ottla.producing.transactions import SECOND
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import TopicPartition

FEATURE = "transaction.version"
#: The last versions of the first protocol: later ones mean the second.
LAST_PRODUCE_OF_FIRST = 11
_LAST_END_OF_FIRST = 4
_LAST_OFFSET_COMMIT_OF_FIRST = 4
_END_OF_SECOND = 5
#: Later ones are only for brokers.
_LAST_ADD_PARTITIONS = 3


async def carry_out(cluster: Cluster, config: ProducerConfig, ask: Ask) -> Answer:
    """Send the request and return its result; network errors become part of it."""
    try:
        if isinstance(ask.what, FindCoordinator):
            return await _find(cluster, config, ask.what)
        connection = await cluster.connection(ask.broker)
        return await _at(connection, config, ask)
    except KafkaError as error:
        return Answer(error)
    except OttlaError as error:
        return Answer(NetworkException(str(error)))


async def _find(cluster: Cluster, config: ProducerConfig, what: FindCoordinator) -> Answer:
    key, kind = what.group_id, GROUP_KEY_TYPE
    if key is None:
        key, kind = config.transactional_id or "", TRANSACTION_KEY_TYPE
    (found,) = (await find_coordinators(cluster, [key], kind)).values()
    return Answer(found) if isinstance(found, KafkaError) else Answer(node=found)


async def _at(connection: Connection, config: ProducerConfig, ask: Ask) -> Answer:
    what, first = ask.what, ask.version < SECOND
    if isinstance(what, InitProducerId):
        message: Message = {
            "transactional_id": config.transactional_id,
            "transaction_timeout": config.transaction_timeout_ms,
            "producer_id": what.producer_id,
            "producer_epoch": what.producer_epoch,
        }
        response = await connection.request(ApiKey.INIT_PRODUCER_ID, message)
        return _numbered(response, _version(connection))
    who = {
        "transactional_id": config.transactional_id,
        "producer_id": ask.producer_id,
        "producer_epoch": ask.producer_epoch,
    }
    if isinstance(what, EndTransaction):
        response = await _end(connection, who, what.commit, first)
        return _numbered(response, _version(connection))
    if isinstance(what, AddOffsets):
        response = await connection.request(ApiKey.ADD_OFFSETS_TO_TXN, {**who, "group_id": what.group_id})
        return Answer(_error(response.error_code))
    if isinstance(what, AddPartitions):
        return await _add_partitions(connection, who, what)
    assert isinstance(what, CommitOffsets)
    at_most = _LAST_OFFSET_COMMIT_OF_FIRST if first else None
    response = await connection.request(ApiKey.TXN_OFFSET_COMMIT, {**who, **_offsets(what)}, at_most=at_most)
    return Answer(
        errors=_errors(
            (TopicPartition(topic.name, each.partition_index), each.error_code)
            for topic in response.topics
            for each in topic.partitions
        )
    )


async def _end(connection: Connection, who: Message, commit: bool, first: bool) -> Struct:
    at_most = _LAST_END_OF_FIRST if first else None
    return await connection.request(ApiKey.END_TXN, {**who, "committed": commit}, at_most=at_most)


async def end_transaction(
    connection: Connection, transactional_id: str, producer_id: int, producer_epoch: int, version: int, *, commit: bool
) -> KafkaError | None:
    """End the transaction of this producer id and epoch; returns the coordinator's error."""
    who = {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": producer_epoch}
    first = min(version, _version(connection)) < SECOND
    return _error((await _end(connection, who, commit, first)).error_code)


def _version(connection: Connection) -> int:
    """The version of the protocol: the second if the cluster has enabled it and the broker supports it."""
    _, last_end = connection.api_versions.get(ApiKey.END_TXN, (0, 0))
    return SECOND if connection.features.get(FEATURE, 0) >= SECOND and last_end >= _END_OF_SECOND else 1


def _numbered(response: Struct, version: int) -> Answer:
    if response.error_code:
        return Answer(read_error(response.error_code), version=version)
    return Answer(producer_id=response.producer_id, producer_epoch=response.producer_epoch, version=version)


async def _add_partitions(connection: Connection, who: Message, what: AddPartitions) -> Answer:
    message = {f"v3_and_below_{name}": value for name, value in who.items()}
    message["v3_and_below_topics"] = [
        {"name": topic, "partitions": [key.partition for key in keys]}
        for topic, keys in by_topic(what.partitions).items()
    ]
    response = await connection.request(ApiKey.ADD_PARTITIONS_TO_TXN, message, at_most=_LAST_ADD_PARTITIONS)
    return Answer(
        errors=_errors(
            (TopicPartition(topic.name, each.partition_index), each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        )
    )


def _offsets(what: CommitOffsets) -> Message:
    return {
        "group_id": what.member.group_id,
        "generation_id": what.member.generation_id,
        "member_id": what.member.member_id,
        "group_instance_id": what.member.group_instance_id,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": key.partition,
                        "committed_offset": what.offsets[key].offset,
                        "committed_leader_epoch": what.offsets[key].leader_epoch,
                        "committed_metadata": what.offsets[key].metadata,
                    }
                    for key in keys
                ],
            }
            for topic, keys in by_topic(what.offsets).items()
        ],
    }


def _error(code: int) -> KafkaError | None:
    return read_error(code) if code else None


def _errors(codes: Iterable[tuple[TopicPartition, int]]) -> dict[TopicPartition, KafkaError]:
    return {key: read_error(code) for key, code in codes if code}
