"""The state of a broker as its handlers see it: config, metadata, partitions, sessions, metrics."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla import errors
from ottla.broker.authorization import Authorizer
from ottla.broker.changes import Changes
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.instruments import Instruments
from ottla.broker.partition import Partition
from ottla.broker.producer_ids import ProducerIds
from ottla.config import BrokerConfig
from ottla.config.listeners import Listener
from ottla.metadata import Metadata, MetadataRecord, Topic
from ottla.net.server.channel import Principal
from ottla.net.server.connection import Connection
from ottla.net.server.turn import Turn
from ottla.runtime.clock import Clock
from ottla.runtime.runner import Runner
from ottla.storage.manager import LogManager

if TYPE_CHECKING:
    from ottla.broker.groups import Groups
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


class Node:
    """The state of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: Metadata,
        controller: Runner[MetadataRecord],
        logs: LogManager,
        turn: Turn,
    ) -> None:
        self.config = config
        self.clock = clock
        self.metadata = metadata
        self.controller = controller
        """Runs the operations of the metadata machine, which decides about topics, configs and producer ids."""
        self.logs = logs
        self.partitions: dict[str, list[Partition]] = {}
        self.sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, _random_id)
        self.producer_ids = ProducerIds(controller, metadata)
        self.metrics = Instruments()
        self.turn = turn
        self.groups: Groups
        self.transactions: Transactions
        self.advertised: Callable[[], Listener]
        self.on_config_change: Callable[[], None] = lambda: None
        # Topics are created, changed and deleted one after the other; clients ask for the same one at the same time.
        self.topics_lock = asyncio.Lock()
        self.changes = Changes()
        self.authorizer: Authorizer | None = None

    @property
    def id(self) -> int:
        """The id of this broker."""
        return self.config.id

    def address(self, connection: Connection) -> tuple[str, int]:
        """Return the address that a client on this connection is told to find the broker at."""
        listener = self.advertised()
        return listener.host or connection.channel.local_host, listener.port

    def partition(self, topic: str, index: int) -> Partition:
        """Return a partition, or raise UnknownTopicOrPartition."""
        partitions = self.partitions.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            raise errors.UnknownTopicOrPartition(f"The partition {topic}-{index} does not exist.")
        return partitions[index]

    def topic_by_id(self, topic_id: UUID | None) -> Topic:
        """Return the topic of an id, or raise UnknownTopicId."""
        topic = self.metadata.topics_by_id.get(topic_id) if topic_id is not None else None
        if topic is None:
            raise errors.UnknownTopicId(f"There is no topic with the id {topic_id}.")
        return topic


def _random_id() -> int:
    return secrets.randbelow(2**31 - 1) + 1
