"""Topics in which the broker keeps its coordinators: a partition of one, as a runner writes it and a load reads it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla import errors
from ottla.broker.partition import Partition
from ottla.records import BatchHeader, scan
from ottla.storage.verification import SegmentUnverified
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.broker")
READ_AT_ONCE = 1 << 20
#: The `flush.messages` that never asks for a flush.
NEVER = 2**63 - 1
T = TypeVar("T")
#: The records of one decision as a batch of a time, in the transaction of a producer (id and epoch) if there is one.
Encode = Callable[[Sequence[T], Millis, int, int], bytearray]


class StateShard:
    """A partition of such a topic, as far as its coordinator can be used."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.is_loaded = partition.log.log_end_offset == partition.log.log_start_offset
        """Whether it can be: at once where there is nothing to replay."""
        self.is_broken = False
        """Whether it could not be replayed. As with Kafka nothing in it has a coordinator then, until a restart."""

    async def load(self) -> None:
        """Replay the partition if it has records, then let the coordinator go to work."""
        raise NotImplementedError

    async def load_or_break(self) -> None:
        """Load it, or remember that this cannot be done."""
        try:
            await self.load()
        except Exception:
            self.is_broken = not self.is_loaded
            logger.exception(
                "%s could not be loaded; what is kept in it is not served", self._partition.log.topic_partition
            )

    def why_not(self, what: str) -> errors.KafkaError:
        """Return the error for something that is kept here, while the shard is not loaded."""
        if self.is_broken:
            return errors.NotCoordinator(f"The records of {what} cannot be read: see the broker's log.")
        return errors.CoordinatorLoadInProgress(f"The records of {what} are being loaded.")


S = TypeVar("S", bound=StateShard)


def readable(shards: Iterable[S], what: str) -> Iterator[S]:
    """Give every shard but those that cannot be read; raise as long as there are some to be loaded."""
    for shard in shards:
        if shard.is_loaded:
            yield shard
        elif not shard.is_broken:
            raise shard.why_not(f"some {what}")


class PartitionJournal(Generic[T]):
    """A partition as the runner of its coordinator writes it."""

    def __init__(self, node: Node, partition: Partition, encode: Encode[T]) -> None:
        self._node = node
        self._partition = partition
        self._encode = encode

    def append(self, records: Sequence[T], /, producer_id: int = -1, producer_epoch: int = -1) -> int:
        """Write the records as one batch, all or nothing.

        Those of a producer's transaction count when that is committed.
        """
        now = self._node.clock.now()
        batch = self._encode(records, now, producer_id, producer_epoch)
        info = self._partition.append_own(memoryview(batch), now=now)
        return info.last_offset + 1

    @property
    def forces_nothing(self) -> bool:
        """Whether what is written is committed at once, however much it is."""
        return self._partition.log.config.flush_messages == NEVER

    def committed(self, position: int, /) -> Awaitable[None] | None:
        """With one replica, written is committed; the topic's own flush settings can ask for more."""
        log = self._partition.log
        if log.recovery_point >= position or log.config.flush_messages > position - log.recovery_point:
            return None
        return self._node.logs.flusher.flushed(log, position)


async def read_batches(partition: Partition) -> AsyncIterator[tuple[bytes, int, BatchHeader]]:
    """Give every batch of a partition, as the bytes that it lies in, its position there and its header."""
    offset = partition.log.log_start_offset
    while offset < partition.high_watermark:
        data = await _read(partition, offset)
        for position, header in scan(data, 0, len(data), check_crc=False).batches:
            yield data, position, header
            offset = header.next_offset
        await asyncio.sleep(0)


async def _read(partition: Partition, offset: int) -> bytes:
    end = partition.high_watermark
    while True:
        try:
            slice_ = partition.log.read(offset, max_bytes=READ_AT_ONCE, end_offset=end, min_one_batch=True)
            return slice_.read()
        except SegmentUnverified as unverified:
            await asyncio.get_running_loop().run_in_executor(None, unverified.segment.verify)
