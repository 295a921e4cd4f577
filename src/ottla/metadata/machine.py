"""The metadata state machine. An operation checks a request and returns records. ``replay`` changes the state.

An invalid request raises the Kafka error for the client.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from ottla import errors
from ottla.machine import Machine, Outcome
from ottla.metadata import records as r
from ottla.metadata.client_quotas import ClientQuotas
from ottla.metadata.elections import without_void_elr
from ottla.metadata.history import History
from ottla.metadata.placement import check_assignments, place
from ottla.metadata.users import Users
from ottla.metadata.values import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    TRANSACTION_STATE,
    BrokerState,
    PartitionState,
    ReplicationSettings,
    Topic,
)
from ottla.security.authorizer import Acls
from ottla.types import Millis, wrong_with_topic_name
from ottla.wording import plural

__all__ = ["CONSUMER_OFFSETS", "INTERNAL_TOPICS", "TRANSACTION_STATE", "Metadata", "Topic", "check_topic_name"]

PRODUCER_ID_BLOCK = 1000
#: Kafka's limit: a larger request would block the controller for too long.
MAX_PARTITIONS_PER_REQUEST = 10_000
MIN_ISR = "min.insync.replicas"
#: The most states in one record: it must fit into a node of ZooKeeper.
STATES_PER_RECORD = 2000


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicException for a name that Kafka does not allow.

    >>> check_topic_name("orders.v1")
    """
    if (problem := wrong_with_topic_name(name)) is not None:
        raise errors.InvalidTopicException(f"The topic name {name[:300]!r} {problem}.")


def _default_settings(topic: Topic) -> ReplicationSettings:
    return ReplicationSettings()


