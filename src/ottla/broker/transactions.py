"""The transaction coordinators of this broker: one for each partition of ``__transaction_state``.

A transaction is decided by a record of its shard. Only when that is committed are the markers written, one to each
partition of the transaction. It is complete when all markers are committed. What a crash interrupts is finished after
the next load.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla import errors
from ottla.broker.partition import EndOfTransaction, Partition
from ottla.broker.state_topics import UNWRITTEN, Shard, Shards
from ottla.config import BrokerConfig
from ottla.driver import Commit
from ottla.machine import Machine, Outcome
from ottla.metadata.machine import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.records import BatchHeader, decode_batch, encode_pairs
from ottla.transactions import messages as m
from ottla.transactions.config import TransactionConfig
from ottla.transactions.coordinator import TransactionCoordinator
from ottla.transactions.records import LONGEST_ID, TransactionRecord, decode, encode
from ottla.types import NO_PRODUCER_ID, Millis, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.transactions")
Response = TypeVar("Response")
#: The first pause before a failed write is tried again. It doubles with every failure, up to the longest.
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.05, 5.0


def _encode_batch(records: Sequence[TransactionRecord], timestamp: Millis) -> bytearray:
    return encode_pairs([encode(record) for record in records], timestamp, -1, -1)


async def write_marker(node: Node, place: TopicPartition, end: EndOfTransaction) -> None:
    """Write the end of a transaction to one partition; raises the Kafka error that says why not."""
    await _until_committed(append_marker(node, place, end))


def append_marker(node: Node, place: TopicPartition, end: EndOfTransaction) -> Commit | None:
    """Do the same without the wait; return what to wait for until the marker is committed."""
    partition = node.leading(place.topic, place.partition)
    if place.topic == CONSUMER_OFFSETS:
        return node.groups.write_marker(place.partition, end)
    return partition.committed(partition.append_marker(end, now=node.clock.now()).last_offset + 1)


async def _until_committed(pending: Commit | None) -> None:
    if pending is not None:
        assert isinstance(pending, asyncio.Future)
        await asyncio.shield(pending)  # Others may wait for it too.


class _Machine(Machine[TransactionRecord]):
    """The coordinator as the driver sees it. Markers must follow when a timer has decided a transaction."""

    def __init__(self, coordinator: TransactionCoordinator, finish_soon: Callable[[], None]) -> None:
        self._coordinator = coordinator
        self._finish_soon = finish_soon

    def replay(self, record: TransactionRecord, /) -> None:
        self._coordinator.replay(record)

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[TransactionRecord, None]:
        outcome = self._coordinator.fire(key, now=now)
        if outcome.records:
            for record in outcome.records:
                if record.value is not None:
                    logger.info("the transaction of %r has timed out and is aborted", record.transactional_id)
            self._finish_soon()
        return outcome


class TransactionShard(Shard[TransactionRecord]):
    """The transactional ids of one partition."""

    def __init__(self, node: Node, partition: Partition, config: TransactionConfig) -> None:
        self.coordinator = TransactionCoordinator(config)
        super().__init__(node, partition, _Machine(self.coordinator, lambda: self._finish_later(0)), _encode_batch)
        self._missing: dict[m.Markers, frozenset[TopicPartition]] = {}
        """The partitions whose markers could not be written yet."""
        self._writing: set[str] = set()
        self._pause = RETRY_SECONDS
        self._is_closed = False
        self._later: asyncio.TimerHandle | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._late: set[asyncio.Future[None]] = set()
        """Writes markers after the response has left."""

    def replay(self, data: bytes, position: int, header: BatchHeader) -> int:
        count = 0
        for record in decode_batch(data, position):
            known = decode(record.key, record.value) if record.key is not None else None
            if known is not None:
                self.coordinator.replay(known)
                count += 1
        return count

    async def loaded(self) -> None:
        self.is_loaded = True
        await self.runner.run(self.coordinator.loaded)
        await self.finish()

    async def run(self, operation: Callable[..., Outcome[TransactionRecord, Response]], request: Any) -> Response:
        """Run an operation and write the markers of what it decided."""
        response = await self.answer(operation, request)
        if self.coordinator.has_unfinished:
            await self._finish_within(self._timeout(request))
        return response

    async def _finish_within(self, timeout_ms: Millis) -> None:
        """Write markers, in the background if that takes too long: the decision is committed, so clients may know."""
        if self.partition.commits_at_once:
            await self.finish()  # This broker is alone.
            return
        finishing = asyncio.ensure_future(self.finish())
        if await _ends(finishing, timeout_ms):
            finishing.result()
        else:
            self._late.add(finishing)
            finishing.add_done_callback(self._late.discard)

    async def answer(self, operation: Callable[..., Outcome[TransactionRecord, Response]], request: Any) -> Response:
        """Run an operation. Its errors are those that clients of a coordinator know."""
        try:
            begun = self.runner.begin(operation, request)
            if not isinstance(begun, asyncio.Future):
                return begun  # type: ignore[no-any-return]
            if await _ends(begun, timeout_ms := self._timeout(request)):
                return begun.result()  # type: ignore[no-any-return]
            begun.add_done_callback(lambda late: late.cancelled() or late.exception())  # Nobody waits any more.
            self._finish_later(0)  # If it is committed later, markers may have to follow.
            raise errors.CoordinatorNotAvailable(
                f"The transaction is written, but not on enough replicas after {timeout_ms} ms. Try again."
            )
        except errors.NotLeaderOrFollower as error:
            raise errors.NotCoordinator(
                "Another broker has become the coordinator. Find the coordinator again."
            ) from error
        except (*UNWRITTEN, errors.RecordListTooLarge) as error:
            raise errors.CoordinatorNotAvailable(f"The transaction could not be written: {error}") from error

    def _timeout(self, request: str | m.InitRequest | m.AddPartitionsRequest | m.EndRequest) -> Millis:
        """Return how long a request waits for replicas: as in Kafka, as long as the transaction may take."""
        if isinstance(request, m.InitRequest):
            return request.timeout
        known = self.coordinator.transactions.get(request if isinstance(request, str) else request.transactional_id)
        return self.coordinator.config.transaction_max_timeout_ms if known is None else known.timeout

    # ── markers ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def finish(self) -> None:
        """Write the markers of every decided transaction. What cannot be written now is tried again."""
        decided = list(self.coordinator.unfinished())  # What is decided during the wait may not be committed after it.
        try:
            await _until_committed(self.partition.committed(self.partition.log.log_end_offset))
        except errors.NotLeaderOrFollower:
            return  # The next coordinator finishes them.
        for markers in decided:
            if markers.transactional_id not in self._writing and self.coordinator.waits_for(markers):
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
        except errors.NotLeaderOrFollower:
            pass  # The next coordinator finishes it.
        except UNWRITTEN as error:
            logger.warning("the end of the transaction of %r is tried again: %s", markers.transactional_id, error)
        finally:
            self._writing.discard(markers.transactional_id)
            if not done:
                self._finish_later(self._pause)
                self._pause = min(2 * self._pause, LONGEST_RETRY_SECONDS)

    async def _write(self, markers: m.Markers, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Write markers to partitions; return the partitions that must be tried again."""
        again: list[TopicPartition] = []
        commits: dict[TopicPartition, Commit | None] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        end = EndOfTransaction(
            markers.producer_id,
            markers.producer_epoch,
            markers.committed,
            self.partition.leader_epoch,
            markers.version,
        )
        for place in sorted(partitions):
            try:
                leader = self._node.leader_of(place)
                if leader == self._node.id:
                    commits[place] = append_marker(self._node, place, end)
                else:
                    elsewhere.setdefault(leader, []).append(place)
            except errors.KafkaError as error:
                if _is_tried_again(markers, place, error):
                    again.append(place)
        if self._node.cluster is not None and elsewhere:
            for place, failure in (await self._node.cluster.requests.write_markers(elsewhere, end)).items():
                if failure is not None and _is_tried_again(markers, place, failure):
                    again.append(place)
        for place, pending in commits.items():
            try:
                await _until_committed(pending)
            except errors.NotLeaderOrFollower as error:
                if _is_tried_again(markers, place, error):
                    again.append(place)
        return frozenset(again)

    def _finish_later(self, seconds: float) -> None:
        if self._later is None and not self._is_closed:
            self._later = asyncio.get_running_loop().call_later(seconds, self._finish_now)

    def _finish_now(self) -> None:
        self._later = None
        self._finishing = asyncio.ensure_future(self.finish())

    def close(self) -> None:
        """Stop the timers. The next load finishes what is unfinished."""
        self._is_closed = True
        super().close()
        if self._later is not None:
            self._later.cancel()
        for task in (*self._late, *([self._finishing] if self._finishing is not None else ())):
            task.cancel()


