"""The coordinators of this broker: one for each partition of ``__consumer_offsets``, each a pure machine behind a
runner.

A shard is loaded by replay when the broker starts (or when the topic is made); until then its groups answer
COORDINATOR_LOAD_IN_PROGRESS. What a shard decides is appended to its partition before anybody is told.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ottla import errors
from ottla.assignors import Assignor
from ottla.broker.partition import EndOfTransaction, Partition
from ottla.broker.server_assignors import load_assignors
from ottla.broker.state_topics import PartitionJournal, StateShard, read_batches, readable
from ottla.broker.topics import ensure_internal_topic
from ottla.config import BrokerConfig, effective_group_config
from ottla.coordinator.config import GroupConfig, Times
from ottla.coordinator.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from ottla.coordinator.coordinator import Coordinator, partition_for
from ottla.coordinator.group import TopicInfo
from ottla.coordinator.messages import CommitRequest, CommitResponse, TransactionalCommitRequest
from ottla.coordinator.serde import decode, encode_batch
from ottla.machine import Outcome, Parked
from ottla.metadata.machine import CONSUMER_OFFSETS
from ottla.net.server.connection import Later
from ottla.protocol.codec import Message
from ottla.records import BatchHeader, decode_batch
from ottla.runtime.runner import Gathering, Runner
from ottla.storage.contracts import AppendInfo
from ottla.storage.transactions import read_marker
from ottla.types import NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.groups")
Response = TypeVar("Response")
Asker: TypeAlias = Sequence[Any]
"""A function that is called with the rest and an error."""
#: Where a group belongs is computed letter by letter; it is kept for names that are not just there to fill memory.
LONGEST_KEPT = 128
_partition_for = lru_cache(1 << 14)(partition_for)


def answer_of(outcome: Outcome[Any, Response]) -> Response:
    """Return the answer of an operation that only looks: it writes nothing and waits for nothing."""
    assert not outcome.records
    assert not isinstance(outcome.response, Parked)
    return outcome.response


class Shard(StateShard):
    """The coordinator of one partition."""

    def __init__(self, node: Node, partition: Partition, config: GroupConfig, assignors: Sequence[Assignor]) -> None:
        super().__init__(partition)
        self._node = node
        topics = TopicInfos(node)
        self.coordinator = Coordinator(
            config, new_id=_new_id, topics=lambda: topics, assignors=assignors, times_of=partial(_times_of, node)
        )
        self.journal = PartitionJournal(node, partition, encode_batch)
        gathering = Gathering(node.unwritten, self.coordinator.join_gathered, self.coordinator.replay_gathered, _tell)
        self.runner = Runner(self.coordinator, self.journal, node.clock, self.coordinator.append_failed, gathering)

    async def load(self) -> None:
        if not self.is_loaded:
            await self._replay_partition()
        await self.runner.run(self.coordinator.loaded)
        self.is_loaded = True

    async def _replay_partition(self) -> None:
        count = 0
        async for data, position, header in read_batches(self._partition):
            if header.is_control:
                self._replay_marker(data, position, header)
            else:
                count += self._replay(data, position, header)
        logger.info("loaded %d records of %s-%d", count, self._partition.topic, self._partition.index)

    def _replay(self, data: bytes, position: int, header: BatchHeader) -> int:
        records = decode_batch(data, position)
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records:
            if record.key is not None:
                self.coordinator.replay(decode(record.key, record.value), producer_id=producer_id)
        return len(records)

    def _replay_marker(self, data: bytes, position: int, header: BatchHeader) -> None:
        marker = read_marker(data, position, header)
        if marker is not None:
            self.coordinator.replay_end_transaction(header.producer_id, committed=not marker.aborted)

    async def commit_in_transaction(self, request: TransactionalCommitRequest) -> CommitResponse:
        """Commit offsets that count when the transaction of the producer is committed."""
        now = self.runner.time()
        self.settle()
        outcome = self.coordinator.commit_transactional(request, now=now)
        if outcome.records:
            producer_id = request.producer_id
            try:
                position = self.journal.append(outcome.records, producer_id, request.producer_epoch)
            except Exception as error:
                self.runner.not_appended(outcome, error)
                raise
            for record in outcome.records:
                self.coordinator.replay(record, producer_id=producer_id)
            if (pending := self.journal.committed(position)) is not None:
                await pending
        # What is left of it are timers and the answer.
        return await self.runner.run(lambda *, now: outcome._replace(records=()))

    def has_ongoing(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of the producer has offsets here already."""
        return self._partition.log.producers.has_ongoing(producer_id, producer_epoch)

    def settle(self) -> None:
        """Write what was gathered: whatever is asked next comes after it."""
        if self.runner.gathered:
            self.runner.write()

    def write_marker(self, end: EndOfTransaction) -> AppendInfo:
        """Write the end of a transaction: its offsets count now, or never."""
        if not self.is_loaded:
            raise self.why_not(str(self._partition.log.topic_partition))
        self.settle()
        info = self._partition.append_marker(end, now=self._node.clock.now())
        self.coordinator.replay_end_transaction(end.producer_id, committed=end.committed)
        return info


