"""Create, grow, delete and configure topics, in the metadata and on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias
from uuid import uuid4

from ottla import errors
from ottla.broker.node import Node
from ottla.broker.partition import Partition
from ottla.config import effective_topic_config
from ottla.machine import Outcome
from ottla.metadata import MetadataRecord, PartitionState, Topic
from ottla.metadata.machine import INTERNAL_TOPICS, check_topic_name
from ottla.metadata.records import TopicCreated
from ottla.types import TopicPartition

#: Creating files blocks the event loop. After this many partitions other requests run.
PARTITIONS_AT_ONCE = 20
Assignments: TypeAlias = Sequence[Sequence[int]]
"""The brokers of each new partition."""


async def create_topic(
    node: Node,
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    *,
    replication_factor: int = 1,
    assignments: Assignments | None = None,
    validate_only: bool = False,
) -> Topic:
    """Create a topic with its logs, or raise a Kafka error."""
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
    if validate_only:
        (created,) = operation(now=node.clock.now()).records
        assert isinstance(created, TopicCreated)
        return Topic(name, created.topic_id, [PartitionState.new(each) for each in created.replicas], configs)
    return await node.changes.run(_create_topic(node, name, operation))


async def _create_topic(node: Node, name: str, operation: Callable[..., Outcome[MetadataRecord, None]]) -> Topic:
    async with node.topics_lock:
        await node.controller.run(operation)
        topic = node.metadata.topics[name]
        await open_partitions(node, topic)
    await node.groups.topic_changed(name, created=True)
    return topic


async def ensure_topic(node: Node, name: str) -> Topic:
    """Return a topic; create it with the broker's defaults if it does not exist."""
    if name not in node.metadata.topics:
        try:
            factor = node.config.default_replication_factor
            return await create_topic(node, name, node.config.num_partitions, {}, replication_factor=factor)
        except errors.TopicAlreadyExists:
            pass
    return node.metadata.topic(name)


async def ensure_internal_topic(node: Node, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Create a topic that only the broker writes, if it does not exist."""
    if name not in node.metadata.topics:
        try:
            await create_topic(node, name, partitions, configs)
        except errors.TopicAlreadyExists:
            pass


async def add_partitions(
    node: Node, name: str, partitions: int, *, assignments: Assignments | None, validate_only: bool
) -> None:
    """Increase the number of partitions of a topic."""
    if _is_own(node, name):
        # Kafka allows it, and then looks for most groups and transactions in the wrong partitions.
        raise errors.InvalidRequest(
            f"The number of partitions of {name} cannot change: the broker finds groups and transactions by it."
        )
    operation = partial(node.metadata.add_partitions, name, partitions, assignments=assignments)
    operation(now=node.clock.now())
    if not validate_only:
        await node.changes.run(_add_partitions(node, name, operation))


async def _add_partitions(node: Node, name: str, operation: Callable[..., Outcome[MetadataRecord, None]]) -> None:
    async with node.topics_lock:
        await node.controller.run(operation)
        await open_partitions(node, node.metadata.topics[name])
    await node.groups.topic_changed(name)


async def delete_topic(node: Node, name: str) -> None:
    """Delete a topic. Its files are removed later, in the background."""
    if not node.config.delete_topic_enable:
        raise errors.TopicDeletionDisabled("Topics cannot be deleted: set delete.topic.enable=true on the broker.")
    if _is_own(node, name):
        # Without it, groups would lose their offsets and transactions could not end.
        raise errors.InvalidRequest(f"{name} is internal. To delete a group use ottla groups delete.")
    await node.changes.run(_delete_topic(node, name))


def _is_own(node: Node, name: str) -> bool:
    return name in INTERNAL_TOPICS and name in node.metadata.topics


async def _delete_topic(node: Node, name: str) -> None:
    async with node.topics_lock:
        await node.controller.run(node.metadata.delete_topic, name)
        partitions = node.partitions.pop(name, [])
        for partition in partitions:
            node.logs.delete(partition.log.topic_partition)
            partition.release_waiters()
    await node.groups.topic_changed(name, deleted=[partition.log.topic_partition for partition in partitions])


async def set_topic_configs(node: Node, name: str, configs: Mapping[str, str]) -> None:
    """Replace the overrides of a topic, starting with the next append."""
    config = effective_topic_config(node.config, configs)
    await node.controller.run(node.metadata.set_topic_configs, name, configs)
    for partition in node.partitions.get(name, []):
        partition.log.config = config


async def open_partitions(node: Node, topic: Topic) -> None:
    """Open the logs of a topic, and create missing ones."""
    config = effective_topic_config(node.config, topic.configs)
    opened = list(node.partitions.get(topic.name, []))
    for index in range(len(opened), topic.partitions):
        topic_partition = TopicPartition(topic.name, index)
        log = node.logs.get(topic_partition) or node.logs.create(topic_partition, topic.topic_id, config)
        log.config = config
        opened.append(Partition(topic.name, index, log, topic.states[index].leader_epoch, node.logs.flusher))
        if index % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
            await asyncio.sleep(0)
    # All at once: a client that sees a topic sees all of its partitions.
    node.partitions[topic.name] = opened
