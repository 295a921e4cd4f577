"""The leader of one partition in one leader epoch: the progress of its followers, the high watermark, and the ISR.

A new leader epoch gets a new `Leader`, even if the broker stays the leader. So no follower counts before it has fetched
in this epoch: in between it may have followed another leader and truncated its log.

The rules for the high watermark:

- It is the lowest log end of the maximal ISR: the committed ISR and what the leader has proposed. The controller may
  have committed a proposal whose answer is lost, and may elect any member of it.
- It does not rise while the committed ISR is smaller than `min.insync.replicas` (KIP-966): the controller then keeps
  replicas eligible that have left the ISR.
- It never falls.
- It waits for followers that are caught up and about to join. Without that, a follower of a busy leader would never
  reach the high watermark.

Create a leader after `Log.begin_epoch`. Ask for a `proposal` after each fetch. Call `advance` and ask periodically too.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla import errors
from ottla.metadata.values import BrokerState, PartitionState
from ottla.replication.values import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    EpochEnd,
    Fetched,
    LogView,
    Member,
    Proposal,
    ReplicaFetch,
)
from ottla.types import BrokerId, Millis

#: The pause before a proposal that failed is sent again.
RETRY_MS: Millis = 50
_NEVER: Millis = -(2**62)

#: The image decides: the controller has a newer state than this leader, or does not know the partition.
_WAIT_FOR_IMAGE = (
    errors.FencedLeaderEpoch,
    errors.InvalidUpdateVersion,
    errors.NewLeaderElected,
    errors.UnknownTopicId,
    errors.UnknownTopicOrPartition,
    errors.InvalidRequest,
)


class Progress:
    """What the leader knows about one follower."""

    __slots__ = ("broker_epoch", "caught_up_at", "end_at_fetch", "fetched_at", "log_end_offset", "log_start_offset")

    def __init__(self, caught_up_at: Millis = _NEVER) -> None:
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        """-1 before its first fetch in this epoch."""
        self.broker_epoch = UNKNOWN_EPOCH
        """Of its last fetch."""
        self.caught_up_at = caught_up_at
        """The last time at which it had everything that the leader had."""
        self.fetched_at = _NEVER
        self.end_at_fetch = UNKNOWN_OFFSET
        """The leader's log end at the last fetch."""

    def fetched(self, fetch: ReplicaFetch, leader_end: int, *, now: Millis) -> None:
        """Take over the position of a fetch.

        A follower that fetches from where the leader ended at the previous fetch was caught up then. So a follower of a
        busy leader, which is always a little behind, counts as caught up.
        """
        if fetch.fetch_offset >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif fetch.fetch_offset >= self.end_at_fetch:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.log_start_offset = fetch.log_start_offset
        self.log_end_offset = fetch.fetch_offset
        self.broker_epoch = fetch.broker_epoch
        self.fetched_at = now
        self.end_at_fetch = max(self.end_at_fetch, leader_end)


