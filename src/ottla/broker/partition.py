"""A partition as the broker serves it: its log, leader epoch, readable range and waiting fetches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from ottla import errors
from ottla.storage.flusher import Flusher
from ottla.storage.log import AppendInfo, Log
from ottla.storage.transactions import marker_batch
from ottla.types import Millis


class FetchWaiter:
    """A fetch that waits until enough bytes are readable or its time is up."""

    __slots__ = ("_future", "_missing", "read_committed")

    def __init__(self, missing: int, *, read_committed: bool = False) -> None:
        self._missing = missing
        self.read_committed = read_committed
        """It waits for bytes below the last stable offset and ignores open transactions."""
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def appended(self, size: int) -> None:
        """Count bytes that became readable."""
        self._missing -= size
        if self._missing <= 0:
            self.release()

    def release(self) -> None:
        """End the wait."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, partitions: Iterable[Partition], seconds: float) -> None:
        """Wait for data in any of the partitions, at most this many seconds."""
        partitions = list(partitions)
        timer = asyncio.get_running_loop().call_later(seconds, self.release)
        for partition in partitions:
            partition.waiters.add(self)
        try:
            await self._future
        finally:
            timer.cancel()
            for partition in partitions:
                partition.waiters.discard(self)


class EndOfTransaction(NamedTuple):
    """The content of a transaction marker."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    version: int
    """The version of the transaction protocol. In the second, a marker has a new epoch."""


class Partition:
    """One partition of a topic, led by this broker."""

    __slots__ = ("_flusher", "index", "leader_epoch", "log", "topic", "waiters")

    def __init__(self, topic: str, index: int, log: Log, leader_epoch: int, flusher: Flusher) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self._flusher = flusher
        self.waiters: set[FetchWaiter] = set()

    @property
    def high_watermark(self) -> int:
        """The end of the readable records. With one replica, this is the end of the log."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of the decided records: the start of the first open transaction, if there is one."""
        return self.log.last_stable_offset(self.high_watermark)

    def readable_end(self, *, read_committed: bool) -> int:
        """Return the offset up to which a consumer with this isolation level reads."""
        return self.last_stable_offset if read_committed else self.high_watermark

    @property
    def commits_at_once(self) -> bool:
        """Whether every append is committed as soon as it is written."""
        return not self.log.flushes_on_append

    def committed(self, offset: int) -> asyncio.Future[None] | None:
        """Return None if everything below the offset is committed, else a future that waits for it.

        This is the only thing that ``acks=all``, offset commits, group state and transaction state wait for. With one
        replica, a record is committed when it is written, and flushed if the topic's config asks for that.
        """
        return self.flushed(offset) if self.log.flushes_on_append else None

    def flushed(self, offset: int) -> asyncio.Future[None] | None:
        """Return None if the topic's config requires no flush below the offset, else a future that waits for it."""
        if not self.log.must_flush(offset):
            return None
        return asyncio.ensure_future(self._flusher.flushed(self.log, offset))

    def check_epoch(self, leader_epoch: int) -> None:
        """Compare the client's leader epoch with the current one; -1 is not compared."""
        if leader_epoch < 0 or leader_epoch == self.leader_epoch:
            return
        if leader_epoch < self.leader_epoch:
            raise errors.FencedLeaderEpoch(f"The leader epoch is {self.leader_epoch} now, not {leader_epoch}.")
        raise errors.UnknownLeaderEpoch(f"The leader epoch is still {self.leader_epoch}, not {leader_epoch}.")

    def append(self, records: memoryview, *, now: Millis) -> AppendInfo:
        """Append the records of a producer, and wake waiting fetches.

        ``min.insync.replicas`` has no effect: like Kafka, the broker requires no more replicas than the partition has.
        """
        info = self.log.append(records, leader_epoch=self.leader_epoch, now=now)
        if self.waiters and not info.duplicate:
            self._wake(len(records))
        return info

    def append_own(self, records: memoryview, *, now: Millis) -> AppendInfo:
        """Append records of the broker itself."""
        info = self.log.append(records, leader_epoch=self.leader_epoch, now=now, from_client=False)
        if self.waiters:
            self._wake(len(records))
        return info

    def append_marker(self, end: EndOfTransaction, *, now: Millis) -> AppendInfo:
        """Append the marker that ends a transaction, and wake the fetches that wait for it."""
        batch = marker_batch(
            end.producer_id,
            end.producer_epoch,
            committed=end.committed,
            coordinator_epoch=end.coordinator_epoch,
            timestamp=now,
        )
        records, stable = memoryview(batch), self.last_stable_offset
        info = self.log.append(
            records, leader_epoch=self.leader_epoch, now=now, from_client=False, transaction_version=end.version
        )
        self._wake(len(records))
        if self.last_stable_offset > stable:
            self._release_stable()
        return info

    def _wake(self, size: int) -> None:
        undecided = self.log.producers.has_any_ongoing
        for waiter in tuple(self.waiters):
            if not (undecided and waiter.read_committed):
                waiter.appended(size)

    def _release_stable(self) -> None:
        """Wake the read_committed fetches, which check again how much they can read."""
        for waiter in tuple(self.waiters):
            if waiter.read_committed:
                waiter.release()

    def release_waiters(self) -> None:
        """Wake all waiting fetches: the partition was deleted, or its epoch changed."""
        for waiter in tuple(self.waiters):
            waiter.release()
