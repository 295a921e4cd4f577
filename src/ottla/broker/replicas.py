"""The replicas on this broker, kept as the metadata says: opened, leading, following, deleted.

Every committed batch of metadata records is applied once, in order, after it was replayed (`Replicas.apply`). One
broker and a cluster take the same path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla import errors
from ottla.broker.configs import use_dynamic_configs
from ottla.broker.partition import LeaderSettings, Partition
from ottla.broker.quotas import use_quotas
from ottla.config import effective_topic_config
from ottla.metadata import MetadataRecord, PartitionState, Topic
from ottla.metadata import records as r
from ottla.metadata.values import NO_LEADER
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.node import Node

#: Creating files blocks the event loop. After this many partitions other requests run.
PARTITIONS_AT_ONCE = 20
logger = logging.getLogger("ottla.replicas")


class Replicas:
    """Applies the metadata to the partitions of this broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        # A topic becomes visible with all its partitions, so batches are applied one after the other.
        self._lock = asyncio.Lock()
        self._is_open = False

    async def open(self) -> None:
        """Open the replicas of all topics and give them their roles, when the broker starts or is registered anew."""
        async with self._lock:
            for topic in list(self._node.metadata.topics.values()):
                await self.update(topic)
        # A coordinator may write to any topic as soon as it is loaded.
        if self._node.has_roles and not self._is_open:
            self._is_open = True
            for partition in list(self._node.local()):
                self._node.coordinators_changed(partition)

    async def apply(self, records: Sequence[MetadataRecord]) -> Changes:
        """Do what replayed records mean for this broker. `tell_groups` must follow, which may wait for replicas."""
        changes = Changes(records)
        async with self._lock:
            for name in changes.deleted:
                changes.deleted[name] += self._delete(name)
            for name in changes.partitions:
                topic = self._node.metadata.topics.get(name)
                if topic is not None:
                    await self.update(topic)
            if changes.broker_configs:
                use_dynamic_configs(self._node)
            if changes.quotas:
                use_quotas(self._node)
            for name in list(self._node.partitions) if changes.broker_configs else changes.configured:
                self._configure(name)
        return changes

    async def tell_groups(self, changes: Changes) -> None:
        """Tell the groups on this broker which topics came, went or have grown."""
        groups = self._node.groups
        for name, deleted in changes.deleted.items():
            await groups.topic_changed(name, deleted=deleted)
        for name in changes.counted:
            if name in self._node.metadata.topics:
                await groups.topic_changed(name, created=name in changes.created)

    def _delete(self, name: str) -> list[TopicPartition]:
        """Stop to serve a deleted topic. Its files are removed later, in the background."""
        partitions = self._node.partitions.pop(name, [])
        for index, partition in enumerate(partitions):
            self._forget_failure(name, index)
            if partition is not None:
                self.drop(partition)
        return [TopicPartition(name, index) for index in range(len(partitions))]

    def drop(self, partition: Partition) -> None:
        """Stop to serve a replica and delete its log."""
        self._close(partition)
        self._node.logs.delete(partition.log.topic_partition)

    def _close(self, partition: Partition, error: errors.KafkaError | None = None) -> None:
        node = self._node
        partition.close(error)
        if node.cluster is not None:
            node.cluster.fetchers.forget(partition)
        node.coordinators_changed(partition)

    # ── failed disks ──────────────────────────────────────────────────────────────────────────────────────────────

    def directory_failed(self, directory: Path, partitions: Iterable[TopicPartition]) -> None:
        """A disk has failed. Stop to serve its replicas, and tell the controller, so that others lead."""
        for place in partitions:
            self._take_offline(place, self._node.logs.failed_dirs[directory])

    def miss_failed_disks(self) -> None:
        """At a start with failed disks: a replica that is on no other disk is offline, and not created again."""
        node = self._node
        if not node.logs.failed_dirs:
            return
        for topic in node.metadata.topics.values():
            for index, state in enumerate(topic.states):
                place = TopicPartition(topic.name, index)
                if node.id in state.replicas and node.logs.get(place) is None:
                    self._take_offline(place, node.logs.miss(place))

    def _take_offline(self, place: TopicPartition, problem: str) -> None:
        node = self._node
        node.offline[place] = problem
        opened = node.partitions.get(place.topic, [])
        if place.partition < len(opened) and (partition := opened[place.partition]) is not None:
            opened[place.partition] = None
            self._close(partition, errors.KafkaStorageError(f"The replica {place} is offline: {problem}."))
        if node.cluster is not None:
            node.cluster.disks.report()

    def _forget_failure(self, topic: str, index: int) -> None:
        """The replica is not to be here any more."""
        offline = self._node.offline
        if offline and offline.pop(place := TopicPartition(topic, index), None) is not None:
            self._node.logs.forget_failure(place)

    # ── roles ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def update(self, topic: Topic) -> None:
        """Open the replicas of a topic that belong here, give them their roles, and delete those that moved away."""
        node = self._node
        if (known := node.partitions.get(topic.name)) and _is_another(known, topic):
            self._delete(topic.name)
        opened = list(node.partitions.get(topic.name, []))
        opened += [None] * (topic.partitions - len(opened))
        for index, state in enumerate(topic.states):
            partition = opened[index]
            if node.id not in state.replicas:
                self._forget_failure(topic.name, index)
                if partition is not None:
                    self.drop(partition)
                    opened[index] = None
            elif partition is None:
                opened[index] = self._open(topic, index)
                if index % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                    await asyncio.sleep(0)
        for place in node.offline:
            if place.topic == topic.name:
                opened[place.partition] = None  # Its disk has failed meanwhile.
        # All at once: a client that sees a topic sees all of its partitions.
        node.partitions[topic.name] = opened
        for partition in opened:
            if partition is not None and partition.state != (state := topic.states[partition.index]):
                try:
                    self._take_role(topic, partition, state)
                except errors.KafkaStorageError as error:
                    logger.error("%s-%d: %s", topic.name, partition.index, error)
                except Exception:
                    # The others must get their roles: nobody else leads them.
                    logger.exception("the replica %s-%d could not take its role", topic.name, partition.index)

    def _open(self, topic: Topic, index: int) -> Partition | None:
        node = self._node
        config = effective_topic_config(node.config, topic.configs)
        place = TopicPartition(topic.name, index)
        if place in node.offline:
            return None
        try:
            log = node.logs.get(place) or node.logs.create(place, topic.topic_id, config)
        except errors.KafkaStorageError as error:
            if node.logs.on_directory_failed is None:
                raise
            logger.error("the replica %s is offline: %s", place, error)
            self._take_offline(place, str(error))
            return None
        log.config = config
        watermark = node.logs.checkpointed_high_watermark(log)
        partition = Partition(topic.name, index, log, node.logs.flusher, watermark)
        if node.cluster is not None:
            partition.on_change = node.cluster.in_sync.may_change
        return partition

    def _take_role(self, topic: Topic, partition: Partition, state: PartitionState) -> None:
        node = self._node
        if not node.has_roles:
            return
        if state.leader == node.id:
            if partition.is_leader:
                node.metrics.replication.isr_changed(partition.state, state)
            began = partition.lead(state, node.id, self._settings(topic), now=node.clock.now())
        elif state.leader == NO_LEADER:
            partition.rest(state)
            began = True
        else:
            began = partition.follow(state)
        if node.cluster is not None:
            node.cluster.fetchers.update(partition)
        if began and self._is_open:
            node.coordinators_changed(partition)

    def _settings(self, topic: Topic) -> LeaderSettings:
        settings = self._node.metadata.settings(topic)
        return LeaderSettings(settings.min_isr, self._node.config.replica_lag_time_max_ms, self._node.metadata.brokers)

    def _configure(self, name: str) -> None:
        """Use new configs of a topic, starting with the next append."""
        topic = self._node.metadata.topics.get(name)
        if topic is None:
            return
        config = effective_topic_config(self._node.config, topic.configs)
        settings = self._settings(topic)
        for partition in self._node.local(name):
            partition.log.config = config
            partition.settings_changed(settings, now=self._node.clock.now())


