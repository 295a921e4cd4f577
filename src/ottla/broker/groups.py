"""The group coordinators of this broker: one for each partition of ``__consumer_offsets``."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla import errors
from ottla.assignors import Assignor
from ottla.broker.partition import EndOfTransaction, Partition
from ottla.broker.state_topics import LONGEST_KEPT, UNWRITTEN, Shard, Shards, kept_partition_for
from ottla.config import BrokerConfig, effective_group_config
from ottla.coordinator.config import GroupConfig, Times
from ottla.coordinator.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.group import TopicInfo
from ottla.coordinator.messages import CommitRequest
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.serde import content, decode, encode_batch
from ottla.driver import Commit
from ottla.machine import Outcome, Parked
from ottla.metadata.machine import CONSUMER_OFFSETS
from ottla.net.server.connection import Later
from ottla.protocol.codec import Message
from ottla.records import BatchHeader, decode_batch
from ottla.runtime.assignors import server_assignors
from ottla.storage.transactions import read_marker
from ottla.types import NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.groups")
Response = TypeVar("Response")


class GroupShard(Shard[CoordinatorRecord]):
    """The groups of one partition."""

    def __init__(self, node: Node, partition: Partition, config: GroupConfig, assignors: Sequence[Assignor]) -> None:
        topics = TopicInfos(node)
        self.coordinator = Coordinator(
            config, new_id=_new_id, topics=lambda: topics, assignors=assignors, times_of=partial(_times_of, node)
        )
        super().__init__(
            node, partition, self.coordinator, encode_batch, commit_timeout=node.config.offsets_commit_timeout_ms
        )

    def replay(self, data: bytes, position: int, header: BatchHeader) -> int:
        if header.is_control:
            marker = read_marker(data, position, header)
            if marker is not None:
                self.coordinator.replay_end_transaction(header.producer_id, committed=not marker.aborted)
            return 0
        records = decode_batch(data, position)
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records:
            if record.key is not None:
                value = content(record.value, record.headers)
                self.coordinator.replay(decode(record.key, value), producer_id=producer_id)
        return len(records)

    async def loaded(self) -> None:
        with suppress(errors.CoordinatorNotAvailable):  # Responses wait for the end of the log, but clients need one.
            await self.runner.run(self.coordinator.loaded)
        self.is_loaded = True

    def has_ongoing(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of the producer already has offsets here."""
        return self.partition.log.producers.has_ongoing(producer_id, producer_epoch)

    def write_marker(self, end: EndOfTransaction) -> Commit | None:
        """Write the end of a transaction: its offsets now count, or never will. Return what to wait for."""
        if not self.is_loaded:
            raise self.why_not(str(self.partition.log.topic_partition))
        return self.runner.write_through(
            lambda: self.partition.append_marker(end, now=self._node.clock.now()).last_offset + 1,
            lambda: self.coordinator.replay_end_transaction(end.producer_id, committed=end.committed),
        )