class Groups:
    """All groups of this broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._assignors = load_assignors(node.config.group_consumer_assignors)
        self._shards: list[Shard] = []
        self._opening = asyncio.Lock()
        self._loading: set[asyncio.Task[None]] = set()

    async def ready(self) -> None:
        """Make ``__consumer_offsets`` if it is not there, and its coordinators."""
        if self._shards:
            return
        async with self._opening:
            if not self._shards:
                await ensure_internal_topic(self._node, CONSUMER_OFFSETS, *self._layout())
                self.open()

    def _layout(self) -> tuple[int, dict[str, str]]:
        config = self._node.config
        segment_bytes = str(config.offsets_topic_segment_bytes)
        configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": segment_bytes}
        return config.offsets_topic_num_partitions, configs

    def open(self) -> None:
        """Begin to load the coordinators of the partitions that there are."""
        config = group_config(self._node.config, self._assignors)
        for partition in self._node.partitions.get(CONSUMER_OFFSETS, []):
            shard = Shard(self._node, partition, config, self._assignors)
            self._shards.append(shard)
            task = asyncio.ensure_future(shard.load_or_break())
            self._loading.add(task)
            task.add_done_callback(self._loading.discard)

    def of(self, group_id: str) -> Coordinator:
        """Return the coordinator of a group, or raise the error that says why there is none now."""
        return self._shard(group_id).coordinator

    def all(self) -> Iterator[Coordinator]:
        """Give every coordinator that there is."""
        for shard in readable(self._shards, "groups"):
            shard.settle()
            yield shard.coordinator

    def _shard(self, group_id: str) -> Shard:
        shard = self._shards[self.index_of(group_id)]
        if not shard.is_loaded:
            raise shard.why_not(f"the group '{group_id}'")
        shard.settle()
        return shard

    async def run(
        self, group_id: str, operation: Callable[[Coordinator], Callable[..., Outcome[Any, Response]]], request: Any
    ) -> Response:
        """Run an operation of a group's coordinator and return its answer once it is safe."""
        shard = self._shard(group_id)
        try:
            return await shard.runner.run(operation(shard.coordinator), request)
        except errors.KafkaError as error:
            raise _of_group(error) from error

    def ask(
        self,
        group_id: str,
        operation: Callable[..., Outcome[Any, Response]],
        request: Any,
        told: Callable[[Response | errors.KafkaError], Message],
    ) -> Message | Later:
        """The same for a handler that is no coroutine: it says how its client is told of the answer, or of an error."""
        try:
            shard = self._shard(group_id)
            begun = shard.runner.begin(operation, shard.coordinator, request)
        except errors.KafkaError as error:
            return told(_of_group(error))
        if isinstance(begun, asyncio.Future):
            return Later(begun, partial(_finish, told))
        return told(begun)

    def commit(self, request: CommitRequest, asker: Asker) -> bool:
        """Commit packed offsets together with others: they are taken unless the asker is told.

        False if this cannot be.
        """
        shard = self._gathering(request.group_id)
        if shard is None:
            return False
        shard.runner.gather(shard.coordinator.commit, request, asker)
        return True

    def follow(self, request: ConsumerHeartbeatRequest, asker: Asker) -> ConsumerHeartbeatResponse | None:
        """Answer a heartbeat that is like most, with what it writes gathered as commits are."""
        shard = self._gathering(request.group_id)
        if shard is None:
            return None
        response = shard.runner.gather(shard.coordinator.follow, request, asker)
        assert not isinstance(response, Parked)
        return response

    def _gathering(self, group_id: str) -> Shard | None:
        """Return the shard of a group if what it is asked can be written together with what others ask."""
        if len(group_id) > LONGEST_KEPT or not self._shards:
            return None
        shard = self._shards[_partition_for(group_id, len(self._shards))]
        if not shard.runner.gathered and not (shard.is_loaded and shard.journal.forces_nothing):
            return None
        return shard

    def index_of(self, group_id: str) -> int:
        """Return the partition of ``__consumer_offsets`` that a group belongs to."""
        if not self._shards:
            raise errors.CoordinatorNotAvailable("No group has a coordinator yet: ask FindCoordinator first.")
        find = _partition_for if len(group_id) <= LONGEST_KEPT else partition_for
        return find(group_id, len(self._shards))

    def shard_of(self, group_id: str) -> Shard:
        """Return the shard of a group, or raise the error that says why there is none now."""
        return self._shard(group_id)

    def write_marker(self, index: int, end: EndOfTransaction) -> AppendInfo:
        """Write the end of a transaction to a partition of ``__consumer_offsets``."""
        if not 0 <= index < len(self._shards):
            raise errors.UnknownTopicOrPartition(f"The partition {CONSUMER_OFFSETS}-{index} does not exist.")
        return self._shards[index].write_marker(end)

    async def topic_changed(self, name: str, *, created: bool = False, deleted: Sequence[TopicPartition] = ()) -> None:
        """Let groups know that a topic came, went or grew; what was committed for deleted partitions is forgotten."""
        for shard in self._shards:
            if shard.is_loaded:
                if deleted:
                    await shard.runner.run(shard.coordinator.partitions_deleted, deleted)
                await shard.runner.run(shard.coordinator.topics_changed, (name,), created=created)

    def close(self) -> None:
        """Stop all timers and loading."""
        for task in self._loading:
            task.cancel()
        for shard in self._shards:
            shard.runner.close()


