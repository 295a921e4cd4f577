"""Transactions of all coordinators, and those that are open in partitions.

A transaction hangs if it is open in a partition but unknown to every coordinator. read_committed consumers cannot read
past it.

    for one in await without_coordinator(admin, await open_transactions(admin, partitions)):
        print(one.partition, one.start_offset)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import ProducerState
from ottla.clients.cluster.coordinators import by_broker
from ottla.clients.cluster.leaders import Outcomes, by_topic, read_error
from ottla.clients.cluster.metadata import Node
from ottla.errors import KafkaError, OttlaError, TransactionalIdNotFound
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.types import Millis, TopicPartition

TRANSACTION_KEY_TYPE = 1
#: Kafka's default transaction.max.timeout.ms: a coordinator ends every transaction by then.
LONGEST_MS: Millis = 15 * 60_000
DURATION_FROM, PATTERN_FROM = 1, 2


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: Millis
    started_at: Millis | None
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """An open transaction in a partition."""

    partition: TopicPartition
    producer: ProducerState

    @property
    def start_offset(self) -> int:
        assert self.producer.transaction_start_offset is not None
        return self.producer.transaction_start_offset

    @property
    def marker(self) -> AbortMarker:
        """What aborts it."""
        one = self.producer
        return AbortMarker(one.producer_id, one.producer_epoch, one.coordinator_epoch or 0)


@dataclass(frozen=True, slots=True)
class AbortMarker:
    """The transaction to abort in a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


async def list_transactions(
    admin: AsyncAdmin,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than: Millis = -1,
    pattern: str | None = None,
) -> list[ListedTransaction]:
    """The transactional ids of all coordinators that match the filters."""

    async def send(connection: Connection) -> Struct:
        version = connection.version_of(ApiKey.LIST_TRANSACTIONS)
        if (longer_than >= 0 and version < DURATION_FROM) or (pattern is not None and version < PATTERN_FROM):
            raise OttlaError("this broker cannot filter by duration or pattern: remove the filter")
        message = {
            "state_filters": list(states),
            "producer_id_filters": list(producer_ids),
            "duration_filter": longer_than,
            "transactional_id_pattern": pattern,
        }
        response = await connection.request(ApiKey.LIST_TRANSACTIONS, message)
        if response.error_code:
            raise read_error(response.error_code)
        return response

    found = [
        ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state)
        for response in await by_broker(admin.cluster, send)
        for each in response.transaction_states
    ]
    return sorted(found, key=lambda each: each.transactional_id)


async def describe_transactions(
    admin: AsyncAdmin, ids: Sequence[str]
) -> dict[str, TransactionDescription | KafkaError]:
    """Describe transactional ids."""
    return {each: await _describe(admin, each) for each in ids}


async def _describe(admin: AsyncAdmin, transactional_id: str) -> TransactionDescription | KafkaError:
    attempts = admin.cluster.attempts()
    while True:
        try:
            return await _describe_once(admin, transactional_id)
        except TransactionalIdNotFound:
            return TransactionalIdNotFound(f"transactional id {transactional_id!r} does not exist")
        except KafkaError as error:
            if not error.retriable or not await attempts.pause():
                return error


async def _describe_once(admin: AsyncAdmin, transactional_id: str) -> TransactionDescription:
    node = await _coordinator(admin, transactional_id)
    connection = await admin.cluster.connection(node)
    response = await connection.request(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [transactional_id]})
    (found,) = response.transaction_states
    if found.error_code:
        raise read_error(found.error_code)
    return TransactionDescription(
        transactional_id,
        node.id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout,
        found.transaction_start_time if found.transaction_start_time >= 0 else None,
        tuple(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions),
    )


async def _coordinator(admin: AsyncAdmin, transactional_id: str) -> Node:
    message = {
        "key": transactional_id,
        "key_type": TRANSACTION_KEY_TYPE,
        "coordinator_keys": [transactional_id],
    }
    response = await admin.cluster.request(ApiKey.FIND_COORDINATOR, message)
    found = response.coordinators[0] if getattr(response, "coordinators", None) else response
    if found.error_code:
        raise read_error(found.error_code, found.error_message)
    return Node(found.node_id, found.host, found.port)


async def open_transactions(admin: AsyncAdmin, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
    """The transactions that are open in these partitions."""
    described = await admin.describe_producers(list(partitions), raise_errors=False)
    return [
        OpenTransaction(partition, producer)
        for partition, producers in sorted(described.items())
        for producer in producers
        if producer.transaction_start_offset is not None
    ]


async def without_coordinator(admin: AsyncAdmin, suspects: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Those transactions that no coordinator knows."""
    if not suspects:
        return []
    listed = await list_transactions(admin, producer_ids={each.producer.producer_id for each in suspects})
    described = await describe_transactions(admin, [each.transactional_id for each in listed])
    known = {
        (each.producer_id, partition)
        for each in described.values()
        if isinstance(each, TransactionDescription)
        for partition in each.partitions
    }
    return [each for each in suspects if (each.producer.producer_id, each.partition) not in known]


async def abort_transaction(admin: AsyncAdmin, partition: TopicPartition, marker: AbortMarker) -> KafkaError | None:
    """Let the partition's leader write an abort marker; returns the error, if any."""

    async def send(connection: Connection, work: Mapping[TopicPartition, AbortMarker]) -> Outcomes[None]:
        response = await connection.request(ApiKey.WRITE_TXN_MARKERS, {"markers": [_marker(work)]})
        return {
            TopicPartition(topic.name, one.partition_index): (read_error(one.error_code) if one.error_code else None)
            for answer in response.markers
            for topic in answer.topics
            for one in topic.partitions
        }

    await admin.cluster.refresh([partition.topic])
    return (await admin.cluster.by_leader({partition: marker}, send))[partition]


def _marker(work: Mapping[TopicPartition, AbortMarker]) -> dict[str, object]:
    (marker,) = set(work.values())
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_result": False,
        "topics": [
            {"name": topic, "partition_indexes": [key.partition for key in keys]}
            for topic, keys in by_topic(work).items()
        ],
    }
