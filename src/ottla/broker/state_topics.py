"""The topics that hold the state of coordinators: ``__consumer_offsets`` and ``__transaction_state``.

A *shard* is one partition of such a topic with its coordinator. It is loaded by replay; until then its keys get
COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla import errors
from ottla.broker.partition import Partition
from ottla.broker.topics import ensure_topic
from ottla.coordinator.coordinator import partition_for
from ottla.machine import Machine
from ottla.records import BatchHeader, scan
from ottla.runtime.runner import Runner
from ottla.storage.verification import SegmentUnverified
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.broker")
READ_AT_ONCE = 1 << 20
#: The partition of a key is computed letter by letter. It is kept for keys of ordinary length.
LONGEST_KEPT = 128
kept_partition_for = lru_cache(1 << 14)(partition_for)
#: Errors of an append after which the coordinator is the same and the client can try again.
UNWRITTEN = (errors.KafkaStorageError, errors.NotEnoughReplicas, errors.NotEnoughReplicasAfterAppend)
T = TypeVar("T")


class PartitionJournal(Generic[T]):
    """A partition as the journal of its coordinator."""

    def __init__(self, node: Node, partition: Partition, encode: Callable[[Sequence[T], Millis], bytearray]) -> None:
        self._clock = node.clock
        self._partition = partition
        self._encode = encode
        self.committed = partition.committed

    def append(self, records: Sequence[T], /) -> int:
        """Write the records as one batch, all or nothing."""
        now = self._clock.now()
        info = self._partition.append_own(memoryview(self._encode(records, now)), now=now)
        return info.last_offset + 1


class Shard(Generic[T]):
    """One partition with its coordinator, as far as it can be used."""

    def __init__(
        self,
        node: Node,
        partition: Partition,
        machine: Machine[T],
        encode: Callable[[Sequence[T], Millis], bytearray],
        commit_timeout: Millis | None = None,
    ) -> None:
        self._node = node
        self.partition = partition
        self.runner: Runner[T] = Runner(
            machine, PartitionJournal(node, partition, encode), node.clock, node.turn.before_send, commit_timeout
        )
        self.is_loaded = partition.log.log_end_offset == partition.log.log_start_offset
        self.is_broken = False
        """The partition could not be replayed. As in Kafka, its keys have no coordinator until a restart."""

    def replay(self, data: bytes, position: int, header: BatchHeader) -> int:
        """Replay one batch; return how many records it has."""
        raise NotImplementedError

    async def loaded(self) -> None:
        """Start the coordinator. The partition has been replayed."""
        raise NotImplementedError

    async def load(self) -> None:
        """Replay the partition and start the coordinator."""
        try:
            if not self.is_loaded:
                await self._replay_partition()
            await self.loaded()
        except errors.NotLeaderOrFollower:
            pass  # Another broker has become the leader, which loads it.
        except Exception:
            self.is_broken = not self.is_loaded
            logger.exception("%s could not be loaded; its keys are not served", self.partition.log.topic_partition)

    async def _replay_partition(self) -> None:
        count = 0
        async for data, position, header in read_batches(self.partition):
            count += self.replay(data, position, header)
        # What the log has above the high watermark will be committed, but no response may say so before.
        self.runner.wait_for(self.partition.log.log_end_offset)
        logger.info("loaded %d records of %s-%d", count, self.partition.topic, self.partition.index)

    def why_not(self, what: str) -> errors.KafkaError:
        """Return the error for a key of this shard while it is not loaded."""
        if self.is_broken:
            return errors.NotCoordinator(f"The records of {what} cannot be read: see the broker's log.")
        return errors.CoordinatorLoadInProgress(f"The records of {what} are being loaded.")

    def close(self) -> None:
        """Stop the timers."""
        self.runner.close()


S = TypeVar("S", bound=Shard)  # type: ignore[type-arg]


class Shards(Generic[S]):
    """All shards of one topic on this broker."""

    def __init__(
        self,
        node: Node,
        topic: str,
        layout: Callable[[], tuple[int, Mapping[str, str], int]],
        new_shard: Callable[[Partition], S],
        kind: str,
    ) -> None:
        """``layout`` returns partitions, configs and replication factor of a new topic; ``kind`` names the keys."""
        self._node = node
        self._topic = topic
        self._layout = layout
        self._new_shard = new_shard
        self._kind = kind
        self.all: list[S | None] = []
        """One for each partition of the topic; None for those that other brokers lead."""
        self._opening = asyncio.Lock()
        self._loading: set[asyncio.Task[None]] = set()

    async def ready(self) -> None:
        """Create the topic and its coordinators if they do not exist."""
        if self._topic in self._node.metadata.topics:
            return
        async with self._opening:
            await ensure_topic(self._node, self._topic, *self._layout())

    async def coordinator_id(self, key: str) -> int:
        """Return the id of the broker that coordinates a key, -1 while there is none."""
        try:
            await self.ready()
        except (errors.LeaderNotAvailable, errors.InvalidReplicationFactor) as error:
            raise errors.CoordinatorNotAvailable(f"{self._topic} cannot be created now: {error}") from error
        return self.leader_of(key)

    def leader_of(self, key: str) -> int:
        """Return the id of the broker that leads the partition of a key, -1 while there is none."""
        return self._node.metadata.topic(self._topic).states[self.index_of(key)].leader

    def changed(self, partition: Partition) -> None:
        """Load the coordinator of a partition that this broker leads now, and unload one that it leads no longer."""
        topic = self._node.metadata.topics.get(self._topic)
        count = topic.partitions if topic is not None else partition.index + 1
        self.all += [None] * (count - len(self.all))
        known = self.all[partition.index]
        if known is not None:
            known.close()
            self.all[partition.index] = None
        if partition.is_leader:
            shard = self.all[partition.index] = self._new_shard(partition)
            task = asyncio.ensure_future(shard.load())
            self._loading.add(task)
            task.add_done_callback(self._loading.discard)

    async def settle(self, seconds: float) -> None:
        """Wait until the coordinators that are being loaded are ready, at most this long."""
        if self._loading:
            await asyncio.wait(tuple(self._loading), timeout=seconds)

    def index_of(self, key: str) -> int:
        """Return the partition that a key belongs to."""
        topic = self._node.metadata.topics.get(self._topic)
        if topic is None:
            raise errors.CoordinatorNotAvailable(
                f"There is no coordinator for {self._kind}s yet: send FindCoordinator first."
            )
        return (kept_partition_for if len(key) <= LONGEST_KEPT else partition_for)(key, topic.partitions)

    def of(self, key: str) -> S:
        """Return the shard of a key, or raise the error that says why it cannot be used now."""
        index = self.index_of(key)
        shard = self.at(index)
        if shard is None:
            raise errors.NotCoordinator(
                f"This broker does not coordinate the {self._kind} {key!r}. Find its coordinator again."
            )
        if not shard.is_loaded:
            raise shard.why_not(f"the {self._kind} {key!r}")
        return shard

    def at(self, index: int) -> S | None:
        """Return the shard of a partition if this broker leads it."""
        return self.all[index] if index < len(self.all) else None

    def here(self) -> Iterator[S]:
        """Iterate over the shards of this broker."""
        return (shard for shard in tuple(self.all) if shard is not None)

    def readable(self) -> Iterator[S]:
        """Iterate over the shards that can be read; raise while one is being loaded."""
        for shard in self.here():
            if shard.is_loaded:
                yield shard
            elif not shard.is_broken:
                raise shard.why_not(f"some {self._kind}s")

    def close(self) -> None:
        """Stop all timers and loading."""
        for task in self._loading:
            task.cancel()
        for shard in self.here():
            shard.close()


async def read_batches(partition: Partition) -> AsyncIterator[tuple[bytes, int, BatchHeader]]:
    """Iterate over the batches of a partition: the bytes that hold each one, its position there and its header."""
    offset, leader_epoch = partition.log.log_start_offset, partition.leader_epoch
    while offset < partition.log.log_end_offset:
        data = await _read(partition, offset)
        if partition.leader_epoch != leader_epoch:
            raise partition.not_leader()
        for position, header in scan(data, 0, len(data), check_crc=False).batches:
            yield data, position, header
            offset = header.next_offset
        await asyncio.sleep(0)


async def _read(partition: Partition, offset: int) -> bytes:
    end = partition.log.log_end_offset
    while True:
        try:
            slice_ = partition.log.read(offset, max_bytes=READ_AT_ONCE, end_offset=end, min_one_batch=True)
            return slice_.read()
        except SegmentUnverified as unverified:
            await asyncio.get_running_loop().run_in_executor(None, unverified.segment.verify)
