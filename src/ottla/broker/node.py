"""The state of a broker as its handlers see it: config, metadata, partitions, sessions, metrics."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla import errors
from ottla.broker.authorization import Refusals
from ottla.broker.changes import Changes
from ottla.broker.deferred import DeferredBatches
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.instruments import Instruments
from ottla.broker.partition import Partition
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.replicas import Replicas
from ottla.broker.throttles import Throttles
from ottla.config import BrokerConfig
from ottla.config.listeners import Listener
from ottla.metadata import Metadata, Topic
from ottla.metadata.values import CONSUMER_OFFSETS, NO_LEADER, TRANSACTION_STATE
from ottla.net.server.connection import Connection
from ottla.net.server.turn import Turn
from ottla.runtime.clock import Clock
from ottla.security.authorizer import Authorizer
from ottla.security.principals import Principal
from ottla.storage.log import Log
from ottla.storage.manager import LogManager
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.cluster.member import Cluster
    from ottla.broker.controller import Controller
    from ottla.broker.groups import Groups
    from ottla.broker.quotas import Quotas
    from ottla.broker.transactions import Transactions


class Call(NamedTuple):
    """What a handler may know of a request besides its body."""

    connection: Connection
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None

    @property
    def principal(self) -> Principal:
        """Who sent the request."""
        return self.connection.channel.principal


class Address(NamedTuple):
    """A broker as clients are told to find it."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class Node:
    """The state of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: Metadata,
        logs: LogManager,
        turn: Turn,
    ) -> None:
        self.config = config
        self.clock = clock
        self.metadata = metadata
        self.controller: Controller
        """Runs the operations of the metadata machine, which decides about topics, configs and producer ids."""
        self.logs = logs
        self.partitions: dict[str, list[Partition | None]] = {}
        """The partitions of each topic; None for one without a replica here."""
        self.offline: dict[TopicPartition, str] = {}
        """The replicas on this broker whose disk has failed, and what is wrong with it."""
        self.replicas = Replicas(self)
        self.cluster: Cluster | None = None
        """What a member of a cluster needs; None if this is the only broker."""
        self.sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, _random_id)
        self.producer_ids = ProducerIds(self)
        self.deferred = DeferredBatches()
        self.metrics = Instruments()
        self.throttles = Throttles(self)
        self.turn = turn
        self.groups: Groups
        self.transactions: Transactions
        self.advertised: Callable[[str], Listener]
        """Returns the address of a listener for clients. An empty host means the one that the client connected to."""
        self.forwarded: Callable[[Connection, memoryview], Awaitable[bytes]]
        """Answers a request that another broker forwarded."""
        self.broker_epoch = -1
        """Of this broker in its cluster."""
        self.check_config: Callable[[BrokerConfig], None] = lambda _: None
        """Raises ConfigError if this broker could not use a new config."""
        self.on_config_change: Callable[[], None] = lambda: None
        # Topics are created, changed and deleted one after the other; clients ask for the same one at the same time.
        self.topics_lock = asyncio.Lock()
        self.changes = Changes()
        self.authorizer: Authorizer | None = None
        """Decides what clients may do; None if they may do everything."""
        self.refusals = Refusals(self)
        self.quotas: Quotas | None = None
        """Counts what clients use, if any client has a quota."""
        self.request_quotas: Quotas | None = None
        """The same, if any client has a quota for the time of its requests."""
        self.on_quotas_change: Callable[[], None] = lambda: None

    @property
    def id(self) -> int:
        """The id of this broker."""
        return self.config.id

    def address(self, connection: Connection) -> tuple[str, int]:
        """Return the address that a client on this connection is told to find the broker at: that of its listener."""
        listener = self.advertised(connection.listener)
        return listener.host or connection.channel.local_host, listener.port

    def partition(self, topic: str, index: int) -> Partition:
        """Return a replica on this broker, or raise UnknownTopicOrPartition or NotLeaderOrFollower."""
        partitions = self.partitions.get(topic, ())
        partition = partitions[index] if 0 <= index < len(partitions) else None
        if partition is None:
            if not self.exists(topic, index):
                raise errors.UnknownTopicOrPartition(f"The partition {topic}-{index} does not exist.")
            if self.offline and (problem := self.offline.get(TopicPartition(topic, index))) is not None:
                raise errors.KafkaStorageError(f"The replica of {topic}-{index} on this broker is offline: {problem}.")
            raise errors.NotLeaderOrFollower(f"This broker has no replica of {topic}-{index}. Refresh the metadata.")
        return partition

    def leading(self, topic: str, index: int) -> Partition:
        """Return a partition that this broker leads, or raise NotLeaderOrFollower too."""
        partition = self.partition(topic, index)
        if not partition.is_leader:
            raise partition.not_leader()
        return partition

    def high_watermark(self, log: Log) -> int:
        """Return the high watermark of a log, which limits retention and compaction."""
        partitions, index = self.partitions.get(log.topic_partition.topic, ()), log.topic_partition.partition
        partition = partitions[index] if index < len(partitions) else None
        return self.logs.checkpointed_high_watermark(log) if partition is None else partition.high_watermark

    @property
    def has_roles(self) -> bool:
        """Whether this broker may lead and follow: in a cluster it must be registered."""
        if self.cluster is None:
            return True
        state = self.metadata.brokers.get(self.id)
        return state is not None and state.epoch == self.broker_epoch

    def local(self, topic: str | None = None) -> Iterator[Partition]:
        """Iterate over the replicas on this broker, of one topic or of all."""
        lists = self.partitions.values() if topic is None else (self.partitions.get(topic, ()),)
        return (partition for partitions in lists for partition in partitions if partition is not None)

    def leader_of(self, place: TopicPartition) -> int:
        """Return the id of the broker that leads a partition; raise if it does not exist or has no leader."""
        if not self.exists(place.topic, place.partition):
            raise errors.UnknownTopicOrPartition(f"The partition {place} does not exist.")
        leader = self.metadata.topics[place.topic].states[place.partition].leader
        if leader == NO_LEADER:
            raise errors.LeaderNotAvailable(f"The partition {place} has no leader now.")
        return leader

    def exists(self, topic: str, index: int) -> bool:
        """Whether the topic has such a partition, here or on another broker."""
        known = self.metadata.topics.get(topic)
        return known is not None and 0 <= index < known.partitions

    def coordinators_changed(self, partition: Partition) -> None:
        """Load or unload the coordinator of a partition whose role has changed."""
        if partition.topic == CONSUMER_OFFSETS:
            self.groups.shards.changed(partition)
        elif partition.topic == TRANSACTION_STATE:
            self.transactions.shards.changed(partition)

    @property
    def controller_id(self) -> int:
        """The id of the active controller, -1 if there is none now."""
        return self.id if self.cluster is None else self.cluster.controller_id

    def brokers(self, connection: Connection, *, fenced: bool = False) -> list[Address]:
        """Return the brokers with the addresses for a client on this connection, fenced ones too if asked for."""
        mine = Address(self.id, *self.address(connection), self.config.broker_rack)
        if self.cluster is None:
            return [mine]
        others = [each for each in self.cluster.brokers(connection.listener) if fenced or not each.is_fenced]
        return [mine if each.broker_id == self.id else each for each in others]

    def topic_by_id(self, topic_id: UUID | None) -> Topic:
        """Return the topic of an id, or raise UnknownTopicId."""
        topic = self.metadata.topics_by_id.get(topic_id) if topic_id is not None else None
        if topic is None:
            raise errors.UnknownTopicId(f"There is no topic with the id {topic_id}.")
        return topic


def _random_id() -> int:
    return secrets.randbelow(2**31 - 1) + 1
