"""A partition as the broker serves it: its log, its role, the high watermark and waiting fetches.

What a leader or follower decides is in `ottla.replication`. Here it meets the log, producers and fetches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from ottla import errors
from ottla.broker.fetch_waiter import FetchWaiter
from ottla.metadata.values import NO_LEADER, BrokerState, PartitionState
from ottla.replication.follower import Follower
from ottla.replication.leader import Leader
from ottla.replication.values import Append, Fetched, Proposal, ReplicaFetch
from ottla.storage.flusher import Flusher
from ottla.storage.log import AppendInfo, Log
from ottla.storage.transactions import marker_batch
from ottla.types import Millis


class LeaderSettings(NamedTuple):
    """The configs that a leader needs."""

    min_isr: int
    max_lag_ms: Millis
    brokers: Mapping[int, BrokerState]


class EndOfTransaction(NamedTuple):
    """The content of a transaction marker."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    version: int
    """The version of the transaction protocol. In the second, a marker has a new epoch."""


class Partition:
    """One partition of a topic on this broker: its log, and its role as leader or follower.

    A partition whose only replica is here needs no `Leader`: what is written is committed.
    """

    __slots__ = (
        "_deletions", "_flusher", "_hidden", "_known_watermark", "_order", "_uncommitted", "follower", "index",
        "is_leader", "leader", "leader_epoch", "log", "on_change", "state", "topic", "waiters",
    )  # fmt: skip

    def __init__(self, topic: str, index: int, log: Log, flusher: Flusher, high_watermark: int) -> None:
        """``high_watermark`` is the one of the last run."""
        self.topic = topic
        self.index = index
        self.log = log
        self.state = PartitionState((), (), NO_LEADER)
        self.leader_epoch = -1
        self.is_leader = False
        self.leader: Leader | None = None
        """Counts what followers have. None if this is the only replica, or no leader."""
        self.follower: Follower | None = None
        self.on_change: Callable[[Partition], None] = _ignore
        """Called when a follower may join or leave the ISR."""
        self._known_watermark = high_watermark
        self._flusher = flusher
        self.waiters: set[FetchWaiter] = set()
        self._uncommitted: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap of what waits for the high watermark: the offset, an order, the future."""
        self._deletions: list[tuple[int, asyncio.Future[None]]] = []
        """What waits until all replicas start at an offset."""
        self._order = 0
        self._hidden: deque[tuple[int, int]] = deque()
        """End offset and size of appends above the high watermark: fetches do not see them yet."""

    # ── role ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def lead(self, state: PartitionState, me: int, settings: LeaderSettings, *, now: Millis) -> bool:
        """Become or stay the leader. Return whether this broker did not lead before."""
        begins, watermark = not self.is_leader, self.high_watermark
        if begins:
            self._resign()
        if begins or state.leader_epoch != self.leader_epoch:
            self.leader = None  # A new epoch has a new one. What waits for a commit goes on waiting.
            self.release_waiters()
        self.state, self.leader_epoch, self.is_leader, self.follower = state, state.leader_epoch, True, None
        if state.replicas == (me,):
            self.leader = None
        elif self.leader is None:
            self.log.begin_epoch(state.leader_epoch)
            self.leader = Leader(
                me=me,
                state=state,
                log=self.log,
                brokers=settings.brokers,
                min_isr=settings.min_isr,
                max_lag_ms=settings.max_lag_ms,
                high_watermark=watermark,
                now=now,
            )
        else:
            # Together: by an older minimum, the new ISR could commit what the controller does not count on.
            self.settings_changed(settings, now=now)
            self.leader.state_changed(state, now=now)
        self._watermark_rose()
        self._low_watermark_rose()
        return begins

    def follow(self, state: PartitionState) -> bool:
        """Become or stay a follower. Return whether another leader or epoch is followed from now on."""
        begins = self.follower is None or state.leader_epoch != self.leader_epoch or state.leader != self.state.leader
        if begins:
            watermark = self.high_watermark
            self._resign()
            self.follower = Follower(state=state, log=self.log, high_watermark=watermark)
        self.state, self.leader_epoch = state, state.leader_epoch
        return begins

    def rest(self, state: PartitionState) -> None:
        """Neither lead nor follow: the partition has no leader."""
        self._resign()
        self.state, self.leader_epoch = state, state.leader_epoch

    def settings_changed(self, settings: LeaderSettings, *, now: Millis) -> None:
        """Use new configs."""
        if self.leader is not None:
            self.leader.settings_changed(min_isr=settings.min_isr, max_lag_ms=settings.max_lag_ms, now=now)
            self._watermark_rose()

    def _resign(self, error: errors.KafkaError | None = None) -> None:
        """End the present role. What waited for a commit is told that it may be lost."""
        self._known_watermark = self.high_watermark
        self.is_leader, self.leader, self.follower = False, None, None
        waiting = [each[2] for each in self._uncommitted] + [each[1] for each in self._deletions]
        self._uncommitted, self._deletions = [], []
        self._hidden.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error or self.not_leader())
                future.exception()  # Nobody may wait any more: that is no accident.
        self.release_waiters()

    def close(self, error: errors.KafkaError | None = None) -> None:
        """Stop to serve the partition: it is deleted or no longer here. What waits gets the error."""
        self._resign(error)
        self.leader_epoch = -1

    def not_leader(self) -> errors.KafkaError:
        return errors.NotLeaderOrFollower(f"This broker does not lead {self.topic}-{self.index}. Refresh the metadata.")

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def high_watermark(self) -> int:
        """The end of the committed records. With one replica, this is the end of the log."""
        if self.leader is not None:
            return self.leader.high_watermark
        if self.is_leader:
            return self.log.log_end_offset
        return self.follower.high_watermark if self.follower is not None else self._known_watermark

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
        return self.leader is None and not self.log.flushes_on_append

    def committed(self, offset: int) -> asyncio.Future[None] | None:
        """Return None if everything below the offset is committed, else a future that waits for it.

        This is the only thing that ``acks=all``, offset commits, group state and transaction state wait for. A record
        is committed when all in-sync replicas have it, and is flushed if the topic's config asks for that.
        """
        pending = self.flushed(offset) if self.log.flushes_on_append else None
        leader = self.leader
        if leader is None or offset <= leader.high_watermark:
            return pending
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order += 1
        heappush(self._uncommitted, (offset, self._order, future))
        return future if pending is None else asyncio.ensure_future(_both(future, pending))

    def not_committed_in_time(self, timeout_ms: Millis) -> errors.KafkaError:
        """Return why ``acks=all`` was not reached within the time of a request."""
        if self.leader is not None and self.leader.is_below_min_isr:
            return errors.NotEnoughReplicasAfterAppend(
                f"The records are in {self.topic}-{self.index}, but only {list(self.state.isr)} are in sync, fewer "
                "than min.insync.replicas."
            )
        return errors.RequestTimedOut(f"The in-sync replicas did not have the records within {timeout_ms} ms.")

    def flushed(self, offset: int) -> asyncio.Future[None] | None:
        """Return None if the topic's config requires no flush below the offset, else a future that waits for it."""
        if not self.log.must_flush(offset):
            return None
        return asyncio.ensure_future(self._flusher.flushed(self.log, offset))

    @property
    def low_watermark(self) -> int:
        """The lowest log start of the replicas that are alive."""
        return self.log.log_start_offset if self.leader is None else self.leader.low_watermark

    def deleted(self, offset: int) -> asyncio.Future[None] | None:
        """Return None if all replicas that are alive start at the offset or later, else a future that waits for it."""
        if self.low_watermark >= offset:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deletions.append((offset, future))
        for waiter in tuple(self.waiters):
            if waiter.is_replica:
                waiter.release()  # Followers learn of it by the answer.
        return future

    def _low_watermark_rose(self) -> None:
        low = self.low_watermark
        waiting, self._deletions = self._deletions, []
        for offset, future in waiting:
            if future.done():
                continue
            if offset <= low:
                future.set_result(None)
            else:
                self._deletions.append((offset, future))

    def check_epoch(self, leader_epoch: int) -> None:
        """Compare the client's leader epoch with the current one; -1 is not compared."""
        if leader_epoch < 0 or leader_epoch == self.leader_epoch:
            return
        if leader_epoch < self.leader_epoch:
            raise errors.FencedLeaderEpoch(f"The leader epoch is {self.leader_epoch} now, not {leader_epoch}.")
        raise errors.UnknownLeaderEpoch(f"The leader epoch is still {self.leader_epoch}, not {leader_epoch}.")

    # ── appends of the leader ─────────────────────────────────────────────────────────────────────────────────────

    def append(self, records: memoryview, *, now: Millis, all_in_sync: bool = True) -> AppendInfo:
        """Append the records of a producer, and wake waiting fetches. ``all_in_sync`` is what ``acks=all`` asks for."""
        if self.leader is not None and all_in_sync:
            self._check_min_isr()
        info = self.log.append(records, leader_epoch=self.leader_epoch, now=now)
        if not info.duplicate:
            self._appended(len(records), now)
        return info

    def append_own(self, records: memoryview, *, now: Millis) -> AppendInfo:
        """Append records of the broker itself."""
        self._check_leads()
        info = self.log.append(records, leader_epoch=self.leader_epoch, now=now, from_client=False)
        self._appended(len(records), now)
        return info

    def append_marker(self, end: EndOfTransaction, *, now: Millis) -> AppendInfo:
        """Append the marker that ends a transaction, and wake the fetches that wait for it."""
        self._check_leads()
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
        self._appended(len(records), now)
        if self.last_stable_offset > stable:
            self._release_stable()
        return info

    def _check_leads(self) -> None:
        if not self.is_leader:
            raise self.not_leader()
        if self.leader is not None:
            self._check_min_isr()

    def _check_min_isr(self) -> None:
        leader = self.leader
        if leader is not None and leader.is_below_min_isr:
            raise errors.NotEnoughReplicas(
                f"{self.topic}-{self.index} has {len(self.state.isr)} in-sync replicas {list(self.state.isr)}, fewer "
                "than min.insync.replicas."
            )

    def _appended(self, size: int, now: Millis) -> None:
        leader = self.leader
        if leader is None:
            if self.waiters:
                self._wake(size)
            return
        self._hidden.append((self.log.log_end_offset, size))
        if self.waiters:
            for waiter in tuple(self.waiters):
                if waiter.is_replica:
                    waiter.appended(size)
        if leader.appended(now=now):
            self._watermark_rose()

    # ── replication ───────────────────────────────────────────────────────────────────────────────────────────────

    def fetched_by(self, fetch: ReplicaFetch, *, now: Millis) -> Fetched:
        """Take note of a follower's fetch: it has everything below its offset, unless the logs differ."""
        leader = self.leader
        if leader is None:
            raise errors.UnknownLeaderEpoch(f"Broker {fetch.replica} is no replica of {self.topic}-{self.index} yet.")
        fetched = leader.fetched(fetch, now=now)
        if fetched.has_raised_high_watermark:
            self._watermark_rose()
        if self._deletions:
            self._low_watermark_rose()
        if fetch.replica not in leader.state.isr:
            self.on_change(self)
        return fetched

    def altered(self, proposal: Proposal, error: errors.KafkaError, *, now: Millis) -> None:
        """The controller has refused a proposal of this leader, or did not answer."""
        if self.leader is not None and self.leader.proposal_failed(proposal, error, now=now):
            self._watermark_rose()

    def advance(self, *, now: Millis) -> None:
        """Look whether the high watermark can rise, because time has passed or a broker is gone."""
        if self.leader is not None and self.leader.advance(now=now):
            self._watermark_rose()

    def replicate(self, step: Append, *, now: Millis) -> None:
        """Append what the leader sent, and take over its high watermark and log start offset."""
        follower = self.follower
        assert follower is not None
        if step.records:
            self.log.append_as_follower(step.records, now=now)
        if follower.appended(step) and self.waiters:
            self._wake(max(1, len(step.records)))
        self.log.advance(start_offset=follower.start_offset, high_watermark=follower.high_watermark)

    def _watermark_rose(self) -> None:
        """Answer what waited for the high watermark."""
        watermark, waiting, hidden = self.high_watermark, self._uncommitted, self._hidden
        while waiting and waiting[0][0] <= watermark:
            _, _, future = heappop(waiting)
            if not future.done():
                future.set_result(None)
        size = 0
        while hidden and hidden[0][0] <= watermark:
            size += hidden.popleft()[1]
        if size and self.waiters:
            self._wake(size)
            # A marker that is readable now may have decided a transaction.
            self._release_stable()
            for waiter in tuple(self.waiters):
                if waiter.wants_watermark:
                    waiter.release()

    # ── waiting fetches ───────────────────────────────────────────────────────────────────────────────────────────

    def _wake(self, size: int) -> None:
        undecided = self.log.producers.has_any_ongoing
        for waiter in tuple(self.waiters):
            if not (undecided and waiter.read_committed) and not (waiter.is_replica and self.leader is not None):
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


async def _both(first: asyncio.Future[None], second: asyncio.Future[None]) -> None:
    await first
    await second


def _ignore(partition: Partition) -> None:
    """Nobody is interested."""