class Metadata(Machine[r.MetadataRecord]):
    """Brokers, topics, users, ACLs, dynamic configs and producer ids of a cluster."""

    def __init__(self, settings: Callable[[Topic], ReplicationSettings] = _default_settings) -> None:
        self.settings = settings
        self.acls = Acls()
        self.reset()

    def reset(self) -> None:
        """Forget everything: a snapshot follows."""
        self.cluster_id = ""
        self.brokers: dict[int, BrokerState] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.broker_configs: dict[int, dict[str, str]] = {}
        self.cluster_configs: dict[str, str] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.client_quotas = ClientQuotas()
        self.next_producer_id = 0
        self.users = Users()
        self.history = History()
        self.acls.clear()  # The authorizer keeps it.

    # ── operations ────────────────────────────────────────────────────────────────────────────────────────────────

    def create_topic(
        self,
        name: str,
        topic_id: UUID,
        partitions: int,
        configs: Mapping[str, str],
        *,
        replication_factor: int = 1,
        assignments: Sequence[Sequence[int]] | None = None,
        now: Millis,
    ) -> Outcome[r.MetadataRecord, None]:
        """Create a topic. The caller has checked the configs. ``assignments`` names the brokers of each partition."""
        check_topic_name(name)
        if name in self.topics:
            raise errors.TopicAlreadyExists(f"Topic '{name}' already exists.")
        self._check_collision(name)
        if not 1 <= partitions <= MAX_PARTITIONS_PER_REQUEST:
            raise errors.InvalidPartitions(
                f"The number of partitions must be between 1 and {MAX_PARTITIONS_PER_REQUEST}, not {partitions}."
            )
        replicas = self._placed(topic_id, range(partitions), replication_factor, assignments)
        created = r.fitting(r.TopicCreated(name, topic_id, partitions, dict(configs), replicas))
        return Outcome((created, *self._without_the_dead(name, range(partitions), replicas, now=now)), None)

    def _placed(
        self,
        topic_id: UUID,
        partitions: range,
        replication_factor: int,
        assignments: Sequence[Sequence[int]] | None,
    ) -> tuple[tuple[int, ...], ...]:
        """Return the brokers of new partitions. The id of the topic is random, and so is where the first one goes."""
        if assignments is None:
            return tuple(place(self.brokers.values(), partitions, replication_factor, start=topic_id.int))
        check_assignments(self.brokers, assignments, replication_factor if partitions.start else None)
        return tuple(map(tuple, assignments))

    def _without_the_dead(
        self, name: str, partitions: range, replicas: Sequence[tuple[int, ...]], *, now: Millis
    ) -> Iterator[r.PartitionsChanged]:
        """Yield the records that leave brokers out of the ISRs of new partitions if they are not alive."""
        active = self.active_brokers
        states = {}
        for index, each in zip(partitions, replicas, strict=True):
            if not active.issuperset(each):
                isr = tuple(broker_id for broker_id in each if broker_id in active)
                states[index] = PartitionState(each, isr, isr[0])
        yield from changed(name, states, "created while not all replicas were alive", at=now)

    def _check_collision(self, name: str) -> None:
        # As in Kafka, '.' and '_' become the same character in metric names.
        folded = name.replace(".", "_")
        if "_" not in folded:
            return
        for other in self.topics:
            if other.replace(".", "_") == folded:
                raise errors.InvalidTopicException(f"Topic '{name}' collides with the existing topic '{other}'.")

    def add_partitions(
        self, name: str, partitions: int, *, assignments: Sequence[Sequence[int]] | None = None, now: Millis
    ) -> Outcome[r.MetadataRecord, None]:
        """Raise the number of partitions of a topic. ``assignments`` names the brokers of each new partition."""
        topic = self.topic(name)
        if partitions == topic.partitions:
            raise errors.InvalidPartitions(f"The topic {name} already has {plural(partitions, 'partition')}.")
        if partitions < topic.partitions:
            raise errors.InvalidPartitions(
                f"The topic {name} has {topic.partitions} partitions. The new number must be higher, not {partitions}."
            )
        if partitions - topic.partitions > MAX_PARTITIONS_PER_REQUEST:
            raise errors.InvalidPartitions(f"One request can add at most {MAX_PARTITIONS_PER_REQUEST} partitions.")
        new = range(topic.partitions, partitions)
        replicas = self._placed(topic.topic_id, new, topic.replication_factor, assignments)
        added = r.PartitionsAdded(name, partitions, replicas)
        return Outcome((added, *self._without_the_dead(name, new, replicas, now=now)), None)

    def delete_topic(self, name: str, *, now: Millis) -> Outcome[r.MetadataRecord, None]:
        """Delete a topic."""
        return Outcome((r.TopicDeleted(self.topic(name).name),), None)

    def set_topic_configs(
        self, name: str, configs: Mapping[str, str], *, now: Millis
    ) -> Outcome[r.MetadataRecord, None]:
        """Replace the overrides of a topic. The caller has checked them."""
        topic = self.topic(name)
        min_isr = self.settings(replace(topic, configs=configs)).min_isr
        changed = r.fitting(r.TopicConfigsSet(name, dict(configs)))
        return Outcome((*_without_void_elrs(topic, min_isr, now=now), changed), None)

    def set_broker_configs(
        self, configs: Mapping[str, str], *, broker_id: int | None, now: Millis
    ) -> Outcome[r.MetadataRecord, None]:
        """Replace the dynamic configs of a broker, or with None of the cluster. The caller has checked them."""
        before = self.cluster_configs if broker_id is None else self.broker_configs.get(broker_id, {})
        records: list[r.MetadataRecord] = []
        if configs.get(MIN_ISR) != before.get(MIN_ISR):
            # What it means for each topic is seen only later, so the smallest value is supposed.
            for topic in self.topics.values():
                records += _without_void_elrs(topic, 1, now=now)
        is_of_cluster = broker_id is None
        changed = r.BrokerConfigsSet(is_of_cluster, dict(configs), -1 if broker_id is None else broker_id)
        records.append(r.fitting(changed))
        return Outcome(records, None)

    def set_group_configs(
        self, group_id: str, configs: Mapping[str, str], *, now: Millis
    ) -> Outcome[r.MetadataRecord, None]:
        """Replace the overrides of a group, which need not exist. The caller has checked them."""
        return Outcome((r.fitting(r.GroupConfigsSet(group_id, dict(configs))),), None)

    def take_producer_ids(self, *, now: Millis) -> Outcome[r.MetadataRecord, range]:
        """Reserve a block of producer ids. After a crash the next block starts after it, so no id is used twice."""
        block = range(self.next_producer_id, self.next_producer_id + PRODUCER_ID_BLOCK)
        return Outcome((r.ProducerIdsTaken(block.stop),), block)

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[r.MetadataRecord, None]:
        """Do nothing: metadata has no timers."""
        return Outcome((), None)

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def active_brokers(self) -> frozenset[int]:
        """The ids of the brokers that can lead partitions and join ISRs."""
        return frozenset(each.broker_id for each in self.brokers.values() if each.is_active)

    def topic(self, name: str) -> Topic:
        """Return a topic, or raise UnknownTopicOrPartition."""
        topic = self.topics.get(name)
        if topic is None:
            raise errors.UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
        return topic

    def replay(self, record: r.MetadataRecord, /) -> None:
        """Apply one record to the state."""
        match record:
            case r.TopicCreated(name, topic_id, partitions, configs, replicas):
                self._put(Topic(name, topic_id, _new_states(replicas, partitions), configs))
            case r.PartitionsAdded(name, partitions, replicas):
                states = self.topics[name].states
                states += _new_states(replicas, partitions - len(states))
            case r.PartitionsChanged(name, changed):
                states = self.topics[name].states
                if record.reason:
                    self.history.add(record, states)
                for index, state in changed.items():
                    states[index] = state
            case r.TopicConfigsSet(name, configs):
                self._put(replace(self.topics[name], configs=configs))
            case r.LeaderEpochSet(name, leader_epoch):
                states = self.topics[name].states
                states[:] = [replace(state, leader_epoch=leader_epoch) for state in states]
            case r.LeaderEpochsRaised():
                for topic in self.topics.values():
                    topic.states[:] = [replace(state, leader_epoch=state.leader_epoch + 1) for state in topic.states]
            case r.TopicDeleted(name):
                del self.topics_by_id[self.topics.pop(name).topic_id]
                self.history.forget(name)
            case r.HistoryKept():
                self.history.restore(record)
            case r.BrokerConfigsSet(cluster_wide, configs, broker_id):
                if cluster_wide:
                    self.cluster_configs = dict(configs)
                elif configs:
                    self.broker_configs[broker_id] = dict(configs)
                else:
                    self.broker_configs.pop(broker_id, None)
            case r.GroupConfigsSet(group_id, configs):
                if configs:
                    self.group_configs[group_id] = configs
                else:
                    self.group_configs.pop(group_id, None)
            case r.ClientQuotasSet():
                self.client_quotas.replay(record)
            case r.ProducerIdsTaken(next_producer_id):
                self.next_producer_id = next_producer_id
            case r.ClusterCreated(cluster_id):
                self.cluster_id = cluster_id
            case r.BrokerRegistered(broker_id, epoch, listeners, rack):
                self.brokers[broker_id] = BrokerState(broker_id, epoch, listeners, rack)
            case r.BrokerChanged(broker_id, epoch, is_fenced, is_shutting_down):
                self.brokers[broker_id] = replace(
                    self.brokers[broker_id], epoch=epoch, is_fenced=is_fenced, is_shutting_down=is_shutting_down
                )
            case r.BrokerUnregistered(broker_id):
                del self.brokers[broker_id]
            case r.UserCredentialSet():
                self.users.set(record)
            case r.UserCredentialRemoved(name, mechanism):
                self.users.remove(name, mechanism)
            case r.AclAdded(binding):
                self.acls.add(binding)
            case r.AclRemoved(binding):
                self.acls.remove(binding)

    def _put(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic

    def adopted_by(self, broker_id: int) -> Iterator[r.MetadataRecord]:
        """Yield records that give everything in the journal of an old broker, which did not name it, to a broker."""
        if (configs := self.broker_configs.get(-1)) is not None:
            yield r.BrokerConfigsSet(False, {}, -1)
            yield r.BrokerConfigsSet(False, configs, broker_id)
        new = PartitionState.new((broker_id,))
        for topic in self.topics.values():
            yield from changed(
                topic.name,
                {
                    index: replace(new, leader_epoch=state.leader_epoch)
                    for index, state in enumerate(topic.states)
                    if not state.replicas
                },
            )

    def snapshot(self) -> Iterator[r.MetadataRecord]:
        """Yield the shortest sequence of records that replays to this state."""
        yield r.ClusterCreated(self.cluster_id)
        for broker in self.brokers.values():
            yield r.BrokerRegistered(broker.broker_id, broker.epoch, broker.listeners, broker.rack)
            if not broker.is_active:
                yield r.BrokerChanged(broker.broker_id, broker.epoch, broker.is_fenced, broker.is_shutting_down)
        if self.next_producer_id:
            yield r.ProducerIdsTaken(self.next_producer_id)
        if self.cluster_configs:
            yield r.BrokerConfigsSet(True, self.cluster_configs)
        for broker_id, configs in self.broker_configs.items():
            yield r.BrokerConfigsSet(False, configs, broker_id)
        for group_id, own in self.group_configs.items():
            yield r.GroupConfigsSet(group_id, dict(own))
        yield from self.users.snapshot()
        yield from self.client_quotas.snapshot()
        yield from map(r.AclAdded, self.acls)
        for topic in self.topics.values():
            replicas = tuple(state.replicas for state in topic.states)
            yield r.TopicCreated(topic.name, topic.topic_id, topic.partitions, dict(topic.configs), replicas)
            states = enumerate(topic.states)
            yield from changed(
                topic.name, {i: state for i, state in states if state != PartitionState.new(state.replicas)}
            )
            yield from self.history.snapshot(topic.name)


def changed(
    name: str, states: Mapping[int, PartitionState], reason: str = "", *, at: Millis = 0
) -> Iterator[r.PartitionsChanged]:
    """Yield the records that give partitions of a topic new states."""
    items = list(states.items())
    for first in range(0, len(items), STATES_PER_RECORD):
        yield r.PartitionsChanged(name, dict(items[first : first + STATES_PER_RECORD]), reason, at)


def _without_void_elrs(topic: Topic, min_isr: int, *, now: Millis) -> Iterator[r.PartitionsChanged]:
    """Yield the records that end eligibility where a new minimum lets an ISR commit without the eligible replicas."""
    after = {index: without_void_elr(state, min_isr) for index, state in enumerate(topic.states)}
    states = {index: state for index, state in after.items() if state is not topic.states[index]}
    yield from changed(topic.name, states, f"{MIN_ISR} changed", at=now)


def _new_states(replicas: Sequence[Sequence[int]], count: int) -> list[PartitionState]:
    return [PartitionState.new(replicas[index] if replicas else ()) for index in range(count)]
