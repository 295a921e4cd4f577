"""Followers fetch: one task for each broker that leads partitions of which this broker has a replica.

What a response means is decided by `replication.follower.Follower`; the partition performs it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla import errors
from ottla.broker.partition import Partition
from ottla.consuming.sessions import FetchSession, Wanted
from ottla.metadata.values import NO_LEADER
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.replication.values import Append, Ignore, Restart, Step, Stop, Truncate, Wait
from ottla.types import Millis, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.cluster.peers import Peers
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.replicas")
#: A fetch waits at most this much longer than it asked for.
PATIENCE_MS = 5_000
#: Half of the pause after the first failure. It doubles up to replica.fetch.backoff.ms.
FIRST_BACKOFF_MS = 5
#: How long a fetch waits for records while those of other partitions are forced to disk.
FLUSH_MS = 5


class Fetchers:
    """All fetches of this broker as a follower."""

    def __init__(self, node: Node, peers: Peers) -> None:
        self._node = node
        self._peers = peers
        self._by_leader: dict[int, Fetcher] = {}
        self._leader_of: dict[TopicPartition, int] = {}

    def update(self, partition: Partition) -> None:
        """Fetch from the present leader of a partition, or not at all if this broker leads it."""
        place = partition.log.topic_partition
        leader = partition.state.leader if partition.follower is not None else NO_LEADER
        before = self._leader_of.get(place, NO_LEADER)
        if before not in (NO_LEADER, leader):
            self._by_leader[before].remove(place)
        if leader == NO_LEADER:
            self._leader_of.pop(place, None)
            return
        self._leader_of[place] = leader
        fetcher = self._by_leader.get(leader)
        if fetcher is None:
            fetcher = self._by_leader[leader] = Fetcher(self._node, self._peers, leader)
        fetcher.add(place, partition)

    def forget(self, partition: Partition) -> None:
        """Fetch a partition no longer: it is closed."""
        self.update(partition)

    def moved(self, broker_id: int) -> None:
        """A broker has started again, maybe at another address."""
        if (fetcher := self._by_leader.get(broker_id)) is not None:
            fetcher.retry_now()

    def max_lags(self) -> Iterator[tuple[int, int]]:
        """Yield each leader, and the most committed records that this broker lacks in one of its partitions."""
        for leader, fetcher in sorted(self._by_leader.items()):
            if fetcher.has_partitions:
                yield leader, fetcher.max_lag

    async def close(self) -> None:
        """Stop all fetches."""
        for fetcher in self._by_leader.values():
            fetcher.stop()
        await asyncio.gather(*(each.task for each in self._by_leader.values()), return_exceptions=True)


class Fetcher:
    """The fetches from one leader."""

    def __init__(self, node: Node, peers: Peers, leader: int) -> None:
        self._node = node
        self._peers = peers
        self._leader = leader
        self._partitions: dict[TopicPartition, Partition] = {}
        self._waiting: dict[TopicPartition, float] = {}
        """Partitions that wait after an error, and until when."""
        self._failed: dict[TopicPartition, int] = {}
        """How often fetches of partitions have failed in a row."""
        self._flushing: set[TopicPartition] = set()
        """Partitions whose last records are being forced to disk."""
        self._lags: dict[TopicPartition, int] = {}
        """Committed records that partitions lack, if any."""
        self._polling: Connection | None = None
        """The connection while a fetch is under way."""
        self._is_interrupted = False
        self._changed = asyncio.Event()
        self._retry = asyncio.Event()
        self._session = FetchSession()
        self._failures = 0
        self.task = asyncio.ensure_future(self._run())

    @property
    def has_partitions(self) -> bool:
        return bool(self._partitions)

    @property
    def max_lag(self) -> int:
        """The most committed records that a partition lacks."""
        return max(self._lags.values(), default=0)

    def add(self, place: TopicPartition, partition: Partition) -> None:
        if place not in self._partitions or place in self._waiting:
            self._interrupt()
        self._partitions[place] = partition
        self._waiting.pop(place, None)
        self._failed.pop(place, None)
        self._changed.set()

    def remove(self, place: TopicPartition) -> None:
        for known in (self._partitions, self._waiting, self._lags, self._failed):
            known.pop(place, None)

    def _interrupt(self) -> None:
        """End a fetch that waits for records of other partitions: a new leader cannot commit without its followers."""
        if self._polling is not None and not self._is_interrupted:
            self._is_interrupted = True
            self._polling.abort()

    def retry_now(self) -> None:
        """End the pause after a failed connection."""
        self._retry.set()

    def stop(self) -> None:
        self.task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_on_one_connection()
            except asyncio.CancelledError:
                raise
            except errors.OttlaError as error:
                if self._is_interrupted:
                    continue
                self._log_failure(error)
            except Exception:
                logger.exception("fetching from broker %d failed", self._leader)
            finally:
                self._polling, self._is_interrupted = None, False
            await self._pause()

    async def _fetch_on_one_connection(self) -> None:
        await self._until_wanted()
        connection = await self._peers.connection(self._leader, "fetch")
        self._session.reset()
        self._session.id = 0
        while True:
            await self._until_wanted()
            await self._fetch(connection)
            self._failures = 0

    async def _until_wanted(self) -> None:
        """Wait until there is a partition to fetch."""
        while not (wanted := self._wanted_now()):
            self._changed.clear()
            if wanted is None:
                await self._changed.wait()
            else:
                soonest = min(self._waiting.values(), default=math.inf) - asyncio.get_running_loop().time()
                await _wait(self._changed, min(max(0.001, soonest), 1.0))

    def _wanted_now(self) -> dict[TopicPartition, Partition] | None:
        """Return the partitions to fetch now; empty if all of them wait, None if there are none."""
        if not self._partitions:
            return None
        if self._waiting:
            now = asyncio.get_running_loop().time()
            self._waiting = {place: until for place, until in self._waiting.items() if until > now}
        if not self._waiting and not self._flushing:
            return self._partitions
        away = self._waiting.keys() | self._flushing
        return {place: partition for place, partition in self._partitions.items() if place not in away}

    async def _fetch(self, connection: Connection) -> None:
        config = self._node.config
        partitions = dict(self._wanted_now() or {})
        wanted = self._wanted(partitions)
        if not wanted:
            return  # All are throttled.
        message: dict[str, Any] = {
            "replica_state": {"replica_id": self._node.id, "replica_epoch": self._node.broker_epoch},
            "max_wait": self._longest_wait(),
            "min_bytes": config.replica_fetch_min_bytes,
            "max_bytes": config.replica_fetch_response_max_bytes,
            **self._session.message(wanted),
        }
        self._polling = connection
        response = await connection.request(
            ApiKey.FETCH, message, timeout_ms=config.replica_fetch_wait_max_ms + PATIENCE_MS
        )
        self._polling = None
        if response.error_code:
            self._session.reset()
            self._session.id = 0
            return
        self._session.answered(response.session_id)
        for topic in response.responses:
            for entry in topic.partitions:
                self._take(topic, entry, partitions, wanted)

    def _longest_wait(self) -> Millis:
        """Return how long the leader may wait for records: not when others are to be fetched meanwhile."""
        longest = self._node.config.replica_fetch_wait_max_ms
        if self._flushing:
            return min(longest, FLUSH_MS)
        if self._waiting:
            pause = min(self._waiting.values()) - asyncio.get_running_loop().time()
            return min(longest, max(1, int(pause * 1000)))
        return longest

    def _wanted(self, partitions: dict[TopicPartition, Partition]) -> dict[TopicPartition, Wanted]:
        """Return what to ask for. Partitions that are throttled and have no room now wait."""
        throttles, most = self._node.throttles, self._node.config.replica_fetch_max_bytes
        wanted = {}
        reserved = 0
        for place, partition in partitions.items():
            follower = partition.follower
            if follower is None:
                self._wait_for(place)
                continue
            size = most
            if throttles.is_follower_throttled(partition) and self._node.id not in partition.state.isr:
                size = min(most, throttles.follower.room() - reserved)
                reserved += size
                if size <= 0:
                    self._wait_for(place, throttles.follower.pause())
                    continue
            wanted[place] = Wanted(
                partition.log.topic_id,
                follower.fetch_offset,
                size,
                follower.leader_epoch,
                follower.last_fetched_epoch,
                partition.log.log_start_offset,
            )
        return wanted

    def _take(
        self,
        topic: Struct,
        entry: Struct,
        partitions: dict[TopicPartition, Partition],
        wanted: dict[TopicPartition, Wanted],
    ) -> None:
        known = self._node.metadata.topics_by_id.get(topic.topic_id)
        if known is None:
            return
        place = TopicPartition(known.name, entry.partition_index)
        partition, want = partitions.get(place), wanted.get(place)
        if partition is None or want is None or self._partitions.get(place) is not partition:
            return
        follower = partition.follower
        if follower is None or follower.leader_epoch != want.leader_epoch:
            return
        try:
            self._perform(place, partition, follower.response(want.offset, entry))
        except errors.KafkaError as error:
            if place in self._partitions:  # Otherwise its disk has failed.
                logger.error("the replica %s could not be written and is tried again: %s", place, error)
                self._wait_for(place)
        except Exception:
            logger.exception("the replica %s could not be written", place)
            self._wait_for(place)

    def _perform(self, place: TopicPartition, partition: Partition, step: Step) -> None:
        now = self._node.clock.now()
        match step:
            case Append():
                partition.replicate(step, now=now)
                self._failed.pop(place, None)
                pending = partition.flushed(partition.log.log_end_offset) if step.records else None
                if pending is not None:
                    # The next fetch tells the leader that this replica has the records.
                    self._flushing.add(place)
                    pending.add_done_callback(partial(self._flushed, place))
                self._node.metrics.replication.copied(len(step.records))
                if self._node.throttles.is_follower_throttled(partition):
                    self._node.throttles.follower.moved(len(step.records))
                if (lag := step.high_watermark - partition.log.log_end_offset) > 0:
                    self._lags[place] = lag
                else:
                    self._lags.pop(place, None)
            case Truncate(offset):
                logger.info("the replica %s is cut to offset %d, where its leader's log differs", place, offset)
                partition.log.truncate_to(offset, now=now)
            case Restart(offset):
                logger.warning("the replica %s starts again at offset %d of its leader", place, offset)
                partition.log.truncate_fully_and_start_at(offset, now=now)
            case Wait() | Stop():
                # After Stop, the metadata will have a newer leader epoch, which ends the wait.
                self._wait_for(place)
            case Ignore():
                pass

    def _flushed(self, place: TopicPartition, pending: asyncio.Future[None]) -> None:
        self._flushing.discard(place)
        self._changed.set()
        if not pending.cancelled() and (error := pending.exception()) is not None:
            logger.error("the replica %s could not be flushed: %s", place, error)
            self._wait_for(place)

    def _wait_for(self, place: TopicPartition, delay_ms: Millis | None = None) -> None:
        """Leave a partition out for a while, by default after an error: shortly at first, the leader may be new."""
        if delay_ms is None:
            failures = self._failed[place] = self._failed.get(place, 0) + 1
            delay_ms = min(FIRST_BACKOFF_MS << min(failures, 10), self._node.config.replica_fetch_backoff_ms)
        self._waiting[place] = asyncio.get_running_loop().time() + delay_ms / 1000

    async def _pause(self) -> None:
        self._retry.clear()
        delay_ms = min(FIRST_BACKOFF_MS << min(self._failures, 10), self._node.config.replica_fetch_backoff_ms)
        await _wait(self._retry, delay_ms / 1000)

    def _log_failure(self, error: Exception) -> None:
        self._failures += 1
        level = logging.WARNING if self._failures == 1 else logging.DEBUG
        logger.log(level, "broker %d cannot be fetched from: %s", self._leader, error)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
