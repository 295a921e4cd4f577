"""The metadata machine: each operation checks a wish and returns the records that grant it; ``replay`` changes the
state.

Where an operation cannot be granted it raises the Kafka error that the client is told.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from ottla import errors
from ottla.machine import Machine, Outcome
from ottla.metadata import records as r
from ottla.types import Millis, wrong_with_topic_name

PRODUCER_ID_BLOCK = 1000
#: As Kafka: more in one request would stop the controller for too long.
MAX_PARTITIONS_PER_REQUEST = 10_000
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})


@dataclass(frozen=True, slots=True)
class Topic:
    """What is known of a topic."""

    name: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str]
    leader_epoch: int = 0

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicException for a name that Kafka does not allow.

    >>> check_topic_name("orders.v1")
    """
    if (problem := wrong_with_topic_name(name)) is not None:
        raise errors.InvalidTopicException(f"The topic name {name[:300]!r} {problem}.")


class Metadata(Machine[r.MetadataRecord]):
    """Topics, dynamic configs and producer ids of a cluster."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.broker_configs: dict[str, str] = {}
        self.cluster_configs: dict[str, str] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.next_producer_id = 0

    # ── operations ────────────────────────────────────────────────────────────────────────────────────────────────

    def create_topic(
        self, name: str, topic_id: UUID, partitions: int, configs: Mapping[str, str], *, now: Millis
    ) -> Outcome[r.MetadataRecord, None]:
        """Create a topic. Its configs have been checked."""
        check_topic_name(name)
        if name in self.topics:
            raise errors.TopicAlreadyExists(f"Topic '{name}' already exists.")
        self._check_collision(name)
        if not 1 <= partitions <= MAX_PARTITIONS_PER_REQUEST:
            raise errors.InvalidPartitions(
                f"The number of partitions must be between 1 and {MAX_PARTITIONS_PER_REQUEST}, not {partitions}."
            )
        return Outcome((r.TopicCreated(name, topic_id, partitions, dict(configs)),), None)

    def _check_collision(self, name: str) -> None:
        # '.' and '_' become the same character in the names of metrics, as in Kafka.
        folded = name.replace(".", "_")
        if "_" not in folded:
            return
        for other in self.topics:
            if other.replace(".", "_") == folded:
                raise errors.InvalidTopicException(f"Topic '{name}' collides with the existing topic '{other}'.")

    def add_partitions(self, name: str, partitions: int, *, now: Millis) -> Outcome[r.MetadataRecord, None]:
        """Raise the number of partitions of a topic."""
        topic = self.topic(name)
        if partitions == topic.partitions:
            raise errors.InvalidPartitions(f"Topic already has {partitions} partition(s).")
        if partitions < topic.partitions:
            raise errors.InvalidPartitions(
                f"The topic {name} has {topic.partitions} partition(s) now; {partitions} would not be an increase."
            )
        if partitions - topic.partitions > MAX_PARTITIONS_PER_REQUEST:
            raise errors.InvalidPartitions(f"At most {MAX_PARTITIONS_PER_REQUEST} partitions can be added at once.")
        return Outcome((r.PartitionsAdded(name, partitions),), None)

    def delete_topic(self, name: str, *, now: Millis) -> Outcome[r.MetadataRecord, None]:
        """Delete a topic."""
        return Outcome((r.TopicDeleted(self.topic(name).name),), None)

    def set_topic_configs(
        self, name: str, configs: Mapping[str, str], *, now: Millis
    ) -> Outcome[r.MetadataRecord, None]:
        """Replace the overrides of a topic. They have been checked."""
        self.topic(name)
        return Outcome((r.TopicConfigsSet(name, dict(configs)),), None)

    def set_broker_configs(
        self, configs: Mapping[str, str], *, cluster_wide: bool, now: Millis
    ) -> Outcome[r.MetadataRecord, None]:
        """Replace the dynamic configs of the broker or of the cluster. They have been checked."""
        return Outcome((r.BrokerConfigsSet(cluster_wide, dict(configs)),), None)

    def set_group_configs(
        self, group_id: str, configs: Mapping[str, str], *, now: Millis
    ) -> Outcome[r.MetadataRecord, None]:
        """Replace the overrides of a group, which need not be there yet. They have been checked."""
        return Outcome((r.GroupConfigsSet(group_id, dict(configs)),), None)

    def take_producer_ids(self, *, now: Millis) -> Outcome[r.MetadataRecord, range]:
        """Take a block of producer ids: after a crash the next one begins behind it, so none is given twice."""
        block = range(self.next_producer_id, self.next_producer_id + PRODUCER_ID_BLOCK)
        return Outcome((r.ProducerIdsTaken(block.stop),), block)

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[r.MetadataRecord, None]:
        """There are no timers here."""
        return Outcome((), None)

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def topic(self, name: str) -> Topic:
        """Return a topic, or raise UnknownTopicOrPartition."""
        topic = self.topics.get(name)
        if topic is None:
            raise errors.UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
        return topic

    def replay(self, record: r.MetadataRecord, /) -> None:
        """Change the state by one record."""
        match record:
            case r.TopicCreated(name, topic_id, partitions, configs):
                self._put(Topic(name, topic_id, partitions, configs))
            case r.PartitionsAdded(name, partitions):
                self._put(replace(self.topics[name], partitions=partitions))
            case r.TopicConfigsSet(name, configs):
                self._put(replace(self.topics[name], configs=configs))
            case r.LeaderEpochSet(name, leader_epoch):
                self._put(replace(self.topics[name], leader_epoch=leader_epoch))
            case r.LeaderEpochsRaised():
                for topic in list(self.topics.values()):
                    self._put(replace(topic, leader_epoch=topic.leader_epoch + 1))
            case r.TopicDeleted(name):
                del self.topics_by_id[self.topics.pop(name).topic_id]
            case r.BrokerConfigsSet(cluster_wide, configs):
                if cluster_wide:
                    self.cluster_configs = dict(configs)
                else:
                    self.broker_configs = dict(configs)
            case r.GroupConfigsSet(group_id, configs):
                if configs:
                    self.group_configs[group_id] = configs
                else:
                    self.group_configs.pop(group_id, None)
            case r.ProducerIdsTaken(next_producer_id):
                self.next_producer_id = next_producer_id
            case r.ClusterCreated(cluster_id):
                self.cluster_id = cluster_id

    def _put(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic

    def snapshot(self) -> Iterator[r.MetadataRecord]:
        """Give the shortest sequence of records that replays to this state."""
        yield r.ClusterCreated(self.cluster_id)
        if self.next_producer_id:
            yield r.ProducerIdsTaken(self.next_producer_id)
        for cluster_wide, configs in ((True, self.cluster_configs), (False, self.broker_configs)):
            if configs:
                yield r.BrokerConfigsSet(cluster_wide, configs)
        for group_id, own in self.group_configs.items():
            yield r.GroupConfigsSet(group_id, dict(own))
        for topic in self.topics.values():
            yield r.TopicCreated(topic.name, topic.topic_id, topic.partitions, dict(topic.configs))
            if topic.leader_epoch:
                yield r.LeaderEpochSet(topic.name, topic.leader_epoch)