def group_config(config: BrokerConfig, assignors: Sequence[Assignor]) -> GroupConfig:
    """What the coordinators need of the broker's config."""
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
    """The topics as groups see them. There may be very many: each is looked at when it is asked for."""

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


def _finish(told: Callable[[Any], Message], future: asyncio.Future[Any]) -> Message:
    try:
        answer = future.result()
    except errors.KafkaError as error:
        answer = _of_group(error)
    return told(answer)


def _tell(asker: Asker, error: Exception) -> None:
    if not isinstance(error, errors.KafkaError):
        logger.error("what was gathered could not be written", exc_info=error)
        error = errors.UnknownServerError(str(error))
    refuse, *args = asker
    refuse(*args, _of_group(error))


def _of_group(error: errors.KafkaError) -> errors.KafkaError:
    """Say what an error of the log means to whoever asked something of a group."""
    if isinstance(error, errors.KafkaStorageError):
        return errors.CoordinatorNotAvailable(f"The group's records could not be written: {error}")
    if isinstance(error, errors.RecordListTooLarge):
        # As Kafka does: not the request is too large but the group as a whole.
        return errors.UnknownServerError(f"The group's records could not be written: {error}")
    return error


def _new_id() -> str:
    # Members are told apart by it, and one must not be able to guess another's.
    raw = secrets.token_hex(16)
    return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