class Leader:
    """One leader epoch of a partition whose leader is this broker."""

    __slots__ = (
        "_brokers",
        "_counted",
        "_in_flight",
        "_log",
        "_max_lag_ms",
        "_min_isr",
        "_others",
        "_pause_until",
        "_resend_at",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "is_below_min_isr",
        "maximal_isr",
        "me",
        "state",
    )

    def __init__(
        self,
        *,
        me: BrokerId,
        state: PartitionState,
        log: LogView,
        brokers: Mapping[BrokerId, BrokerState],
        min_isr: int,
        max_lag_ms: Millis,
        high_watermark: int,
        now: Millis,
    ) -> None:
        self.me = me
        self.state = state
        """The last state in the image."""
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.epoch_start_offset = log.log_end_offset
        self.followers: dict[BrokerId, Progress] = {}
        self.maximal_isr: frozenset[BrokerId] = frozenset()
        """The committed ISR and what was proposed: all that the controller may elect."""
        self.is_below_min_isr = False
        """Whether `acks=all` must be refused (NOT_ENOUGH_REPLICAS)."""
        self._log = log
        self._brokers = brokers
        self._counted: list[Progress] = []
        """The followers in the maximal ISR."""
        self._others: list[tuple[BrokerId, Progress]] = []
        self._min_isr = min_isr
        self._max_lag_ms = max_lag_ms
        self._in_flight: Proposal | None = None
        self._resend_at: Millis | None = None
        self._pause_until: Millis = _NEVER
        self._take(state, now=now)
        self.advance(now=now)

    # ── what others see ─────────────────────────────────────────────────────────────────────────────────

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def knows_high_watermark(self) -> bool:
        """Whether the high watermark is at least that of every earlier leader. Until then ListOffsets has no answer."""
        return self.high_watermark >= self.epoch_start_offset

    @property
    def low_watermark(self) -> int:
        """The lowest log start of the replicas that are alive: DeleteRecords is complete up to there."""
        starts = [self._log.log_start_offset]
        for broker_id, progress in self.followers.items():
            broker = self._brokers.get(broker_id)
            if broker is not None and not broker.is_fenced and broker_id not in self.state.offline:
                starts.append(progress.log_start_offset)
        return min(starts)

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────

    def appended(self, *, now: Millis) -> bool:
        """The log has grown. True if the high watermark rose, which needs no follower only if none is in the ISR."""
        return not self._counted and self.advance(now=now)

    def fetched(self, fetch: ReplicaFetch, *, now: Millis) -> Fetched:
        """A follower fetches. It counts only if its log is a prefix of the leader's.

        Raises FencedLeaderEpoch, UnknownLeaderEpoch, NotLeaderOrFollower or OffsetOutOfRange. Answer the last one with
        `log_start_offset`, so that the follower knows where to start again.
        """
        progress = self._check(fetch)
        diverging = divergence(self._log, fetch.fetch_offset, fetch.last_fetched_epoch)
        if diverging is not None:
            return Fetched(diverging, False)
        if progress.log_end_offset < 0 and self._has_only_deleted(fetch):
            raise errors.OffsetOutOfRange(f"all records before offset {fetch.fetch_offset} are deleted")
        end = self._log.log_end_offset
        progress.fetched(fetch, end, now=now)
        return Fetched(None, self.high_watermark < end and self.advance(now=now))

    def advance(self, *, now: Millis) -> bool:
        """Look again: time has passed, or a broker has changed. True if the high watermark rose."""
        if self.is_below_min_isr:
            return False
        lowest = self._log.log_end_offset
        for progress in self._counted:
            lowest = min(lowest, progress.log_end_offset)
        for broker_id, progress in self._others:
            if progress.log_end_offset < lowest and self._is_about_to_join(broker_id, progress, now=now):
                lowest = progress.log_end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def state_changed(self, state: PartitionState, *, now: Millis) -> bool:
        """The image has a newer state of this leader epoch. True if the high watermark rose."""
        if state.leader_epoch != self.state.leader_epoch or state.partition_epoch <= self.state.partition_epoch:
            return False
        self._in_flight = self._resend_at = None  # A proposal for an older state cannot be committed any more.
        self._take(state, now=now)
        return self.advance(now=now)

    def settings_changed(self, *, min_isr: int, max_lag_ms: Millis, now: Millis) -> bool:
        """The configs have changed. True if the high watermark rose."""
        self._min_isr = min_isr
        self._max_lag_ms = max_lag_ms
        self._count()
        return self.advance(now=now)

    def proposal(self, *, now: Millis) -> Proposal | None:
        """The AlterPartition request to send now; None if there is none. Tell `proposal_failed` if it fails."""
        if self._in_flight is not None:
            if self._resend_at is None or now < self._resend_at:
                return None
            self._resend_at = None
            return self._in_flight
        if now < self._pause_until:
            return None
        state = self.state
        isr = [broker_id for broker_id in state.isr if not self._is_too_slow(broker_id, now=now)]
        isr += [broker_id for broker_id in state.replicas if self._can_join(broker_id)]
        if len(isr) == len(state.isr) and set(isr) == set(state.isr):
            return None
        self._in_flight = Proposal(tuple(map(self._member, isr)), state.leader_epoch, state.partition_epoch)
        self._count()
        return self._in_flight

    def proposal_failed(self, proposal: Proposal, error: errors.KafkaError, *, now: Millis) -> bool:
        """A proposal was refused, or its answer is lost (any other error). True if the high watermark rose.

        What the controller has accepted counts when the image has it, not before: the image may bring another
        `min.insync.replicas` first. Until it is known what became of a proposal, its members count.
        """
        if proposal is not self._in_flight:
            return False  # The image was faster.
        if isinstance(error, errors.IneligibleReplica):
            # This holds for good: a broker that is fenced gets another epoch before it is active again.
            self._in_flight, self._pause_until = None, now + RETRY_MS
            self._count()
            return self.advance(now=now)
        if not isinstance(error, _WAIT_FOR_IMAGE):
            self._resend_at = now + RETRY_MS
        return False

    # ── rules ───────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, state: PartitionState, *, now: Millis) -> None:
        """Make `state` the committed one."""
        if state.partition_epoch > self.state.partition_epoch + 1:
            # There were states in between. A follower may have been removed, and added again with an empty log.
            for broker_id in self.followers.keys() - set(state.isr):
                self.followers[broker_id] = Progress()
        known, self.followers = self.followers, {}
        for broker_id in dict.fromkeys(state.replicas + state.isr):
            if broker_id != self.me:
                fresh = Progress(now if broker_id in state.isr else _NEVER)
                self.followers[broker_id] = known.get(broker_id, fresh)
        self.state = state
        self._count()

    def _count(self) -> None:
        """Derive who counts for the high watermark from the state and the proposal."""
        state, proposed = self.state, () if self._in_flight is None else self._in_flight.isr
        self.maximal_isr = frozenset(state.isr).union(member.broker_id for member in proposed)
        self._counted = [self.followers[broker_id] for broker_id in self.maximal_isr if broker_id != self.me]
        self._others = [item for item in self.followers.items() if item[0] not in self.maximal_isr]
        self.is_below_min_isr = len(state.isr) < state.min_isr(self._min_isr)

    def _check(self, fetch: ReplicaFetch) -> Progress:
        mine = self.state.leader_epoch
        if fetch.leader_epoch < mine:
            raise errors.FencedLeaderEpoch(f"the leader epoch is {mine} now, not {fetch.leader_epoch}")
        if fetch.leader_epoch > mine:
            raise errors.UnknownLeaderEpoch(f"the leader epoch is still {mine}, not {fetch.leader_epoch}")
        progress = self.followers.get(fetch.replica)
        if progress is None or fetch.replica not in self.state.replicas:
            # The follower may know a newer state than this leader, so it should ask again.
            raise errors.UnknownLeaderEpoch(
                f"broker {fetch.replica} is not a replica in leader epoch {mine} and partition epoch "
                f"{self.state.partition_epoch}"
            )
        broker = self._brokers.get(fetch.replica)
        newest = max(progress.broker_epoch, UNKNOWN_EPOCH if broker is None else broker.epoch)
        if fetch.broker_epoch < newest:
            raise errors.NotLeaderOrFollower(
                f"broker {fetch.replica} has epoch {newest} now: a fetch of its epoch {fetch.broker_epoch} is outdated"
            )
        return progress

    def _has_only_deleted(self, fetch: ReplicaFetch) -> bool:
        """Whether a follower has nothing but records that were deleted here, and an epoch that was forgotten with them.

        They may differ from what was committed. A follower that joined the ISR with them could lead, and show them.
        """
        start, epoch = self._log.log_start_offset, fetch.last_fetched_epoch
        return (
            fetch.log_start_offset < fetch.fetch_offset == start
            and 0 <= epoch < self._log.latest_epoch
            and self._log.end_offset_for_epoch(epoch)[1] == start
        )

    def _is_about_to_join(self, broker_id: BrokerId, progress: Progress, *, now: Millis) -> bool:
        return now - progress.caught_up_at <= self._max_lag_ms and self._is_eligible(broker_id, progress)

    def _is_eligible(self, broker_id: BrokerId, progress: Progress) -> bool:
        """Whether the controller would take it: it fetched in this epoch, and its broker is the one that is active."""
        broker = self._brokers.get(broker_id)
        return (
            progress.log_end_offset >= 0
            and broker_id not in self.state.offline
            and broker is not None
            and broker.is_active
            and broker.epoch == progress.broker_epoch
        )

    def _can_join(self, broker_id: BrokerId) -> bool:
        """Whether a follower has everything that may be committed.

        A new leader's high watermark may be too low, so the follower must have reached the start of this epoch too.
        """
        progress = self.followers.get(broker_id)
        return (
            progress is not None
            and broker_id not in self.state.isr
            and progress.log_end_offset >= self.high_watermark
            and progress.log_end_offset >= self.epoch_start_offset
            and self._is_eligible(broker_id, progress)
        )

    def _is_too_slow(self, broker_id: BrokerId, *, now: Millis) -> bool:
        progress = self.followers.get(broker_id)
        return (
            progress is not None
            and progress.log_end_offset != self._log.log_end_offset
            and now - progress.caught_up_at > self._max_lag_ms
        )

    def _member(self, broker_id: BrokerId) -> Member:
        if broker_id != self.me:
            return Member(broker_id, self.followers[broker_id].broker_epoch)
        broker = self._brokers.get(broker_id)
        return Member(broker_id, UNKNOWN_EPOCH if broker is None else broker.epoch)


def divergence(log: LogView, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
    """Where the log of a follower, or what a consumer has read, stops to be a prefix of `log`; None if it is one.

    Raises OffsetOutOfRange if that cannot be told, because `log` does not have the offset.
    """
    start, end, latest = log.log_start_offset, log.log_end_offset, log.latest_epoch
    if last_fetched_epoch == latest and start <= fetch_offset <= end:
        return None
    if fetch_offset >= start and last_fetched_epoch >= 0:
        known = EpochEnd(*log.end_offset_for_epoch(last_fetched_epoch))
        if last_fetched_epoch > latest >= 0:
            known = EpochEnd(latest, end)
        if known.epoch >= 0 and (known.epoch < last_fetched_epoch or known.end_offset < fetch_offset):
            return known
    if not start <= fetch_offset <= end:
        raise errors.OffsetOutOfRange(f"offset {fetch_offset} is not between {start} and {end}")
    return None
