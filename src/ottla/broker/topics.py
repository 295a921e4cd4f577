"""Create, grow, delete and configure topics. `replicas.py` does on disk what the controller has decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from ottla import errors
from ottla.broker.node import Node
from ottla.config import effective_topic_config
from ottla.machine import Outcome
from ottla.metadata import MetadataRecord, PartitionState, Topic
from ottla.metadata.machine import INTERNAL_TOPICS, check_topic_name
from ottla.metadata.records import TopicCreated

Assignments: TypeAlias = Sequence[Sequence[int]]
"""The brokers of each new partition."""
Charge: TypeAlias = Callable[[int], None]
"""Counts partitions against the quota of a client. It raises ThrottlingQuotaExceeded if that is used up."""


def free(partitions: int) -> None:
    """Count nothing."""


async def create_topic(
    node: Node,
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    *,
    replication_factor: int = 1,
    assignments: Assignments | None = None,
    validate_only: bool = False,
    charge: Charge = free,
) -> Topic:
    """Create a topic, or raise a Kafka error. Only the controller can."""
    check_topic_name(name)
    effective_topic_config(node.config, configs)
    operation = partial(
        node.metadata.create_topic,
        name,
        uuid4(),
        partitions,
        configs,
        replication_factor=replication_factor,
        assignments=assignments,
    )
    decided = []

    def decide(**time: Any) -> Outcome[MetadataRecord, None]:
        decided.append(operation(**time))
        charge(_created(decided[-1]).partitions)
        return decided[-1]

    if validate_only:
        return _created(decide(now=node.clock.now()))

    await node.changes.run(node.controller.run(decide))
    return _created(decided[-1])  # Another request may have deleted it meanwhile.


def _created(outcome: Outcome[MetadataRecord, None]) -> Topic:
    record = outcome.records[0]
    assert isinstance(record, TopicCreated)
    states = [PartitionState.new(replicas) for replicas in record.replicas]
    return Topic(record.name, record.topic_id, states, record.configs)


async def ensure_topic(
    node: Node,
    name: str,
    partitions: int | None = None,
    configs: Mapping[str, str] | None = None,
    replication_factor: int | None = None,
) -> Topic:
    """Return a topic; create it, by default with the broker's defaults, if it does not exist."""
    if name not in node.metadata.topics:
        partitions = node.config.num_partitions if partitions is None else partitions
        factor = node.config.default_replication_factor if replication_factor is None else replication_factor
        try:
            if node.cluster is not None and not node.cluster.is_controller:
                await node.cluster.requests.create_topic(name, partitions, configs or {}, factor)
            else:
                await create_topic(node, name, partitions, configs or {}, replication_factor=factor)
        except errors.TopicAlreadyExists:
            pass
        except errors.NotController as error:
            raise errors.LeaderNotAvailable(f"The topic '{name}' cannot be created now: {error}") from error
    return node.metadata.topic(name)


async def add_partitions(
    node: Node,
    name: str,
    partitions: int,
    *,
    assignments: Assignments | None,
    validate_only: bool,
    charge: Charge = free,
) -> None:
    """Increase the number of partitions of a topic."""
    if _is_own(node, name):
        # Kafka allows it, and then looks for most groups and transactions in the wrong partitions.
        raise errors.InvalidRequest(
            f"The number of partitions of {name} cannot change: the broker finds groups and transactions by it."
        )
    operation = partial(node.metadata.add_partitions, name, partitions, assignments=assignments)
    operation(now=node.clock.now())
    charge(partitions - node.metadata.topic(name).partitions)
    if not validate_only:
        await node.changes.run(node.controller.run(operation))


async def delete_topic(node: Node, name: str, charge: Charge = free) -> None:
    """Delete a topic. Its files are removed later, in the background."""
    if not node.config.delete_topic_enable:
        raise errors.TopicDeletionDisabled("Topics cannot be deleted: set delete.topic.enable=true on the broker.")
    if _is_own(node, name):
        # Without it, groups would lose their offsets and transactions could not end.
        raise errors.InvalidRequest(f"{name} is internal. To delete a group use ottla groups delete.")
    charge(node.metadata.topic(name).partitions)
    await node.changes.run(node.controller.run(node.metadata.delete_topic, name))


def _is_own(node: Node, name: str) -> bool:
    return name in INTERNAL_TOPICS and name in node.metadata.topics
