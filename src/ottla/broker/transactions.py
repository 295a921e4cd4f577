"""The transaction coordinators of this broker: one for each partition of ``__transaction_state``, each a pure machine
behind a runner.

A shard is loaded by replay when the broker starts (or when the topic is made); until then its ids answer
COORDINATOR_LOAD_IN_PROGRESS. A transaction is decided by a record of its shard. Only then are the markers written,
one to each partition that it reaches to, and only when all are there is it complete: what a crash leaves half done is
done after the load.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla import errors
from ottla.broker.partition import EndOfTransaction, Partition
from ottla.broker.state_topics import PartitionJournal, StateShard, read_batches, readable
from ottla.broker.topics import ensure_internal_topic
from ottla.config import BrokerConfig
from ottla.coordinator.coordinator import partition_for
from ottla.machine import Outcome
from ottla.metadata.machine import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.records import decode_batch, encode_pairs
from ottla.runtime.runner import Runner
from ottla.transactions import messages as m
from ottla.transactions.config import TransactionConfig
from ottla.transactions.coordinator import TransactionCoordinator
from ottla.transactions.records import LONGEST_ID, TransactionRecord, decode, encode
from ottla.types import NO_PRODUCER_ID, Millis, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.storage.log import Log

logger = logging.getLogger("ottla.transactions")
Response = TypeVar("Response")
#: How soon what could not be written is tried again; twice as long after every time, up to the last.
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.05, 5.0


def _encode_batch(
    records: Sequence[TransactionRecord], timestamp: Millis, producer_id: int, producer_epoch: int
) -> bytearray:
    return encode_pairs([encode(record) for record in records], timestamp, producer_id, producer_epoch)


async def write_marker(node: Node, place: TopicPartition, end: EndOfTransaction) -> None:
    """Write the end of a transaction to one partition; raises the Kafka error that says why not."""
    flush = append_marker(node, place, end)
    if flush is not None:
        await node.logs.flusher.flushed(*flush)


def append_marker(node: Node, place: TopicPartition, end: EndOfTransaction) -> tuple[Log, int] | None:
    """The same without the wait: what has to be flushed before the marker is safe, if anything."""
    partition = node.partition(place.topic, place.partition)
    if place.topic == CONSUMER_OFFSETS:
        info = node.groups.write_marker(place.partition, end)
    else:
        info = partition.append_marker(end, now=node.clock.now())
    return (partition.log, info.last_offset + 1) if info.flush_due else None


class Shard(StateShard):
    """The coordinator of one partition; to its runner it is the machine."""

    def __init__(self, node: Node, partition: Partition, config: TransactionConfig) -> None:
        super().__init__(partition)
        self._node = node
        self.coordinator = TransactionCoordinator(config)
        self._journal = PartitionJournal(node, partition, _encode_batch)
        self.runner: Runner[TransactionRecord] = Runner(self, self._journal, node.clock)
        self._missing: dict[m.Markers, frozenset[TopicPartition]] = {}
        """What is left of markers that could not all be written."""
        self._writing: set[str] = set()
        self._pause = RETRY_SECONDS
        self._is_closed = False
        self._later: asyncio.TimerHandle | None = None
        self._finishing: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Replay the partition if it has records, then let the coordinator go to work on what was left undone."""
        if not self.is_loaded:
            await self._replay_partition()
        self.is_loaded = True
        await self.runner.run(self.coordinator.loaded)
        await self.finish()

    async def _replay_partition(self) -> None:
        count = 0
        async for data, position, _ in read_batches(self._partition):
            for record in decode_batch(data, position):
                known = decode(record.key, record.value) if record.key is not None else None
                if known is not None:
                    self.coordinator.replay(known)
                    count += 1
        logger.info("loaded %d records of %s-%d", count, self._partition.topic, self._partition.index)

    # ── the machine ───────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: TransactionRecord, /) -> None:
        self.coordinator.replay(record)

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[TransactionRecord, None]:
        outcome = self.coordinator.fire(key, now=now)
        if outcome.records:
            for record in outcome.records:
                if record.value is not None:
                    logger.info("the transaction of %r has timed out and is aborted", record.transactional_id)
            self._finish_later(0)
        return outcome

    async def run(self, operation: Callable[..., Outcome[TransactionRecord, Response]], request: Any) -> Response:
        """Run an operation and write the markers of what it decided."""
        try:
            response = await self.runner.run(operation, request)
        except (errors.KafkaStorageError, errors.RecordListTooLarge) as error:
            raise errors.CoordinatorNotAvailable(f"The transaction could not be written down: {error}") from error
        if self.coordinator.has_unfinished:
            await self.finish()
        return response

    # ── markers ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def finish(self) -> None:
        """Write the markers of every transaction that is decided; what cannot be written now is tried again."""
        log = self._partition.log
        if (pending := self._journal.committed(log.log_end_offset)) is not None:
            await pending
        for markers in list(self.coordinator.unfinished()):
            if markers.transactional_id not in self._writing:
                await self._finish_one(markers)

    async def _finish_one(self, markers: m.Markers) -> None:
        self._writing.add(markers.transactional_id)
        done = False
        try:
            missing = await self._write(markers, self._missing.pop(markers, markers.partitions))
            if missing:
                self._missing[markers] = missing
            else:
                await self.runner.run(self.coordinator.markers_written, markers)
                done, self._pause = True, RETRY_SECONDS
        except errors.KafkaStorageError as error:
            logger.warning("the end of the transaction of %r is tried again: %s", markers.transactional_id, error)
        finally:
            self._writing.discard(markers.transactional_id)
            if not done:
                self._finish_later(self._pause)
                self._pause = min(2 * self._pause, LONGEST_RETRY_SECONDS)

    async def _write(self, markers: m.Markers, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Write markers to partitions; return those that have to be tried again."""
        again, flushes = [], []
        end = EndOfTransaction(
            markers.producer_id,
            markers.producer_epoch,
            markers.committed,
            self._partition.leader_epoch,
            markers.version,
        )
        for place in sorted(partitions):
            try:
                if (flush := append_marker(self._node, place, end)) is not None:
                    flushes.append(flush)
            except errors.UnknownTopicOrPartition:
                logger.info("%s is gone; the transaction of %r ends without it", place, markers.transactional_id)
            except (errors.InvalidProducerEpoch, errors.TransactionCoordinatorFenced) as error:
                logger.warning("the transaction of %r has ended in %s: %s", markers.transactional_id, place, error)
            except errors.KafkaError as error:
                logger.info("the marker of %r for %s is tried again: %s", markers.transactional_id, place, error)
                again.append(place)
        for log, offset in flushes:
            await self._node.logs.flusher.flushed(log, offset)
        return frozenset(again)

    def _finish_later(self, seconds: float) -> None:
        if self._later is None and not self._is_closed:
            self._later = asyncio.get_running_loop().call_later(seconds, self._finish_now)

    def _finish_now(self) -> None:
        self._later = None
        self._finishing = asyncio.ensure_future(self.finish())

    def close(self) -> None:
        """Stop the timers; what is unfinished is found again by the next start."""
        self._is_closed = True
        self.runner.close()
        if self._later is not None:
            self._later.cancel()
        if self._finishing is not None:
            self._finishing.cancel()


class Transactions:
    """All transactions of this broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._shards: list[Shard] = []
        self._opening = asyncio.Lock()
        self._loading: set[asyncio.Task[None]] = set()

    async def ready(self) -> None:
        """Make ``__transaction_state`` if it is not there, and its coordinators."""
        if self._shards:
            return
        async with self._opening:
            if not self._shards:
                await ensure_internal_topic(self._node, TRANSACTION_STATE, *self._layout())
                self.open()

    def _layout(self) -> tuple[int, dict[str, str]]:
        config = self._node.config
        segment_bytes = str(config.transaction_state_log_segment_bytes)
        configs = {"cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": segment_bytes}
        return config.transaction_state_log_num_partitions, configs

    def open(self) -> None:
        """Begin to load the coordinators of the partitions that there are."""
        config = transaction_config(self._node.config)
        for partition in self._node.partitions.get(TRANSACTION_STATE, []):
            shard = Shard(self._node, partition, config)
            self._shards.append(shard)
            task = asyncio.ensure_future(shard.load_or_break())
            self._loading.add(task)
            task.add_done_callback(self._loading.discard)

    def of(self, transactional_id: str) -> Shard:
        """Return the shard of a transactional id, or raise the error that says why there is none now."""
        if not self._shards:
            raise errors.CoordinatorNotAvailable("No transaction has a coordinator yet: ask FindCoordinator first.")
        if len(transactional_id) > LONGEST_ID:
            raise errors.InvalidRequest(f"A transactional id of {len(transactional_id):,} characters is too long.")
        shard = self._shards[partition_for(transactional_id, len(self._shards))]
        if not shard.is_loaded:
            raise shard.why_not(f"the transactional id {transactional_id!r}")
        return shard

    def all(self) -> Iterator[TransactionCoordinator]:
        """Give every coordinator that there is."""
        return (shard.coordinator for shard in readable(self._shards, "transactions"))

    async def spare_producer_id(self, transactional_id: str) -> int:
        """Return a new producer id if the next request about this transactional id may need one, else none."""
        if self.of(transactional_id).coordinator.needs_producer_id(transactional_id):
            return await self._node.producer_ids.next()
        return NO_PRODUCER_ID

    def verify(self, request: m.AddPartitionsRequest) -> dict[TopicPartition, int]:
        """Whether partitions belong to the transaction that is ongoing: a code for each."""
        outcome = self.of(request.transactional_id).coordinator.verify(request, now=self._node.clock.now())
        assert isinstance(outcome.response, m.VerifyResponse)
        return outcome.response.codes

    async def add_partitions(self, request: m.AddPartitionsRequest) -> int:
        """Add partitions to a transaction, which begins with the first; return the error code."""
        shard = self.of(request.transactional_id)
        return (await shard.run(shard.coordinator.add_partitions, request)).error_code

    def close(self) -> None:
        """Stop all timers and loading."""
        for task in self._loading:
            task.cancel()
        for shard in self._shards:
            shard.close()


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    """What the coordinators need of the broker's config."""
    every = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
    look = config.transaction_remove_expired_transaction_cleanup_interval_ms
    return TransactionConfig(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=every,
        transaction_remove_expired_transaction_cleanup_interval_ms=look,
    )