class Groups:
    """All groups of this broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        assignors = server_assignors(node.config.group_consumer_assignors)
        config = group_config(node.config, assignors)
        self.shards: Shards[GroupShard] = Shards(
            node, CONSUMER_OFFSETS, self._layout, lambda each: GroupShard(node, each, config, assignors), "group"
        )

    def _layout(self) -> tuple[int, dict[str, str], int]:
        config = self._node.config
        segment_bytes = str(config.offsets_topic_segment_bytes)
        configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": segment_bytes}
        return config.offsets_topic_num_partitions, configs, config.offsets_topic_replicas

    async def run(
        self, group_id: str, operation: Callable[..., Outcome[Any, Response]], /, *args: Any, **kwargs: Any
    ) -> Response:
        """Run an operation of a group's coordinator, such as ``Coordinator.leave``, and return its response."""
        shard = self.shards.of(group_id)
        try:
            return await shard.runner.run(operation, shard.coordinator, *args, **kwargs)
        except errors.KafkaError as error:
            raise group_error(error) from error

    def ask(
        self,
        group_id: str,
        operation: Callable[..., Outcome[Any, Response]],
        request: Any,
        to_message: Callable[[Response | errors.KafkaError], Message],
    ) -> Message | Later:
        """Do the same for a handler that is no coroutine. ``to_message`` encodes the response, or the error."""
        try:
            shard = self.shards.of(group_id)
            begun = shard.runner.begin(operation, shard.coordinator, request)
        except errors.KafkaError as error:
            return to_message(group_error(error))
        if isinstance(begun, asyncio.Future):
            return Later(begun, partial(_finish, to_message))
        return to_message(begun)

    def commit(self, request: CommitRequest, refuse: Callable[[Exception], None]) -> bool:
        """Commit packed offsets together with others; return False if that is not possible now.

        ``refuse`` is called if they could not be written after all. The response must wait for the end of the turn.
        """
        shard = self._gathering(request.group_id)
        if shard is None:
            return False
        shard.runner.gather(shard.coordinator.commit, request, refuse)
        return True

    def follow(
        self, request: ConsumerHeartbeatRequest, refuse: Callable[[Exception], None]
    ) -> ConsumerHeartbeatResponse | None:
        """Answer an ordinary heartbeat, with its records gathered as those of commits are."""
        shard = self._gathering(request.group_id)
        if shard is None:
            return None
        response = shard.runner.gather(shard.coordinator.follow, request, refuse)
        assert not isinstance(response, Parked)
        return response

    def _gathering(self, group_id: str) -> GroupShard | None:
        """Return the shard of a group if its records can be gathered: they must be committed once they are written."""
        shards = self.shards.all
        if len(group_id) > LONGEST_KEPT or not shards:
            return None
        shard = shards[kept_partition_for(group_id, len(shards))]
        if shard is None:
            return None
        runner = shard.runner
        if runner.gathered or (shard.is_loaded and shard.partition.commits_at_once and runner.is_committed):
            return shard
        return None

    def write_marker(self, index: int, end: EndOfTransaction) -> Commit | None:
        """Write the end of a transaction to a partition of ``__consumer_offsets``."""
        shard = self.shards.at(index)
        if shard is None:
            raise errors.NotLeaderOrFollower(f"This broker does not lead {CONSUMER_OFFSETS}-{index}.")
        return shard.write_marker(end)

    async def topic_changed(self, name: str, *, created: bool = False, deleted: Sequence[TopicPartition] = ()) -> None:
        """Tell groups that a topic was created, deleted or has grown. Offsets of deleted partitions are deleted."""
        for shard in self.shards.here():
            if shard.is_loaded:
                try:
                    if deleted:
                        await shard.runner.run(shard.coordinator.partitions_deleted, deleted)
                    await shard.runner.run(shard.coordinator.topics_changed, (name,), created=created)
                except errors.KafkaError as error:
                    logger.warning("a change of the topic %s: %s", name, error)


def group_config(config: BrokerConfig, assignors: Sequence[Assignor]) -> GroupConfig:
    """Return the settings of the coordinators."""
    return GroupConfig(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        group_consumer_min_session_timeout_ms=config.group_consumer_min_session_timeout_ms,
        group_consumer_max_session_timeout_ms=config.group_consumer_max_session_timeout_ms,
        group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        group_consumer_min_heartbeat_interval_ms=config.group_consumer_min_heartbeat_interval_ms,
        group_consumer_max_heartbeat_interval_ms=config.group_consumer_max_heartbeat_interval_ms,
        group_consumer_max_size=config.group_consumer_max_size,
        group_consumer_assignors=tuple(assignor.name for assignor in assignors),
        group_consumer_migration_policy=config.group_consumer_migration_policy,
        group_consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
    )


def _times_of(node: Node, group_id: str) -> Times | None:
    own = node.metadata.group_configs.get(group_id)
    if own is None:
        return None
    config = effective_group_config(node.config, own)
    return Times(config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms)


class TopicInfos(Mapping[str, TopicInfo]):
    """The topics as groups see them, without a copy of all of them."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __getitem__(self, name: str) -> TopicInfo:
        topic = self._node.metadata.topics[name]
        return TopicInfo(topic.topic_id, topic.partitions)

    def __contains__(self, name: object) -> bool:
        return name in self._node.metadata.topics

    def __iter__(self) -> Iterator[str]:
        return iter(self._node.metadata.topics)

    def __len__(self) -> int:
        return len(self._node.metadata.topics)


def _finish(to_message: Callable[[Any], Message], future: asyncio.Future[Any]) -> Message:
    try:
        response = future.result()
    except errors.KafkaError as error:
        response = group_error(error)
    return to_message(response)


def group_error(error: Exception) -> errors.KafkaError:
    """Return what a client of a group is told when its operation failed."""
    if isinstance(error, errors.NotLeaderOrFollower):
        return errors.NotCoordinator("Another broker has become the coordinator. Find the coordinator again.")
    if isinstance(error, UNWRITTEN):
        return errors.CoordinatorNotAvailable(f"The group's records could not be written: {error}")
    if isinstance(error, errors.RecordListTooLarge):
        # As in Kafka: not the request is too large but the group as a whole.
        return errors.UnknownServerError(f"The group's records could not be written: {error}")
    if isinstance(error, errors.KafkaError):
        return error
    logger.error("a group's records could not be written", exc_info=error)
    return errors.UnknownServerError(str(error))


def _new_id() -> str:
    # A member must not be able to guess the id of another one.
    raw = secrets.token_hex(16)
    return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