async def _ends(future: asyncio.Future[Any], timeout_ms: Millis) -> bool:
    """Wait for the end of a future, at most this long, and return whether it came. It is not cancelled."""
    done, _ = await asyncio.wait([future], timeout=timeout_ms / 1000)
    return bool(done)


def _is_tried_again(markers: m.Markers, place: TopicPartition, error: errors.KafkaError) -> bool:
    """Whether a marker that was refused must still be written."""
    if isinstance(error, errors.UnknownTopicOrPartition):
        logger.info("%s is gone; the transaction of %r ends without it", place, markers.transactional_id)
        return False
    if isinstance(error, errors.InvalidProducerEpoch | errors.TransactionCoordinatorFenced):
        logger.warning("the transaction of %r has ended in %s: %s", markers.transactional_id, place, error)
        return False
    logger.info("the marker of %r for %s is tried again: %s", markers.transactional_id, place, error)
    return True


class Transactions:
    """All transactions of this broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        config = transaction_config(node.config)
        self.shards: Shards[TransactionShard] = Shards(
            node,
            TRANSACTION_STATE,
            self._layout,
            lambda partition: TransactionShard(node, partition, config),
            "transactional id",
        )

    def _layout(self) -> tuple[int, dict[str, str], int]:
        config = self._node.config
        segment_bytes = str(config.transaction_state_log_segment_bytes)
        configs = {"cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": segment_bytes}
        if config.is_clustered:
            configs["min.insync.replicas"] = str(config.transaction_log_min_isr)
        return config.transaction_state_log_num_partitions, configs, config.transaction_log_replicas

    def of(self, transactional_id: str) -> TransactionShard:
        """Return the shard of a transactional id, or raise the error that says why it cannot be used now."""
        if len(transactional_id) > LONGEST_ID:
            raise errors.InvalidRequest(f"A transactional id of {len(transactional_id):,} characters is too long.")
        return self.shards.of(transactional_id)

    async def spare_producer_id(self, transactional_id: str) -> int:
        """Return a new producer id if the next request for this transactional id may need one, else -1."""
        if self.of(transactional_id).coordinator.needs_producer_id(transactional_id):
            return await self._node.producer_ids.next()
        return NO_PRODUCER_ID

    async def verify(self, request: m.AddPartitionsRequest) -> dict[TopicPartition, int]:
        """Return an error code for each partition: 0 if it belongs to the ongoing transaction."""
        shard = self.of(request.transactional_id)
        return (await shard.answer(shard.coordinator.verify, request)).codes

    async def add_partitions(self, request: m.AddPartitionsRequest) -> int:
        """Add partitions to a transaction, and begin it if it has none; return the error code."""
        shard = self.of(request.transactional_id)
        return (await shard.run(shard.coordinator.add_partitions, request)).error_code

    async def added_or_verified(self, request: m.AddPartitionsRequest, *, adds: bool) -> dict[TopicPartition, int]:
        """Do one of these for a leader of partitions. The coordinator may be on another broker."""
        cluster = self._node.cluster
        if cluster is not None:
            await self.shards.ready()
            coordinator = self.shards.leader_of(request.transactional_id)
            if coordinator != self._node.id:
                return await cluster.requests.add_partitions_to_txn(coordinator, request, verify_only=not adds)
        if adds:
            return dict.fromkeys(request.partitions, await self.add_partitions(request))
        return await self.verify(request)


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    """Return the settings of the coordinators."""
    every = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
    look = config.transaction_remove_expired_transaction_cleanup_interval_ms
    return TransactionConfig(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=every,
        transaction_remove_expired_transaction_cleanup_interval_ms=look,
    )