class Changes:
    """The topics that records concern, each once, in order."""

    def __init__(self, records: Iterable[MetadataRecord]) -> None:
        self.deleted: dict[str, list[TopicPartition]] = {}
        self.partitions: dict[str, None] = {}
        self.created: dict[str, None] = {}
        self.counted: dict[str, None] = {}
        """Topics whose number of partitions changed, which groups must know."""
        self.configured: dict[str, None] = {}
        self.broker_configs = False
        self.quotas = False
        for record in records:
            self._add(record)

    def _add(self, record: MetadataRecord) -> None:
        match record:
            case r.TopicCreated(name):
                self.created[name] = self.counted[name] = self.partitions[name] = None
            case r.PartitionsAdded(name):
                self.counted[name] = self.partitions[name] = None
            case r.PartitionsChanged(name):
                self.partitions[name] = None
            case r.TopicDeleted(name):
                self.deleted[name] = []
            case r.TopicConfigsSet(name):
                self.configured[name] = None
            case r.BrokerConfigsSet():
                self.broker_configs = True
            case r.ClientQuotasSet():
                self.quotas = True


def _is_another(partitions: Sequence[Partition | None], topic: Topic) -> bool:
    """Whether the open partitions belong to a deleted topic with the same name."""
    return any(each is not None and each.log.topic_id != topic.topic_id for each in partitions)
